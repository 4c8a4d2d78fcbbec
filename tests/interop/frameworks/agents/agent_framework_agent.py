"""Microsoft agent-framework behind its own A2AExecutor, as its documentation serves it."""

from telling import ABOUT, MODEL, NAME, listen, serve

from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from agent_framework import Agent
from agent_framework_a2a import A2AExecutor
from agent_framework_openai import OpenAIChatCompletionClient
from starlette.applications import Starlette

listener, url = listen(0)
card = AgentCard(
    name=NAME,
    description=ABOUT,
    version="1.0.0",
    supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC")],
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text"],
    default_output_modes=["text"],
    skills=[AgentSkill(id=NAME, name=NAME, description=ABOUT, tags=[NAME])],
)
agent = Agent(OpenAIChatCompletionClient(model="scripted", base_url=MODEL, api_key="none"), name=NAME)
handler = DefaultRequestHandler(agent_executor=A2AExecutor(agent), task_store=InMemoryTaskStore(), agent_card=card)
serve(Starlette(routes=create_agent_card_routes(card) + create_jsonrpc_routes(handler, rpc_url="/")), listener, url)
