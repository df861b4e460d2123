"""The official client for Python lists the tools of `lazaret mcp` and calls one: prints what it was told."""

import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(lazaret: str, project: str, command: str) -> None:
    server = StdioServerParameters(command=lazaret, args=["mcp", "--project", project])
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        print(*sorted(tool.name for tool in (await session.list_tools()).tools))
        print((await session.call_tool("bash", {"command": command})).content[0].text)


asyncio.run(main(*sys.argv[1:]))
