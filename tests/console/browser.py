"""A real browser, on machines that have one, told what to do over its DevTools."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

START_S = 30.0
WAIT_S = 30.0
MESSAGE_BYTES_MAX = 64 * 1024 * 1024

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--window-size=1200,900",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
# The page looks by itself: a look from outside would be a round trip each time.
_UNTIL = "new Promise(done => (function look() {{ ({wanted}) ? done() : setTimeout(look, 20) }})())"


class Page:
    """A tab. `faults` is what its browser complained of: errors, and what the policy kept out."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, folder: Path) -> None:
        self.faults: list[str] = []
        self._folder = folder
        self._names: dict[str, str] = {}
        self._saved: list[str] = []
        self._socket = socket
        self._session: str | None = None
        self._numbers = count(1)

    async def attach(self) -> None:
        """Open an empty tab."""
        kept = {"behavior": "allowAndName", "downloadPath": str(self._folder)}
        await self._ask("Browser.setDownloadBehavior", **kept, eventsEnabled=True)
        target = await self._ask("Target.createTarget", url="about:blank")
        attached = await self._ask(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self._ask(f"{domain}.enable")

    async def open(self, url: str) -> None:
        """Go to an address."""
        await self._ask("Page.navigate", url=url)

    async def resize(self, width: int, height: int) -> None:
        """Have a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self._ask("Emulation.setDeviceMetricsOverride", **size)

    async def do(self, script: str) -> Any:
        """Return what a script says, once it knows."""
        told = await self._ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def enter(self) -> None:
        """Press Enter where the focus is."""
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        await self._ask("Input.dispatchKeyEvent", type="keyDown", text="\r", **key)
        await self._ask("Input.dispatchKeyEvent", type="keyUp", **key)

    async def until(self, wanted: str) -> None:
        """Wait until this is true in the page."""
        try:
            async with asyncio.timeout(WAIT_S):
                await self.do(_UNTIL.format(wanted=wanted))
        except TimeoutError:
            shown = await self.do("document.body.innerText")
            raise AssertionError(f"{wanted} never came; {self.faults}\n{shown}") from None

    async def saved(self) -> tuple[str, bytes]:
        """Wait until the browser has saved a file; return its name and its content."""
        async with asyncio.timeout(WAIT_S):
            while not self._saved:
                self._notice(orjson.loads((await self._socket.receive()).data))
        guid = self._saved.pop(0)
        return self._names[guid], (self._folder / guid).read_bytes()

    async def _ask(self, method: str, **given: Any) -> dict[str, Any]:
        number = next(self._numbers)
        named = {"sessionId": self._session} if self._session else {}
        asked = {"id": number, "method": method, "params": given, **named}
        await self._socket.send_str(orjson.dumps(asked).decode())
        async for message in self._socket:
            told = orjson.loads(message.data)
            if told.get("id") == number:
                assert "error" not in told, (method, told["error"])
                result: dict[str, Any] = told["result"]
                return result
            self._notice(told)
        raise AssertionError("the browser is gone")

    def _notice(self, told: dict[str, Any]) -> None:
        match told:
            case {"method": "Runtime.exceptionThrown", "params": {"exceptionDetails": details}}:
                self.faults.append(str(details))
            case {"method": "Log.entryAdded", "params": {"entry": {"level": "error"} as entry}}:
                self.faults.append(entry["text"])
            case {"method": "Browser.downloadWillBegin", "params": begun}:
                self._names[begun["guid"]] = begun["suggestedFilename"]
            case {"method": "Browser.downloadProgress", "params": {"state": "completed"} as done}:
                self._saved.append(done["guid"])
            case _:
                pass  # That something was loaded, or said in passing.


@asynccontextmanager
async def browsing(folder: Path) -> AsyncIterator[Page]:
    """Give a tab of a browser of the test's own; skip where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium on this machine")
    browser = await asyncio.create_subprocess_exec(
        *(program, *_FLAGS, f"--user-data-dir={folder}"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(START_S):
            address = await _address(browser)
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=MESSAGE_BYTES_MAX) as socket,
        ):
            page = Page(socket, folder / "saved")
            await page.attach()
            yield page
    finally:
        browser.kill()
        await browser.communicate()


async def _address(browser: asyncio.subprocess.Process) -> str:
    assert browser.stderr is not None
    async for line in browser.stderr:
        _, listening, address = line.decode().strip().partition("DevTools listening on ")
        if listening:
            return address
    raise AssertionError("the browser ended before it listened")
