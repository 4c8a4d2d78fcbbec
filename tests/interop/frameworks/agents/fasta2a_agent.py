"""pydantic-ai by fasta2a's `agent_to_a2a`."""

from telling import ABOUT, MODEL, NAME, listen, serve

from fasta2a.pydantic_ai import agent_to_a2a
from fasta2a.schema import Skill
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

listener, url = listen(0)
model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=MODEL, api_key="none"))
skill = Skill(id=NAME, name=NAME, description=ABOUT, tags=[NAME], input_modes=["text/plain"], output_modes=["text/plain"])
serve(agent_to_a2a(Agent(model, name=NAME), name=NAME, description=ABOUT, url=url, skills=[skill]), listener, url)
