"""smolagents: its MCPClient. Variants: text, structured (`structured_output=True`)."""

import json

import driver
from smolagents import MCPClient


async def run(variant, mcp_url, model_url, prompt):
    """Calls its tools as its agents do: a tool is a function, and its return value is the observation."""
    where = {"url": mcp_url, "transport": "streamable-http"}
    shown = []
    with MCPClient(where, structured_output=variant == "structured") as tools:
        by_name = {tool.name: tool for tool in tools}
        declared = [{"name": tool.name, "parameters": {"properties": tool.inputs}} for tool in tools]
        while "call" in (said := driver.next_step(model_url, prompt, shown, declared)):
            result = by_name[said["call"]](**said["arguments"])
            shown.append(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str))


driver.main(run)
