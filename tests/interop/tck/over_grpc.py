"""Calls over gRPC, as `compare.py` makes them: with the official messages of `a2a-sdk` 1.3.0, and nothing else of it.

What a call gives is told like the answer to an HTTP request: a status, and a body in JSON.
"""

import json

import grpc
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError  # noqa: F401
from google.rpc import error_details_pb2, status_pb2

METHOD = "gRPC"
SERVICE = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"]
REQUESTS = {method.name: method.input_type for method in SERVICE.methods}
# Reasons that say no more than the status, as those of JSON-RPC's own codes.
OF_STATUS = {"PARSE_ERROR", "INVALID_REQUEST", "METHOD_NOT_FOUND", "INVALID_PARAMS", "INTERNAL_ERROR"}
STREAMS = {"SendStreamingMessage", "SubscribeToTask"}
LIMIT = 60  # seconds for one call


def message(kind, content):
    """The message of this type with this content; members that it does not have are left out."""
    return ParseDict(content, getattr(a2a_pb2, kind.name)(), ignore_unknown_fields=True)


class Channel:
    """The gRPC interface of an agent's card."""

    def __init__(self, card, headers):
        found = [one for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC"]
        self.address = found[0]["url"].split("://")[-1].strip("/")
        self.tenant = found[0].get("tenant", "")
        self.channel = grpc.insecure_channel(self.address)
        self.headers = list(headers.items())

    def call(self, name, content, headers):
        request = message(REQUESTS[name], {"tenant": self.tenant, **content})
        make = self.channel.unary_stream if name in STREAMS else self.channel.unary_unary
        output = SERVICE.methods_by_name[name].output_type
        cls = getattr(a2a_pb2, output.name, None)
        parse = cls.FromString if cls else bytes
        path = f"/{SERVICE.full_name}/{name}"
        method = make(path, request_serializer=lambda written: written.SerializeToString(), response_deserializer=parse)
        body = []
        try:
            answer = method(request, timeout=LIMIT, metadata=[*self.headers, *headers.items()])
            for one in answer if name in STREAMS else [answer]:
                body.append(MessageToDict(one) if cls else len(one))
            status = "OK"
        except grpc.RpcError as error:
            status = error.code().name
            body.append({"reasons": list(reasons(error.trailing_metadata()))})
        return status, json.loads(json.dumps(body))


def reasons(trailers):
    """The reasons in the details of an error."""
    for name, value in trailers or ():
        if name == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info) and info.reason not in OF_STATUS:
                    yield info.reason
