"""llama-index-tools-mcp: its McpToolSpec; the model reads `str()` of a tool's output."""

import driver
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec


async def run(_, mcp_url, model_url, prompt):
    shown = []
    tools = await McpToolSpec(client=BasicMCPClient(mcp_url)).to_tool_list_async()
    by_name = {tool.metadata.name: tool for tool in tools}
    declared = [{"name": name, "parameters": tool.metadata.get_parameters_dict()} for name, tool in by_name.items()]
    while "call" in (said := driver.next_step(model_url, prompt, shown, declared)):
        shown.append(str(await by_name[said["call"]].acall(**said["arguments"])))


driver.main(run)
