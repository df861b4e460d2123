"""What `gh` asks of GitHub's interfaces, and an echo of paths for other clients: for whoever has the token."""

import http.server
import json
import sys

PORT, TOKEN = sys.argv[1:]
PULLS = {"totalCount": 1, "nodes": [{
    "number": 7, "title": "A change", "state": "OPEN", "url": "https://github.com/o/r/pull/7", "headRefName": "own", "isDraft": False,
    "headRepositoryOwner": {"id": "1", "login": "o"}, "isCrossRepository": False, "createdAt": "2026-01-01T00:00:00Z",
}], "pageInfo": {"hasNextPage": False, "endCursor": ""}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") not in (f"token {TOKEN}", f"Bearer {TOKEN}"):
            return self.send(401, {"message": "Bad credentials"})
        if self.path == "/graphql":
            query = json.loads(body)["query"]
            if "pullRequests" in query:
                return self.send(200, {"data": {"repository": {"pullRequests": PULLS}}})
            return self.send(200, {"data": {"viewer": {"login": "me"}}})
        self.send(200, {"login": "me", "path": self.path, "did": f"{self.command} {self.path}"})

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def send(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(PORT)), Handler).serve_forever()
