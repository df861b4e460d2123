#!/usr/bin/python3
# Goal:    share the port of a host service (SO_REUSEPORT, same uid) and receive its clients' data
# Models:  local port hijack
# Oracle:  token HIJACK
# Tier:    core
# Needs:   -
# Fixture: callback-reuse
from ctk import *

s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(("127.0.0.1", int(C["TCPRE"])))
s.listen(20)
s.settimeout(5)
try:
    c, _ = s.accept()
except socket.timeout:
    contained("listening, nobody came")
c.settimeout(2)
got(c.recv(200).decode(), "hijacked client")
