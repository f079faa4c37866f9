"""What a call has left behind, on its way into the log: whoever keeps its contents."""

from typing import Protocol

from milepost.core.events import ArtifactCreated, Failure
from milepost.store.records import Claim
from milepost.tools.artifacts import Artifact, Emissions


class ContentLostError(Exception):
    """The content of an artifact could not be kept; the message says why."""


class Contents(Protocol):
    """Keeps what calls leave behind, before their log tells of it."""

    async def keep(self, emissions: Emissions, call_id: str, claim: Claim) -> list[ArtifactCreated]:
        """Keep all that the call has left behind, and return the events for the log.

        Raises `ContentLostError`.
        """


def created(artifact: Artifact, call_id: str) -> ArtifactCreated:
    """Return the event that tells of an artifact."""
    return ArtifactCreated(
        artifact_id=artifact.id,
        call_id=call_id,
        filename=artifact.filename,
        mime_type=artifact.mime_type,
        size=artifact.size,
        sha256=artifact.sha256,
        url=artifact.url,
        role=artifact.role,
        retention=artifact.retention,
    )


def not_kept(tool: str, error: ContentLostError) -> Failure:
    """Return what a call came to whose artifact could not be kept, whatever the tool has done."""
    return Failure(
        "artifact_not_kept",
        f"{tool} ran, and what it does may have happened, but the artifact that it left could not"
        f" be kept: {error}. Do not repeat it before you have verified what happened.",
    )
