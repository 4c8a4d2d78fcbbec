"""agno's AgentOS with its A2A interface."""

from telling import ABOUT, MODEL, NAME, listen, serve

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.os import AgentOS

listener, url = listen(0)
agent = Agent(
    id=NAME, name=NAME, description=ABOUT, model=OpenAIChat(id="scripted", base_url=MODEL, api_key="none"), telemetry=False
)
app = AgentOS(agents=[agent], a2a_interface=True, telemetry=False).get_app()
serve(app, listener, f"{url}a2a/agents/{NAME}/.well-known/agent-card.json")
