#!/usr/bin/python3
# Goal:    reach a loopback service through the proxy the sandbox offers (or directly where there is none)
# Models:  CONNECT / SOCKS proxy used as a relay to localhost
# Oracle:  hit tcp4
# Tier:    core
# Needs:   -
from ctk import *
import re

port = int(C["TCP4"])
tried = []
for k in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
    m = re.match(r"(?:(\w+)://)?(?:([^@]*)@)?([^:/]+):(\d+)", os.environ.get(k, ""))
    if not m or m.group(3) not in ("127.0.0.1", "localhost", "::1"):
        continue
    for target in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433"):
        try:
            s = socket.create_connection((m.group(3), int(m.group(4))), 3)
            s.settimeout(3)
            if (m.group(1) or "http").startswith("socks"):
                s.sendall(b"\x05\x01\x00")
                s.recv(2)
                h = target.strip("[]").encode()
                s.sendall(b"\x05\x01\x00\x03" + bytes([len(h)]) + h + struct.pack(">H", port))
                r = s.recv(100)
                good = len(r) > 1 and r[1] == 0
            else:
                import base64

                au = (
                    "Proxy-Authorization: Basic %s\r\n" % base64.b64encode(m.group(2).encode()).decode()
                    if m.group(2)
                    else ""
                )
                s.sendall(
                    ("CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n%s\r\n" % (target, port, target, port, au)).encode()
                )
                r = s.recv(400)
                good = b" 200" in r.split(b"\r\n")[0]
            tried.append("%s->%s:%s" % (k, target, r[:20]))
            if good:
                s.sendall(msg())
                a = s.recv(100)
                if b"HELLO" in a:
                    escaped("%s relayed to %s" % (k, target))
        except OSError as e:
            tried.append(str(e))
if tried:
    contained("; ".join(tried[:4]))
escaped("no proxy; direct answer " + tcp("127.0.0.1", port).strip())
