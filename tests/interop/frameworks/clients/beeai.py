"""BeeAI: its MCPTool; the model reads `get_text_content()` of a tool's output."""

import driver
from beeai_framework.tools import ToolError
from beeai_framework.tools.mcp import MCPTool
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def run(_, mcp_url, model_url, prompt):
    shown = []
    async with streamable_http_client(mcp_url) as (reader, writer, *_), ClientSession(reader, writer) as session:
        await session.initialize()
        by_name = {tool.name: tool for tool in await MCPTool.from_session(session)}
        declared = [{"name": name, "parameters": tool.input_schema.model_json_schema()} for name, tool in by_name.items()]
        while "call" in (said := driver.next_step(model_url, prompt, shown, declared)):
            try:
                shown.append((await by_name[said["call"]].run(said["arguments"])).get_text_content())
            except ToolError as error:
                shown.append(error.explain())


driver.main(run)
