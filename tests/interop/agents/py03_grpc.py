"""The agent of `py03.py`, over gRPC of A2A 0.3 and no JSON-RPC: the gRPC server of `a2a-sdk` 0.3.26.

Not a mock: the SDK makes every byte on the wire. What it does is in `behaviour.py` and `slash.py`. Its card is served by
HTTP, with JSON-RPC beside it that the card does not name.
"""

from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import GrpcHandler

import behaviour
import serving
from slash import card, handler

NAMES = ("Python 0.3 agent", "The interop agent on a2a-sdk 0.3, by gRPC")


def by_grpc(address):
    shown = card(*NAMES, address, behaviour.SKILLS, "GRPC")
    answers = handler()
    app = A2AStarletteApplication(agent_card=shown, http_handler=answers).build()
    return app, lambda server: add_A2AServiceServicer_to_server(GrpcHandler(shown, answers), server)


serving.serve_grpc(by_grpc, *serving.listen())
