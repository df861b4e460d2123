"""What a page of another site tries against the sidecar, and against a server that checks nothing: the control.

Each attack is tried without the token and, as if it had leaked, with it. It has worked when a run was begun, or the page has read an
answer. Against the control each has to work, or its failure against the sidecar says nothing.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import threading
import time

from browser import Browser, Failure
from sidecar import Sidecar

EVIL = "evil.test"
REBOUND = "rebound.test"

SOCKET = """new Promise((done) => {
  const socket = new WebSocket(URL, PROTOCOLS);
  socket.onopen = () => { socket.send(MESSAGE); done("GOT a WebSocket"); };
  socket.onerror = () => done("refused");
})"""

FETCH = """fetch(URL, OPTIONS).then((answer) => answer.text().then((text) =>
  answer.ok ? "GOT " + text.slice(0, 40) : "refused: " + answer.status), (error) => "refused: " + error.message)"""

FORM = """(() => {
  const form = document.createElement("form");
  Object.assign(form, { method: "post", action: URL, enctype: "text/plain" });
  const field = document.createElement("input");
  // What a form of plain text sends is `name=value`: together they are JSON.
  Object.assign(field, { name: NAME, value: VALUE });
  form.append(field);
  document.body.append(form);
  form.submit();
})()"""

FRAME = """(() => {
  const frame = document.createElement("iframe");
  frame.src = URL;
  document.body.append(frame);
})()"""

SCRIPT = """new Promise((done) => {
  const script = document.createElement("script");
  script.src = URL;
  script.onload = () => done("GOT a script");
  script.onerror = () => done("refused");
  document.head.append(script);
})"""


class Careless(http.server.BaseHTTPRequestHandler):
    """Answers everybody, and remembers who has begun something. It is the page of the attacker too."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        key = self.headers.get("Sec-WebSocket-Key")
        if key:
            digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
            offered = self.headers.get("Sec-WebSocket-Protocol")
            if offered:
                self.send_header("Sec-WebSocket-Protocol", offered.split(",")[0].strip())
            self.end_headers()
            if self.rfile.read(2):
                self.server.begun.append("websocket")
            self.close_connection = True
        elif self.path.endswith(".js"):
            self._answer("text/javascript", "0;")
        else:
            self._answer("text/html", "<!doctype html><title>open</title><body>")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.begun.append("post")
        self._answer("text/html", "<title>begun</title>")

    def _answer(self, kind: str, text: str) -> None:
        self.send_response(200)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(text)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())


def careless() -> http.server.ThreadingHTTPServer:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Careless)
    server.begun = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def filled(script: str, **values: object) -> str:
    for name, value in values.items():
        script = script.replace(name, json.dumps(value))
    return script


class Attacker:
    """A browser that shows the attacker's page, and one target."""

    def __init__(self, browser: Browser, home_port: int, port: int, token: str | None) -> None:
        self.browser, self.home, self.port, self.token = browser, f"http://{EVIL}:{home_port}/", port, token

    def _url(self, path: str, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def _options(self, mode: str | None = None) -> dict:
        options = {"mode": mode} if mode else {}
        if self.token and mode is None:
            options["headers"] = {"Authorization": f"Bearer {self.token}"}
        return options

    def cross_site_websocket(self) -> str:
        protocols = ["lazaret.v1", *([f"lazaret.token.{self.token}"] if self.token else [])]
        message = json.dumps({"type": "chat:send", "payload": {"content": "x"}})
        url = self._url("/ws", "ws")
        return self.browser.tab(self.home).run(filled(SOCKET, URL=url, PROTOCOLS=protocols, MESSAGE=message))

    def dns_rebinding(self) -> str:
        """The name led to the attacker's page at first, and leads here now: for the browser it is one site."""
        tab = self.browser.tab(f"http://{REBOUND}:{self.port}/")
        if tab.run("document.title") == "Lazaret":
            return "GOT the page"
        return tab.run(filled(FETCH, URL="/health", OPTIONS=self._options()))

    def form_post(self) -> str:
        name, value = '{"prompt":"x","systemPrompt":"', '"}'
        tab = self.browser.tab(self.home)
        tab.run(filled(FORM, URL=self._url("/run"), NAME=name, VALUE=value))
        time.sleep(1.5)
        return "GOT a run" if tab.run("document.title") == "begun" else f"refused: {tab.run('document.body.innerText')[:60]}"

    def frame(self) -> str:
        """The page in a frame, over which the attacker lays what the user is to click."""
        self.browser.tab(self.home).run(filled(FRAME, URL=self._url("/")))
        time.sleep(1)
        for target in self.browser.call("Target.getTargets")["targetInfos"]:
            if target["type"] == "iframe" and str(self.port) in target["url"]:
                session = self.browser.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
                script = {"expression": "document.title", "returnByValue": True}
                title = self.browser.call("Runtime.evaluate", session, **script)["result"].get("value")
                if title in ("Lazaret", "open"):
                    return f"GOT the page in a frame: {title}"
        return "refused"

    def script_element(self) -> str:
        return self.browser.tab(self.home).run(filled(SCRIPT, URL=self._url("/console.js")))

    def request_of_a_page(self) -> str:
        """A page may send what is simple to anyone; it must neither read the answer nor begin anything."""
        options = {**self._options("no-cors"), "method": "POST", "body": '{"prompt":"x"}'}
        return self.browser.tab(self.home).run(filled(FETCH, URL=self._url("/run"), OPTIONS=options))


def begun(sidecar: Sidecar) -> bool:
    return json.loads(sidecar.get("/conversations")[1])["conversations"] != [] or (sidecar.project / "taken").exists()


def run(browser: Browser, sidecar: Sidecar) -> None:
    """Tries every attack; each has to work against the control, and to fail against the sidecar."""
    control = careless()
    home = control.server_address[1]
    # Another site than the attacker's, as the sidecar is.
    target = careless()
    attacks = [name for name in vars(Attacker) if not name.startswith("_")]
    for name in attacks:
        target.begun.clear()
        seen = getattr(Attacker(browser, home, target.server_address[1], None), name)()
        time.sleep(0.2)
        if not seen.startswith("GOT") and not target.begun:
            raise Failure(f"{name}: does not even work against the control: {seen}")
        for token in (None, sidecar.token):
            seen = getattr(Attacker(browser, home, sidecar.port, token), name)()
            if seen.startswith("GOT") or begun(sidecar):
                raise Failure(f"{name}: {seen}")
            print(f"  {name} {'with' if token else 'without'} the token: {seen}")
    for server in (control, target):
        server.shutdown()
