"""Semantic Kernel: its MCPStreamableHttpPlugin in a ChatCompletionAgent."""

import driver
from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.connectors.mcp import MCPStreamableHttpPlugin


async def run(_, mcp_url, model_url, prompt):
    client = AsyncOpenAI(base_url=model_url, api_key="none")
    service = OpenAIChatCompletion(ai_model_id="scripted", async_client=client)
    async with MCPStreamableHttpPlugin("gateway", mcp_url, load_prompts=False) as plugin:
        agent = ChatCompletionAgent(service=service, name="reader", plugins=[plugin])
        await agent.get_response(prompt)


driver.main(run)
