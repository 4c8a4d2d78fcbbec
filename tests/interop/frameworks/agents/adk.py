"""Google ADK 2 by `to_a2a`, with a model class of its own kind; its question is the confirmation of a tool."""

import json
import urllib.request

from telling import ABOUT, MODEL, NAME, listen, script, serve

from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.function_tool import FunctionTool
from google.genai import types


class Scripted(BaseLlm):
    """Turns ADK's request into chat completions and back."""

    async def generate_content_async(self, llm_request, stream=False):
        messages = [message for content in llm_request.contents for message in converted(content)]
        tools = [{"type": "function", "function": {"name": name}} for name in llm_request.tools_dict]
        body = json.dumps({"model": "scripted", "messages": messages, "tools": tools}).encode()
        request = urllib.request.Request(f"{MODEL}/chat/completions", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as response:
                message = json.load(response)["choices"][0]["message"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["error"]["message"]) from None
        parts = [
            types.Part.from_function_call(name=call["function"]["name"], args=json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls", [])
        ]
        yield LlmResponse(content=types.Content(role="model", parts=parts or [types.Part(text=message["content"])]))


def converted(content):
    for part in content.parts:
        if part.function_response:
            yield {"role": "tool", "content": json.dumps(part.function_response.response, default=str)}
        elif part.text:
            yield {"role": "user" if content.role == "user" else "assistant", "content": part.text}


def tide_data() -> dict:
    """Measures the tide."""
    return script.DATA


def tide_question() -> dict:
    """Sounds the harbour, once the user has confirmed it."""
    return {"sounded": True}


listener, url = listen(0)
agent = LlmAgent(
    name=NAME,
    description=ABOUT,
    model=Scripted(model="scripted"),
    tools=[tide_data, FunctionTool(tide_question, require_confirmation=True)],
)
serve(to_a2a(agent, host="127.0.0.1", port=listener.getsockname()[1]), listener, url)
