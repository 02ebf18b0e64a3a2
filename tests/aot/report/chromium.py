"""A headless Chromium, driven by the DevTools protocol over a pipe: what it shows, what clicks do, what goes wrong."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.aot.report.install_chromium import PROGRAM

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--no-zygote",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for place, end in zip((3, 4), ends):  # The browser reads from descriptor 3 and writes to 4.
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
_LONGEST = 60.0
"""Seconds after which the browser is taken to hang."""


def find_chromium() -> str | None:
    """KBUILD_CHROMIUM, the one that `install_chromium.py` installs, or one on PATH."""
    if path := os.environ.get("KBUILD_CHROMIUM"):
        return path
    if PROGRAM.is_file():
        return str(PROGRAM)
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class ChromiumError(Exception):
    """The browser, or the page in it, has failed."""


class Page:
    """A page of a browser."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []
        """Exceptions, and what the page or the browser complained of."""
        self.requests: list[str] = []
        """Addresses that it asked for."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Performance"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one call of the protocol."""
        self._number += 1
        number = self._number
        call: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            call["sessionId"] = self._session
        os.write(self._to, json.dumps(call).encode() + b"\0")
        while True:
            message = self._receive()
            if message.get("id") == number:
                if "error" in message:
                    raise ChromiumError(f"{method}: {message['error']['message']}")
                return message["result"]
            self._note(message)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], _LONGEST)[0]:
                raise ChromiumError("the browser does not answer")
            data = os.read(self._from, 1 << 20)
            if not data:
                raise ChromiumError("the browser has ended")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                self.errors.append(str(details.get("exception", {}).get("description", details["text"])))
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.errors.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])

    def open(self, file: Path, hash: str = "") -> None:
        """Loads a file, and waits until the page has drawn itself."""
        self.send("Page.navigate", url=f"{file.resolve().as_uri()}{hash}")
        self.wait("document.readyState === 'complete' && document.querySelector('main')?.dataset.view")

    def go(self, hash: str) -> None:
        """Goes to another view of the page."""
        self.run(f"location.hash = {json.dumps(hash)}")
        self.run("new Promise((done) => setTimeout(done, 0))")

    def run(self, script: str) -> Any:
        """The value of an expression."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise ChromiumError(str(details.get("exception", {}).get("description", details["text"])))
        return found["result"].get("value")

    def wait(self, script: str) -> None:
        """Waits until an expression is true."""
        deadline = time.monotonic() + _LONGEST
        while time.monotonic() < deadline:
            if self.run(f"Boolean({script})"):
                return
            time.sleep(0.02)
        raise ChromiumError(f"never true: {script}")

    def text(self, selector: str) -> str:
        """The text of the first element that a selector means."""
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def texts(self, selector: str) -> list[str]:
        """The texts of all of them."""
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)")

    def contents(self, selector: str) -> list[str]:
        """The same, also of elements that are out of sight, which browsers do not lay out."""
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")

    def point(self, selector: str, click: bool = False) -> None:
        """Moves the mouse to the middle of an element, and clicks there if asked to."""
        left, top, width, height = self.box(selector)
        x, y = left + width / 2, top + height / 2
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element, which is scrolled into view."""
        script = f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{ block: "nearest", behavior: "instant" }});
            const box = element.getBoundingClientRect();
            return [box.left, box.top, box.width, box.height];
        }})()"""
        left, top, width, height = self.run(script)
        return left, top, width, height

    def choose(self, selector: str, value: str) -> None:
        """Chooses an option of a select."""
        self.run(
            f"""(() => {{
                const select = document.querySelector({json.dumps(selector)});
                select.value = {json.dumps(value)};
                select.dispatchEvent(new Event("change"));
            }})()"""
        )

    def click(self, selector: str) -> None:
        self.point(selector, click=True)

    def type(self, text: str) -> None:
        """Types text where the focus is."""
        self.send("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Presses a key, such as `Enter` or `ArrowDown`."""
        codes = {"Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "Tab": 9, "Escape": 27}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
                **(text if kind == "keyDown" else {}),
            )

    def resize(self, width: int, height: int, scale: float = 1.0) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """`light` or `dark`, as the system of a reader prefers it."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, file: Path | None = None) -> bytes:
        """The picture of what is seen, as PNG."""
        data = base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])
        if file is not None:
            file.write_bytes(data)
        return data

    def colours(self) -> int:
        """How many different colours are seen."""
        picture = base64.b64encode(self.screenshot()).decode()
        return self.run(
            f"""(async () => {{
                const bytes = Uint8Array.from(atob("{picture}"), (char) => char.charCodeAt(0));
                const bitmap = await createImageBitmap(new Blob([bytes], {{ type: "image/png" }}));
                const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
                const pen = canvas.getContext("2d");
                pen.drawImage(bitmap, 0, 0);
                const {{ data }} = pen.getImageData(0, 0, bitmap.width, bitmap.height);
                return new Set(new Uint32Array(data.buffer)).size;
            }})()"""
        )

    def metrics(self) -> dict[str, float]:
        """What the page has cost: `TaskDuration` in seconds, `Nodes`, `JSHeapUsedSize` in bytes, and more."""
        return {one["name"]: one["value"] for one in self.send("Performance.getMetrics")["metrics"]}


@contextmanager
def opened(program: str) -> Iterator[Page]:
    """A page of a browser that ends with the context."""
    libraries = Path(program).with_name("lib")
    environment = dict(os.environ)
    if libraries.is_dir():
        environment["LD_LIBRARY_PATH"] = str(libraries)
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        environment["HOME"] = profile
        words = [sys.executable, "-S", "-c", _START, str(commands), str(answers), program, *_FLAGS]
        process = subprocess.Popen(
            [*words, f"--user-data-dir={profile}", "about:blank"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(commands, answers),
        )
        os.close(commands)
        os.close(answers)
        try:
            yield Page(to_browser, from_browser)
        finally:
            process.kill()
            process.wait()
            os.close(to_browser)
            os.close(from_browser)
