"""The console and the reference as routes: pages that hold nothing, and so ask nobody for a key."""

import asyncio
from collections.abc import Callable
from importlib.resources import files
from pathlib import PurePath

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.console.files import MEDIA, File, file_of
from milepost.console.reference import reference

INDEX = "index.html"


class Console:
    """Serves what the package carries, by name, and the contract as a page."""

    def __init__(self, contract: Callable[[], bytes]) -> None:
        self._contract = contract
        # All there is, so that no name can lead to another file.
        self._files = {
            entry.name: file_of(entry.name, entry.read_bytes())
            for entry in files("milepost.console").joinpath("static").iterdir()
            if PurePath(entry.name).suffix in MEDIA  # No leftovers of editors and systems.
        }
        self._reference: File | None = None
        self._drawing = asyncio.Lock()

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/", self.index, methods=["GET"]),
            Route("/console/{file}", self.file, methods=["GET"]),
            Route("/docs", self.docs, methods=["GET"]),
        ]

    async def index(self, request: Request) -> Response:
        """Show the console."""
        return self._files[INDEX].answer(request)

    async def file(self, request: Request) -> Response:
        """Give what its page is made of."""
        there = self._files.get(request.path_params["file"])
        if there is None:
            raise HTTPException(404)
        return there.answer(request)

    async def docs(self, request: Request) -> Response:
        """Show the contract as a page. It is drawn once, when somebody first asks for it."""
        async with self._drawing:
            if self._reference is None:
                page = await asyncio.to_thread(lambda: reference(self._contract()))
                self._reference = file_of("docs.html", page.encode())
        return self._reference.answer(request)
