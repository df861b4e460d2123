"""A server of the package websockets: an echo for whoever has the token."""

import http
import sys

from websockets.sync.server import serve

PORT, TOKEN = sys.argv[1:]


def check(connection, request):
    if request.headers.get("Authorization") != f"Bearer {TOKEN}":
        return connection.respond(http.HTTPStatus.UNAUTHORIZED, "not by me\n")


def echo(connection):
    for message in connection:
        connection.send(message)


serve(echo, "127.0.0.1", int(PORT), process_request=check).serve_forever()
