"""strands-agents by its A2AServer; its question is an interrupt of a tool."""

from telling import ABOUT, MODEL, NAME, listen, script, serve

from strands import Agent, ToolContext, tool
from strands.models.openai import OpenAIModel
from strands.multiagent.a2a import A2AServer


@tool(context=True)
def tide_question(tool_context: ToolContext) -> str:
    """Sounds the harbour that the user names."""
    return tool_context.interrupt("harbour", reason=script.QUESTION)


def agent(context):
    model = OpenAIModel(client_args={"base_url": MODEL, "api_key": "none", "max_retries": 0}, model_id="scripted")
    return Agent(model=model, name=NAME, description=ABOUT, tools=[tide_question], callback_handler=None)


listener, url = listen(0)
server = A2AServer(agent_factory=agent, host="127.0.0.1", port=listener.getsockname()[1], enable_a2a_compliant_streaming=True)
serve(server.to_starlette_app(), listener, url)
