"""Headless Chromium, driven over the DevTools protocol by a pair of pipes: no package and no port is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

LIMIT_S = 60
NAMES = ("chromium", "chromium-browser", "google-chrome")


class Failure(Exception):
    """What was expected did not happen."""


def until(what: str, condition, limit_s: float = LIMIT_S):
    """Waits for what has to come; its value."""
    end = time.monotonic() + limit_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise Failure(f"did not happen within {limit_s} s: {what}")
        time.sleep(0.03)
    return value


class Browser:
    def __init__(self) -> None:
        program = next((path for name in NAMES if (path := shutil.which(name))), None)
        if program is None:
            raise SystemExit("no Chromium: apt install chromium")
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        down_read, self.down = os.pipe()
        self.up, up_write = os.pipe()
        arguments = [
            program, "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={self.profile.name}", "--disable-background-networking", "--disable-component-update",
            # Names that an attacker owns lead to this machine, as after DNS rebinding.
            "--host-resolver-rules=MAP *.test 127.0.0.1",
        ]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")

        # The browser reads descriptor 3 and writes descriptor 4. Copies far above first, so that neither overwrites the other.
        def place() -> None:
            high = [os.dup2(fd, number) for fd, number in ((down_read, 203), (up_write, 204))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [*arguments, "about:blank"], preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(down_read)
        os.close(up_write)
        self.number, self.buffer, self.events = 0, b"", []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()
        self.profile.cleanup()

    def call(self, method: str, session: str | None = None, **parameters: object) -> dict:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.down, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise Failure(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _read(self) -> dict:
        while b"\0" not in self.buffer:
            piece = os.read(self.up, 1 << 16)
            if not piece:
                raise Failure("the browser has ended")
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def tab(self, url: str = "about:blank") -> Tab:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            tab.call(f"{domain}.enable")
        tab.go(url)
        return tab


class Tab:
    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self.browser, self.session, self.target = browser, session, target

    def call(self, method: str, **parameters: object) -> dict:
        return self.browser.call(method, self.session, **parameters)

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        until(f"{url} is loaded", lambda: self.run("document.readyState") == "complete")

    def run(self, expression: str) -> object:
        """The value of an expression, awaited where it is a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise Failure(f"{expression}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def wait(self, expression: str) -> object:
        return until(expression, lambda: self.run(expression))

    def text(self, selector: str) -> str:
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent).join('\\n')")

    def write(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def key(self, name: str, shift: bool = False) -> None:
        codes = {"Enter": (13, "\r"), "Tab": (9, "\t"), "Escape": (27, ""), " ": (32, " ")}
        code, text = codes[name]
        common = {"key": name, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def look(self, path: Path, width: int, height: int, dark: bool) -> None:
        """Takes a picture in this size and colour scheme."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        time.sleep(0.3)
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=width < 500)
        path.write_bytes(base64.b64decode(picture["data"]))

    def accessible(self) -> list[tuple[str, str]]:
        """Role and name of everything that a screen reader is told of."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        known = [node for node in nodes if not node.get("ignored")]
        return [(node.get("role", {}).get("value", ""), node.get("name", {}).get("value", "")) for node in known]

    def complaints(self) -> list[str]:
        """What the browser has reported of this tab: exceptions, and what the page's policy has refused."""
        mine = [event for event in self.browser.events if event.get("sessionId") == self.session]
        found = []
        for event in mine:
            if event.get("method") == "Runtime.exceptionThrown":
                details = event["params"]["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                found.append(event["params"]["entry"]["text"])
        return found
