"""What is on the machine around a cell: listeners that must hear nothing, the one host that is allowed, and the model that obeys."""

import html
import json
import os
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# Not 127.0.0.1, which a cell has of its own. The attacker is at the same address as the allowed host, at another port.
HOST = "127.0.0.2"
# Calls in one answer; the client takes 64.
BATCH = 40


class Listeners:
    """Of the attacker TCP, UDP and an abstract socket; of the user's other programs a socket and a FIFO."""

    def __init__(self, folder: Path):
        folder.mkdir()
        self.heard, self.connections = bytearray(), 0
        path, fifo, abstract = folder / "agent.sock", folder / "fifo", f"injections-{os.getpid()}-{folder.name}"
        port = self.listen(socket.AF_INET, (HOST, 0))[1]
        self.names = {"host": HOST, "port": port, "attacker": f"{HOST}:{port}", "abstract": abstract, "socket": path, "fifo": fifo,
                      "port6": self.listen(socket.AF_INET6, ("::1", 0))[1], "local": self.listen(socket.AF_INET, ("127.0.0.1", 0))[1],
                      "mail": self.listen(socket.AF_INET, (HOST, 0), b"220 ready\r\n")[1]}
        self.listen(socket.AF_UNIX, f"\0{abstract}")
        self.listen(socket.AF_UNIX, str(path))
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind((HOST, port))
        os.mkfifo(fifo)
        opened = os.open(fifo, os.O_RDWR)
        for own in (path, fifo):
            own.chmod(0o666)
        start(self.hear, lambda: datagrams.recv(65536))
        start(self.hear, lambda: os.read(opened, 65536))

    def listen(self, family: int, address, greeting: bytes = b""):
        listener = socket.socket(family)
        listener.bind(address)
        listener.listen()

        def take() -> bytes:
            stream = listener.accept()[0]
            self.connections += 1
            with stream, suppress(OSError):
                stream.settimeout(3)
                stream.sendall(greeting)
                heard = stream.recv(65536)
                stream.sendall(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return heard
            return b""
        start(self.hear, take)
        return listener.getsockname()

    def hear(self, take) -> None:
        while True:
            self.heard += take()


def start(work, *given) -> None:
    threading.Thread(target=work, args=given, daemon=True).start()


class Page(ThreadingHTTPServer):
    """The host that policy allows: pages with a stranger's text in them, and an open redirector."""

    def __init__(self):
        super().__init__((HOST, 0), Handler)
        self.pages, self.heard, self.host = {}, bytearray(), f"{HOST}:{self.server_port}"
        start(self.serve_forever)


class Model(ThreadingHTTPServer):
    """Makes the call that it was asked for, takes any goal in its result for an order, and makes the calls that carry it out."""

    def __init__(self, goals: list, first: tuple, orders: list):
        super().__init__(("127.0.0.1", 0), Handler)
        self.goals, self.first, self.orders, self.goal, self.body = goals, first, orders, None, {"messages": []}
        start(self.serve_forever)

    def next(self, body: dict) -> list[tuple]:
        """The calls of the next answer: each with an id, a name and an input."""
        self.body = body
        results = self.results()
        if not results:
            return [self.first]
        text = " ".join(html.unescape(results[self.first[0]]).split())
        self.goal = max((goal for goal in self.goals if " ".join(goal.split()) in text), key=len, default=None)
        return [order for order in self.orders if order[0] not in results][:BATCH] if self.goal else []

    def results(self) -> dict:
        """What calls have come to, by their ids."""
        blocks = [block for message in self.body["messages"] for block in message["content"] if isinstance(message["content"], list)]
        return {block["tool_use_id"]: "".join(part.get("text", "") for part in block["content"])
                for block in blocks if block["type"] == "tool_result"}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.heard += self.path.encode()
        if self.path.startswith("/to/"):
            return self.answer(302, "text/plain", "", Location=self.path.removeprefix("/to/"))
        self.answer(200, "text/html", f"<html><p>{html.escape(self.server.pages.get(self.path, 'ok'))}</p></html>")

    def do_POST(self):
        """A model on the wire of Claude."""
        calls = self.server.next(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        blocks = [({"type": "tool_use", "id": call, "name": name, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(given)})
                  for call, name, given in calls] or [({"type": "text", "text": ""}, {"type": "text_delta", "text": "That is done."})]
        events = [{"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}}]
        for index, (block, delta) in enumerate(blocks):
            events += [{"type": "content_block_start", "index": index, "content_block": block},
                       {"type": "content_block_delta", "index": index, "delta": delta}, {"type": "content_block_stop", "index": index}]
        events += [{"type": "message_delta", "delta": {"stop_reason": "tool_use" if calls else "end_turn"}, "usage": {"output_tokens": 1}},
                   {"type": "message_stop"}]
        self.answer(200, "text/event-stream", "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events))

    def answer(self, status: int, kind: str, text: str, **more):
        self.send_response(status)
        for name, value in {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": len(text.encode()), **more}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(text.encode())
