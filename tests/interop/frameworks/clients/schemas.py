"""The gateway's tools through the converters that frameworks have for other providers' tools.

Usage: schemas.py VARIANT MCP_URL MODEL_URL PROMPT (one prompt that names the case; the model is not asked). Variants: strict, genai,
autogen, semantic-kernel, openai, google, aws, anthropic. A warning, in the log or by `warnings`, is a failure as an error is.
"""

import logging
import warnings

import driver


async def strict(url):
    from agents import Agent, RunContextWrapper
    from agents.mcp import MCPServerStreamableHttp

    # A tool that takes any object as data stays as it is, without a warning: strict mode has no open objects.
    async with MCPServerStreamableHttp({"url": url}) as server:
        agent = Agent("reader", mcp_servers=[server], mcp_config={"convert_schemas_to_strict": True})
        return await agent.get_mcp_tools(RunContextWrapper(None))


async def genai(url):
    from google.genai._mcp_utils import mcp_to_gemini_tool
    from mcp import Client

    async with Client(url, mode="legacy") as client:
        tools = (await client.list_tools()).tools
    for tool in tools:
        mcp_to_gemini_tool(tool)
    return tools


async def autogen(url):
    from autogen_ext.tools.mcp import StreamableHttpServerParams, mcp_server_tools

    tools = await mcp_server_tools(StreamableHttpServerParams(url=url))
    return [tool.schema for tool in tools]


async def semantic_kernel(url):
    from semantic_kernel import Kernel
    from semantic_kernel.connectors.ai.function_calling_utils import kernel_function_metadata_to_function_call_format
    from semantic_kernel.connectors.mcp import MCPStreamableHttpPlugin

    async with MCPStreamableHttpPlugin("gateway", url, load_prompts=False) as plugin:
        kernel = Kernel()
        kernel.add_plugin(plugin)
        known = kernel.get_full_list_of_function_metadata()
        return [kernel_function_metadata_to_function_call_format(one) for one in known]


async def langchain(url, provider):
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_tools import tools_of

    client = MultiServerMCPClient({"gateway": {"transport": "streamable_http", "url": url}})
    return tools_of(provider, await client.get_tools())


CHECKS = {"strict": strict, "genai": genai, "autogen": autogen, "semantic-kernel": semantic_kernel}
ABOUT_CODE = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)  # not about a schema


class Kept(logging.Handler):
    """Keeps warnings and errors of the log."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


async def run(variant, mcp_url, model_url, prompt):
    kept = Kept()
    logging.getLogger().addHandler(kept)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        tools = await (CHECKS[variant](mcp_url) if variant in CHECKS else langchain(mcp_url, variant))
    said = kept.lines + [str(one.message) for one in warned if not issubclass(one.category, ABOUT_CODE)]
    if said or not tools:
        raise ValueError(f"{len(tools)} tools; warned: {said}")


driver.main(run)
