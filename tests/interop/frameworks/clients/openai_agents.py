"""openai-agents: its MCPServerStreamableHttp, at its own time limit. Variants: plain, strict, structured."""

import agents
import driver
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI

agents.set_tracing_disabled(True)


async def run(variant, mcp_url, model_url, prompt):
    model = agents.OpenAIChatCompletionsModel("scripted", AsyncOpenAI(base_url=model_url, api_key="none"))
    structured = variant == "structured"
    async with MCPServerStreamableHttp({"url": mcp_url}, use_structured_content=structured) as server:
        strict = {"convert_schemas_to_strict": variant == "strict"}
        agent = agents.Agent("reader", model=model, mcp_servers=[server], mcp_config=strict)
        await agents.Runner.run(agent, prompt, max_turns=20)


driver.main(run)
