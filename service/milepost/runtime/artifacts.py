"""Keeping what a call has left behind: first the contents, then the events that tell of them."""

from milepost.core.events import ArtifactCreated
from milepost.runtime.contents import ContentLostError, created
from milepost.store import artifacts
from milepost.store.blobs import Blobs
from milepost.store.records import Claim
from milepost.store.store import Store
from milepost.tools.artifacts import Emissions

IN_DATABASE_BYTES_MAX = 262_144


class Shelf:
    """Keeps contents: small ones in the database, larger ones in `blobs`.

    They are durable before their events are, so that a crash in between leaves a content that
    nobody refers to, which goes with its session.
    """

    def __init__(self, store: Store, blobs: Blobs) -> None:
        self._store = store
        self._blobs = blobs

    async def keep(self, emissions: Emissions, call_id: str, claim: Claim) -> list[ArtifactCreated]:
        """Keep all that the call has left behind, and return the events for the log.

        Raises `ContentLostError`.
        """
        events = []
        for artifact, content in emissions.close():
            if content is not None and artifact.sha256 is not None:
                await self._keep(claim, artifact.sha256, content)
            events.append(created(artifact, call_id))
        return events

    async def _keep(self, claim: Claim, sha256: str, content: bytes) -> None:
        if len(content) <= IN_DATABASE_BYTES_MAX:
            await self._store.keep_content(claim.tenant, claim.session_id, sha256, content)
            return
        try:
            await self._blobs.put(claim.tenant, claim.session_id, sha256, content)
        except OSError as error:
            raise ContentLostError(error.strerror or type(error).__name__) from error
        except RuntimeError as error:  # The system has no thread to write it in.
            raise ContentLostError(str(error)) from error

    async def read(
        self, tenant: str, row: artifacts.ArtifactRow, start: int, length: int
    ) -> bytes | None:
        """Return a stretch of an artifact's content, None where it is not here."""
        if row.sha256 is None or row.url is not None:
            return None
        found = await self._store.read(artifacts.content(tenant, row, start, length))
        if found is not None:
            return found
        return await self._blobs.read(tenant, row.session_id, row.sha256, start, length)

    async def remove(self, tenant: str, session_id: str, sha256: str) -> None:
        """Forget a larger content that nothing refers to any more."""
        await self._blobs.remove(tenant, session_id, sha256)

    async def clear(self, tenant: str, session_id: str) -> None:
        """Forget the larger contents of a session that is gone."""
        await self._blobs.clear(tenant, session_id)
