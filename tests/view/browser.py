"""A real browser without a window, spoken to over two pipes in the DevTools protocol.

It is started so that it asks nothing of the network, and reads only the page that it is shown.
"""

import base64
import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

CANDIDATES = ("chromium", "google-chrome")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
DRAWN = """new Promise((done, fail) => {
  const give_up = setTimeout(() => fail(new Error("the page has not drawn itself")), 20000);
  const look = () => {
    if (document.documentElement?.dataset.drawn === undefined) return void setTimeout(look, 20);
    clearTimeout(give_up);
    requestAnimationFrame(() => requestAnimationFrame(() => done(true)));
  };
  look();
})"""


def find_browser() -> str | None:
    """Return the browser of this machine, if it has one."""
    return next((path for name in CANDIDATES if (path := shutil.which(name))), None)


@contextmanager
def started(program: str, profile: Path) -> "Iterator[Browser]":
    """Start a browser and end it."""
    to_read, to_write = os.pipe(), os.pipe()
    process = subprocess.Popen(
        # The protocol wants descriptors 3 and 4.
        ["/bin/bash", "-c", f'exec "$@" 3<&{to_read[0]} 4>&{to_write[1]}', "bash", program, *QUIET,
         f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(to_read[0], to_write[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_read[0])
    os.close(to_write[1])
    with open(to_read[1], "wb", buffering=0) as commands, open(to_write[0], "rb") as answers:
        try:
            yield Browser(commands, answers)
        finally:
            process.terminate()
            process.wait(timeout=30)


class Browser:
    """One tab."""

    def __init__(self, commands: Any, answers: Any) -> None:
        self._commands, self._answers = commands, answers
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        """What the console had to say beyond information, uncaught exceptions and refused requests."""
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, page: Path | str, *, width: int, dark: bool = False) -> None:
        """Show a page, a file's or one at an address, and wait until it has drawn itself."""
        self.complaints, self.requests = [], []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.prefer("dark" if dark else "light")
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        self.value(DRAWN)

    def prefer(self, scheme: str) -> None:
        """Let the reader's system be light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def value(self, expression: str) -> Any:
        """Return what a JavaScript expression, or its promise, amounts to."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, path: Path) -> None:
        """Write the whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events on the way are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._keep(answer)

    def _read(self) -> dict[str, Any]:
        data = bytearray()
        while not data.endswith(b"\0"):
            byte = self._answers.read(1)
            assert byte, "the browser is gone"
            data += byte
        return json.loads(data[:-1])

    def _keep(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        method = event.get("method")
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(json.dumps(parameters["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
