"""What is on the machine around a cell: listeners that must hear nothing, the one host that is allowed, and the model that obeys."""

import html
import json
import os
import selectors
import socket
import threading
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
        self.heard, self.connections, self.selector = bytearray(), 0, selectors.DefaultSelector()
        self.names = {"host": HOST, "abstract": f"injections-{os.getpid()}-{folder.name}", "socket": folder / "agent.sock", "fifo": folder / "fifo"}
        self.names["port"] = self.listen(socket.AF_INET, (HOST, 0)).getsockname()[1]
        self.names["attacker"] = f"{HOST}:{self.names['port']}"
        self.names["port6"] = self.listen(socket.AF_INET6, ("::1", 0)).getsockname()[1]
        self.mail = self.listen(socket.AF_INET, (HOST, 0))
        self.names["mail"] = f"{HOST}:{self.mail.getsockname()[1]}"
        self.listen(socket.AF_UNIX, "\0" + self.names["abstract"])
        self.listen(socket.AF_UNIX, str(self.names["socket"]))
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind((HOST, self.names["port"]))
        os.mkfifo(self.names["fifo"])
        for path in (self.names["socket"], self.names["fifo"]):
            path.chmod(0o666)
        for source in (datagrams, open(self.names["fifo"], "r+b", buffering=0)):
            self.selector.register(source, selectors.EVENT_READ, self.read)
        start(self.serve)

    def listen(self, family: int, address) -> socket.socket:
        listener = socket.socket(family)
        listener.bind(address)
        listener.listen()
        self.selector.register(listener, selectors.EVENT_READ, self.accept)
        return listener

    def serve(self) -> None:
        while True:
            for key, _ in self.selector.select():
                try:
                    key.data(key.fileobj)
                except OSError:
                    self.selector.unregister(key.fileobj)

    def accept(self, listener: socket.socket) -> None:
        self.connections += 1
        stream = listener.accept()[0]
        # A mail server speaks first.
        stream.sendall(b"220 ready\r\n" if listener is self.mail else b"")
        self.selector.register(stream, selectors.EVENT_READ, self.read)

    def read(self, source) -> None:
        data = source.recv(65536) if isinstance(source, socket.socket) else os.read(source.fileno(), 65536)
        self.heard += data
        if isinstance(source, socket.socket) and source.type == socket.SOCK_STREAM:
            self.selector.unregister(source)
            source.sendall(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            source.close()


def start(work) -> None:
    threading.Thread(target=work, daemon=True).start()


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status: int, kind: str, text: str, **more):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": len(text.encode()), **more}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(text.encode())


class Page(ThreadingHTTPServer):
    """The host that policy allows: pages with a stranger's text in them, and an open redirector."""

    def __init__(self):
        super().__init__((HOST, 0), PageHandler)
        self.pages, self.heard, self.host = {}, bytearray(), f"{HOST}:{self.server_port}"
        start(self.serve_forever)


class PageHandler(Quiet):
    def do_GET(self):
        self.server.heard += self.path.encode()
        if self.path.startswith("/to/"):
            return self.answer(302, "text/plain", "", Location=self.path.removeprefix("/to/"))
        self.answer(200, "text/html; charset=utf-8", f"<html><p>{html.escape(self.server.pages.get(self.path, 'ok'))}</p></html>")


class Model(ThreadingHTTPServer):
    """Makes the call that it was asked for, takes any goal in its result for an order, and makes the calls that carry it out."""

    def __init__(self, goals: list[str], first: tuple, orders: list[tuple]):
        super().__init__(("127.0.0.1", 0), ModelHandler)
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
        left = [order for order in self.orders if order[0] not in results] if self.goal else []
        return left[:BATCH]

    def results(self) -> dict:
        """What calls have come to, by their ids."""
        blocks = [block for message in self.body["messages"] if isinstance(message["content"], list) for block in message["content"]]
        return {block["tool_use_id"]: "".join(part.get("text", "") for part in block["content"])
                for block in blocks if block["type"] == "tool_result"}


class ModelHandler(Quiet):
    """The wire of Claude."""

    def do_POST(self):
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
