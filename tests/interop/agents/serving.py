"""How the Python agents of the interop tests are served: one socket, one ready line.

Not part of any agent's behaviour. The socket listens before the ready line is
printed, so whoever reads the line can connect at once; `--port 0` takes any free port.
"""

import argparse
import asyncio
import socket

import uvicorn


def options(*flags):
    """Reads `--port` and these flags."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    return parser.parse_args()


def listen(port=None):
    """Returns the listening socket and the agent's base URL. The port is that of `--port` unless it is given."""
    listener = socket.create_server(("127.0.0.1", options().port if port is None else port), backlog=128)
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}/"


def serve(app, listener, url):
    """Serves until the process is told to stop."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    print(f"ready {url}", flush=True)
    asyncio.run(server.serve(sockets=[listener]))
