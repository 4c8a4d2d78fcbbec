"""pydantic-ai: its MCPToolset."""

import driver
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def run(_, mcp_url, model_url, prompt):
    model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=model_url, api_key="none"))
    agent = Agent(model, toolsets=[MCPToolset(mcp_url)])
    async with agent:
        await agent.run(prompt)


driver.main(run)
