"""Microsoft agent-framework: its MCPStreamableHTTPTool."""

import driver
from agent_framework import Agent, MCPStreamableHTTPTool
from agent_framework_openai import OpenAIChatCompletionClient


async def run(_, mcp_url, model_url, prompt):
    client = OpenAIChatCompletionClient(model="scripted", base_url=model_url, api_key="none")
    async with MCPStreamableHTTPTool("gateway", mcp_url, load_prompts=False) as tool:
        await Agent(client, tools=[tool]).run(prompt)


driver.main(run)
