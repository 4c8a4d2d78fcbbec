"""The official MCP Python SDK, which asks the agents of all frameworks. Variants: content, structured.

It stands for a client that shows its model one of the two alone. Without `structuredContent` such a client shows `content`.
"""

import json

import driver
from mcp import Client


async def run(variant, mcp_url, model_url, prompt):
    shown = []
    async with Client(mcp_url, mode="legacy") as client:
        listed = (await client.list_tools()).tools
        tools = [{"name": tool.name, "parameters": tool.input_schema} for tool in listed]
        while "call" in (said := driver.next_step(model_url, prompt, shown, tools)):
            result = await client.call_tool(said["call"], said["arguments"])
            shown.append(view(variant, result))


def view(variant, result):
    if variant == "structured" and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    return "\n".join(block["text"] if block["type"] == "text" else json.dumps(block) for block in blocks)


driver.main(run)
