"""Where contents lie that are too large for the database."""

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
from pathlib import Path
from typing import Protocol

from milepost.core.errors import ConfigurationError


class Blobs(Protocol):
    """Keeps contents under a session of a tenant, each by its SHA-256."""

    async def put(self, tenant: str, session_id: str, sha256: str, content: bytes) -> None:
        """Keep a content, durably. Raises `OSError` where that is impossible."""

    async def read(
        self, tenant: str, session_id: str, sha256: str, start: int, length: int
    ) -> bytes | None:
        """Return a stretch of a content, or None where there is none such."""

    async def remove(self, tenant: str, session_id: str, sha256: str) -> None:
        """Forget a content. Raises `OSError` where that is impossible."""

    async def clear(self, tenant: str, session_id: str) -> None:
        """Forget all that is kept under the session. Raises `OSError` where that is impossible."""


class DirectoryBlobs:
    """Contents as files below `root`, of which nobody ever sees a half."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def require_writable(self) -> None:
        """Raise `ConfigurationError` where nothing could be kept. Nothing is made for that."""
        first = next(each for each in (self._root, *self._root.parents) if os.path.lexists(each))
        if not first.is_dir():
            why = f"{first} is no folder"
        elif not os.access(first, os.W_OK | os.X_OK):
            why = f"{first} cannot be written"
        else:
            return
        raise ConfigurationError(
            f"nothing can be kept in {self._root}: {why}; name another folder with --artifacts-dir"
        )

    async def put(self, tenant: str, session_id: str, sha256: str, content: bytes) -> None:
        """Write the file beside its place and then move it there."""
        folder = self._folder(tenant, session_id)
        await asyncio.to_thread(_keep, self._root, folder, sha256, content)

    async def read(
        self, tenant: str, session_id: str, sha256: str, start: int, length: int
    ) -> bytes | None:
        """Return a stretch of the file."""
        place = self._folder(tenant, session_id) / sha256
        return await asyncio.to_thread(_read, place, start, length)

    async def remove(self, tenant: str, session_id: str, sha256: str) -> None:
        """Remove the file."""
        place = self._folder(tenant, session_id) / sha256
        await asyncio.to_thread(place.unlink, missing_ok=True)

    async def clear(self, tenant: str, session_id: str) -> None:
        """Remove the session's folder."""
        with contextlib.suppress(FileNotFoundError):
            await asyncio.to_thread(shutil.rmtree, self._folder(tenant, session_id))

    def _folder(self, tenant: str, session_id: str) -> Path:
        # A tenant's name is whatever its keys say: no path is made of it.
        return self._root / hashlib.sha256(tenant.encode()).hexdigest()[:32] / session_id


def _keep(root: Path, folder: Path, name: str, content: bytes) -> None:
    """Have a file in a folder below `root`, durably, whoever has made them or is just at it."""
    last = root if root.exists() else root.parent
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / name).exists():
        _write(folder / name, content)
    for each in (folder, *folder.parents):
        _sync_folder(each)
        if each == last:
            break


def _write(place: Path, content: bytes) -> None:
    beside = place.with_name(f"{place.name}.{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Make the names in it durable, not only what they name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(place: Path, start: int, length: int) -> bytes | None:
    try:
        with place.open("rb") as file:
            file.seek(start)
            return file.read(length)
    except FileNotFoundError:
        return None
