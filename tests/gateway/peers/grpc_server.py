"""A server of grpcio: a call, and a stream in both directions, for whoever has the token."""

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

PORT, TOKEN = sys.argv[1:]


class Methods(grpc.GenericRpcHandler):
    def service(self, details):
        if dict(details.invocation_metadata).get("authorization") != f"Bearer {TOKEN}":
            return grpc.unary_unary_rpc_method_handler(refuse)
        if details.method == "/t.Echo/Once":
            return grpc.unary_unary_rpc_method_handler(once)
        return grpc.stream_stream_rpc_method_handler(lambda requests, context: requests)


def refuse(request, context):
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "not by me")


def once(request, context):
    context.set_trailing_metadata((("x-end", "yes"),))
    return request


server = grpc.server(ThreadPoolExecutor(4), handlers=(Methods(),))
server.add_insecure_port(f"127.0.0.1:{PORT}")
server.start()
server.wait_for_termination()
