"""A channel to the gateway for the official Python clients over gRPC: the headers of the other bindings are metadata."""

import urllib.parse

import grpc.aio


class Unary(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, headers):
        self.headers = headers

    async def intercept_unary_unary(self, continuation, details, request):
        return await continuation(with_headers(details, self.headers), request)


class Stream(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self, headers):
        self.headers = headers

    async def intercept_unary_stream(self, continuation, details, request):
        return await continuation(with_headers(details, self.headers), request)


def with_headers(details, headers):
    added = grpc.aio.Metadata(*(details.metadata or ()), *((name.lower(), value) for name, value in headers.items()))
    return grpc.aio.ClientCallDetails(details.method, details.timeout, added, details.credentials, details.wait_for_ready)


def factory(headers, base):
    """Returns the function that opens a channel for the URL of an interface.

    The names of hosts that a gateway gives its agents are resolved nowhere here: they become the authority of requests to
    `base`, the gateway's own address.
    """

    def channel(url):
        address = url.split("://")[-1].strip("/")
        options = []
        if not address.startswith("127."):
            options = [("grpc.default_authority", address)]
            address = urllib.parse.urlsplit(base).netloc
        return grpc.aio.insecure_channel(address, options, interceptors=[Unary(headers), Stream(headers)])

    return channel
