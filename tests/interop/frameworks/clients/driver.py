"""Runs one framework's client over its cases. Not a client: each `NAME.py` beside this file is one.

Usage of each: NAME.py VARIANT MCP_URL MODEL_URL PROMPT... Prints a line for a case that raised; the rest is known by
the model, which records what it was shown.
"""

import asyncio
import json
import os
import sys
import traceback
import urllib.request

LIMIT = 60  # seconds for one case
os.environ.setdefault("OPENAI_API_KEY", "none")
os.environ.setdefault("OTEL_SDK_DISABLED", "true")


def main(run):
    """Asks `run(variant, mcp_url, model_url, prompt)`, a coroutine, for every prompt."""
    variant, mcp_url, model_url, *prompts = sys.argv[1:]
    for prompt in prompts:
        case = prompt.split()[1].rstrip(":")
        try:
            asyncio.run(asyncio.wait_for(run(variant, mcp_url, model_url, prompt), LIMIT))
        except BaseException as error:  # some frameworks end a run with SystemExit or an exception group
            traceback.print_exc()
            print(f"RAISED {case} {root(error)}", flush=True)
            if isinstance(error, KeyboardInterrupt):
                raise


def root(error):
    """The first cause of an error, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:400]


def next_step(model_url, prompt, shown, tools):
    """Asks the script what a model does that has read `shown`; `tools` are {"name", "parameters"}."""
    body = json.dumps({"prompt": prompt, "shown": shown, "tools": tools}).encode()
    request = urllib.request.Request(f"{model_url}/next", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=LIMIT) as response:
        return json.load(response)
