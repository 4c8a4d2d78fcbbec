"""Google ADK 2: its McpToolset, with a model class of its own kind."""

import json

import driver
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import McpToolset, StreamableHTTPConnectionParams
from google.genai import types


class Scripted(BaseLlm):
    model_url: str
    prompt: str

    async def generate_content_async(self, llm_request, stream=False):
        parts = [part for content in llm_request.contents for part in content.parts]
        shown = [json.dumps(part.function_response.response, ensure_ascii=False) for part in parts if part.function_response]
        declared = [one for tool in llm_request.config.tools or [] for one in tool.function_declarations]
        tools = [{"name": one.name, "parameters": one.parameters_json_schema or {}} for one in declared]
        said = driver.next_step(self.model_url, self.prompt, shown, tools)
        called = "call" in said and types.Part.from_function_call(name=said["call"], args=said["arguments"])
        yield LlmResponse(content=types.Content(role="model", parts=[called or types.Part(text=said["say"])]))


async def run(_, mcp_url, model_url, prompt):
    toolset = McpToolset(connection_params=StreamableHTTPConnectionParams(url=mcp_url))
    model = Scripted(model="scripted", model_url=model_url, prompt=prompt)
    runner = InMemoryRunner(LlmAgent(name="reader", model=model, tools=[toolset]), app_name="reader")
    await runner.session_service.create_session(app_name="reader", user_id="u", session_id="s")
    message = types.Content(role="user", parts=[types.Part(text=prompt)])
    async for _ in runner.run_async(user_id="u", session_id="s", new_message=message):
        pass
    await toolset.close()


driver.main(run)
