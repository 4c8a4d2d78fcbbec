"""How the Python agents of the interop tests are served: one socket, one ready line.

Not part of any agent's behaviour. The socket listens before the ready line is
printed, so whoever reads the line can connect at once; `--port 0` takes any free port.
"""

import argparse
import asyncio
import socket

import uvicorn


def listen():
    """Reads `--port` and returns the listening socket and the agent's base URL."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    listener = socket.create_server(("127.0.0.1", parser.parse_args().port), backlog=128)
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}/"


def serve(app, listener, url):
    """Serves until the process is told to stop."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    print(f"ready {url}", flush=True)
    asyncio.run(server.serve(sockets=[listener]))
