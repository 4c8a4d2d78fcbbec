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
    asyncio.run(serve_here(app, listener, url))


async def serve_here(app, listener, url):
    """Serves in the running event loop until the process is told to stop."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    print(f"ready {url}", flush=True)
    await server.serve(sockets=[listener])


def serve_grpc(made, listener, url):
    """Serves an agent by gRPC on a free port, and its card by HTTP at `url`.

    `made(address)` returns the HTTP application with the card, and a function that adds the agent to a gRPC server.
    """

    async def run():
        import grpc.aio

        server = grpc.aio.server()
        app, add_to = made(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        add_to(server)
        await server.start()
        await serve_here(app, listener, url)
        await server.stop(1)

    asyncio.run(run())
