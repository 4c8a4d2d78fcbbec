"""The agent `agents/py1.py` (official `a2a-sdk`) under the official instrumentation of ASGI.

Usage: agent.py PROTOCOL ENDPOINT [options of py1]. The instrumentation reads `traceparent` of a request.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "agents"))

import py1  # noqa: E402
import serving  # noqa: E402
import telemetry  # noqa: E402
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware  # noqa: E402


def main():
    telemetry.provide("agent", sys.argv.pop(1), sys.argv.pop(1))
    serve = serving.serve
    serving.serve = lambda app, listener, url: serve(OpenTelemetryMiddleware(app), listener, url)
    py1.main()


if __name__ == "__main__":
    main()
