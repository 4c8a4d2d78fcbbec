"""The server of a Python MCP client: a URL, or over stdio the process of $INTEROP_STDIO (a JSON list).

Not a client by itself: `py_checks.py` and `py_tasks.py` use it.
"""

import json
import os

from mcp import StdioServerParameters


def server(url):
    if not (process := os.environ.get("INTEROP_STDIO")):
        return url
    command, *arguments = json.loads(process)
    return StdioServerParameters(command=command, args=arguments)
