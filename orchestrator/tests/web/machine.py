"""A machine of its own for a test of the web tools: a network with nothing in it but a name server that changes its
answers and a few web servers. Runs in new user, mount and network namespaces: `unshare -rnm python3 machine.py …`.

Prints one JSON object: what a careless client got, and what lazaret said.
"""

import fcntl, http.server, json, os, socket, ssl, struct, subprocess, sys, tempfile, threading, urllib.request

LAZARET, CERTIFICATES, SOCKET = sys.argv[1:]
FIRST, SECOND = "127.0.0.1", "127.0.0.2"
# Of the account that is mapped here. A variable could name no place in its stead: to an ordinary user's namespace, all directories above
# one belong to nobody, and Lazaret believes no variable there.
HOME = "/root"


def loopback_up():
    """SIOCSIFFLAGS with IFF_UP; `ip` is not on every machine."""
    with socket.socket() as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sh22x", b"lo", 1))


class Names(threading.Thread):
    """A name server: each question for an address gets the next answer, the last one stays."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        self.tell([FIRST])

    def tell(self, answers):
        self.answers, self.asked = list(answers), 0

    def run(self):
        while True:
            query, peer = self.socket.recvfrom(512)
            end = query.index(b"\0", 12) + 5
            (kind,) = struct.unpack("!H", query[end - 4 : end - 2])
            answer = b""
            if kind == 1:
                address = self.answers[min(self.asked, len(self.answers) - 1)]
                self.asked += 1
                answer = struct.pack("!HHHIH", 0xC00C, 1, 1, 0, 4) + socket.inet_aton(address)
            head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, int(bool(answer)), 0, 0)
            self.socket.sendto(head + query[12:end] + answer, peer)


def serve(address, port, text, certificate=None):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer((address, port), Page)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def careless(url):
    """Checks what a name means, then fetches by the name."""
    checked = {entry[4][0] for entry in socket.getaddrinfo("rebind.example", 8080)}
    assert checked == {FIRST}, checked
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url).read().decode()


def lazaret(url, **more):
    environment = {"PATH": os.environ["PATH"], "HOME": HOME, **more}
    command = [LAZARET, "--socket", SOCKET, "call", "web_fetch", json.dumps({"url": url, "timeout": 20}), "--profile", "test"]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return {"code": done.returncode, "out": done.stdout.strip(), "said": done.stderr.strip()}


def main():
    os.umask(0o022)
    loopback_up()
    folder = tempfile.mkdtemp()
    resolver = os.path.join(folder, "resolv.conf")
    with open(resolver, "w") as file:
        file.write("nameserver 127.0.0.1\noptions timeout:2 attempts:1\n")
    subprocess.run(["mount", "--bind", resolver, os.path.realpath("/etc/resolv.conf")], check=True)
    os.makedirs(os.path.join(folder, ".config/lazaret"))
    "a".encode("idna")  # Loaded when first used, and this Python may lie below the home that is covered next.
    subprocess.run(["mount", "--bind", folder, HOME], check=True)
    with open(os.path.join(HOME, ".config/lazaret/policy.toml"), "w") as file:
        file.write('version = 1\n[profile.test.web]\nprivate = ["127.0.0.1/32"]\n')
    names = Names()
    names.start()
    serve(FIRST, 8080, "honest")
    serve(SECOND, 8080, "SECRET")
    serve(FIRST, 8443, "over TLS", os.path.join(CERTIFICATES, "server.pem"))
    rebind, found = "http://rebind.example:8080/", {}

    names.tell([FIRST, SECOND])
    found["careless"] = careless(rebind)
    names.tell([FIRST, SECOND])
    found["pinned"] = {**lazaret(rebind), "asked": names.asked}
    names.tell([SECOND])
    found["refused"] = lazaret(rebind)
    names.tell([FIRST])
    trusted = {"SSL_CERT_FILE": os.path.join(CERTIFICATES, "authority.pem")}
    found["tls"] = lazaret("https://box.example:8443/", **trusted)
    found["stranger"] = lazaret("https://box.example:8443/")
    found["other name"] = lazaret("https://fox.example:8443/", **trusted)
    print(json.dumps(found))


main()
