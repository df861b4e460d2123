"""Drives `lazaret serve` with the library `websockets`: approvals, cancel, coming back. Prints a line for each that works.

pip install websockets; python3 sidecar_client.py PATH/TO/lazaret
"""
import asyncio
import json
import pathlib
import subprocess
import sys
import tempfile

import websockets

LIMIT = 60


def bash(command):
    return {"toolCalls": [{"name": "bash", "input": {"command": command}}]}


SCRIPT = {"turns": [
    bash("touch approved"), {"text": "Done."},
    bash("touch denied"), {"text": "Done."},
    bash("sleep 300"), {"text": "Never."},
    bash("while [ ! -e go ]; do sleep 0.05; done"), {"text": "Back."},
]}


class Client:
    def __init__(self, ready):
        self.url, self.head = ready["ws"], {"Authorization": "Bearer " + ready["token"]}

    async def __aenter__(self):
        self.socket = await websockets.connect(self.url, additional_headers=self.head)
        assert (await self.next())["type"] == "server:hello"
        return self

    async def __aexit__(self, *_):
        await self.socket.close()

    async def next(self):
        return json.loads(await asyncio.wait_for(self.socket.recv(), LIMIT))

    async def say(self, kind, **payload):
        await self.socket.send(json.dumps({"type": kind, "payload": payload}))

    async def until(self, kind):
        while (message := await self.next())["type"] != kind:
            pass
        return message


async def drive(ready, project):
    async with Client(ready) as client:
        for approved, name in [(True, "approved"), (False, "denied")]:
            await client.say("chat:send", conversationId="c", content="x")
            confirm = await client.until("chat:tool-confirm")
            assert not (project / name).exists()
            await client.say("chat:tool-approve", toolId=confirm["payload"]["toolId"], approved=approved)
            await client.until("chat:stream-end")
            assert (project / name).exists() == approved
        print("approvals: ok")
        await client.say("chat:send", conversationId="c", content="x", trust="autonomous")
        await client.until("chat:tool-start")
        await client.say("chat:cancel", conversationId="c")
        end = await client.until("chat:stream-end")
        assert end["payload"]["reason"] == "cancelled" and end["payload"]["partial"]
        print("cancel: ok")
        history = [{"role": "user", "content": "x"}] + [{"role": "assistant", "content": "x"}] * 6
        await client.say("chat:send", conversationId="d", content="x", trust="autonomous", history=history)
        last = (await client.until("chat:tool-start"))["sequence"]
    async with Client(ready) as client:
        await client.say("chat:resume", conversationId="d", after=last)
        assert (await client.until("chat:resumed"))["payload"]["running"]
        (project / "go").touch()
        text = await client.until("chat:text-delta")
        assert text["payload"]["content"] == "Back."
        await client.until("chat:stream-end")
        print("coming back: ok")


def main():
    with tempfile.TemporaryDirectory() as folder:
        project, script = pathlib.Path(folder) / "project", pathlib.Path(folder) / "script.json"
        project.mkdir()
        script.write_text(json.dumps(SCRIPT))
        command = [sys.argv[1], "serve", "--project", project, "--listen", "127.0.0.1:0",
                   "--provider", "mock", "--script", script]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            asyncio.run(drive(json.loads(server.stdout.readline()), project))
        finally:
            server.stdin.close()
            assert server.wait(LIMIT) == 0


main()
