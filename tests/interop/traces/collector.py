"""A receiver of OTLP made of the official `opentelemetry-proto`: over gRPC (grpcio) and over HTTP.

Usage: collector.py FILE. Appends each span to FILE, one JSON object a line. Prints `ready HTTP GRPC`, both URLs. Not a
collector: no registry here has one that can be started.
"""

import concurrent.futures
import http.server
import json
import sys
import threading

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

LOCK = threading.Lock()


def text(value):
    return getattr(value, value.WhichOneof("value") or "string_value")


def keep(request, protocol):
    with LOCK, open(sys.argv[1], "a", encoding="utf-8") as file:
        for resource in request.resource_spans:
            about = {one.key: text(one.value) for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    line = {
                        "protocol": protocol,
                        "service": about.get("service.name"),
                        "scope": scope.scope.name,
                        "trace": span.trace_id.hex(),
                        "span": span.span_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "kind": span.kind,
                        "name": span.name,
                        "attributes": {one.key: str(text(one.value)) for one in span.attributes},
                        "resource": {name: str(value) for name, value in about.items()},
                    }
                    file.write(json.dumps(line) + "\n")


class Grpc(TraceServiceServicer):
    def Export(self, request, context):
        keep(request, "grpc")
        return ExportTraceServiceResponse()


class Http(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        is_ours = self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
        if is_ours and self.headers.get("content-encoding") is None:
            keep(ExportTraceServiceRequest.FromString(body), "http")
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200 if is_ours else 400)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def main():
    open(sys.argv[1], "w", encoding="utf-8").close()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    add_TraceServiceServicer_to_server(Grpc(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Http)
    print(f"ready http://127.0.0.1:{web.server_port} http://127.0.0.1:{port}", flush=True)
    web.serve_forever()


if __name__ == "__main__":
    main()
