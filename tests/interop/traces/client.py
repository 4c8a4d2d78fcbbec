"""The official Python MCP client, which writes the context of its trace to `_meta`, under the OpenTelemetry SDK.

Usage: client.py PROTOCOL ENDPOINT URL TOOL. Prints `trace ID` of its root span.
"""

import asyncio
import sys

import telemetry
from mcp import Client
from opentelemetry import trace


async def main():
    protocol, endpoint, url, tool = sys.argv[1:]
    provider = telemetry.provide("client", protocol, endpoint)
    with trace.get_tracer("interop").start_as_current_span("work") as span:
        async with Client(url) as client:
            result = await client.call_tool(tool, {"text": "traced"})
            assert not result.is_error, result
        print(f"trace {span.get_span_context().trace_id:032x}", flush=True)
    provider.shutdown()


asyncio.run(main())
