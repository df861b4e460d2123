"""TLS in front of servers without it, and a company's proxy that leads names to them: bytes pass as they are.

Standard input says it in JSON: for each name and port the port of a server, and what TLS offers (none for no TLS). Standard output says
the proxy's port. The certificate is in the current directory.
"""

import asyncio
import json
import ssl
import sys


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()
    except (OSError, ssl.SSLError):
        writer.close()


async def join(client, port):
    reader, writer = client
    try:
        host = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return writer.close()
    await asyncio.gather(pump(reader, host[1]), pump(host[0], writer))
    host[1].close()
    writer.close()


async def front(backend, alpn):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("host.pem", "host.key")
    context.set_alpn_protocols(alpn)
    server = await asyncio.start_server(lambda r, w: join((r, w), backend), "127.0.0.1", 0, ssl=context)
    return server.sockets[0].getsockname()[1]


async def main():
    ports = {}
    for place, (backend, alpn) in json.load(sys.stdin).items():
        ports[place] = await front(backend, alpn) if alpn else backend

    async def proxy(reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, OSError):
            return writer.close()
        place = head.split()[1]
        if place not in ports:
            writer.write(b"HTTP/1.1 403 Not here\r\n\r\n")
            return writer.close()
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await join((reader, writer), ports[place])

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
