"""AutoGen's AssistantAgent. Variants: workbench (McpWorkbench), tools (mcp_server_tools)."""

import contextlib

import driver
from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.mcp import McpWorkbench, StreamableHttpServerParams, mcp_server_tools

INFO = ModelInfo(vision=False, function_calling=True, json_output=False, structured_output=False, family="unknown")


async def run(variant, mcp_url, model_url, prompt):
    model = OpenAIChatCompletionClient(model="scripted", base_url=model_url, api_key="none", model_info=INFO)
    server = StreamableHttpServerParams(url=mcp_url)
    workbench = McpWorkbench(server) if variant == "workbench" else None
    async with workbench or contextlib.nullcontext():
        given = {"workbench": workbench} if workbench else {"tools": await mcp_server_tools(server)}
        agent = AssistantAgent("reader", model, max_tool_iterations=20, **given)
        await agent.run(task=prompt)


driver.main(run)
