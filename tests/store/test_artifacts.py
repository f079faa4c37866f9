"""Artifacts: kept with their append, their contents read in stretches, gone with a session."""

import os
from pathlib import Path

import pytest

from milepost.core.errors import FencedError, NotFoundError
from milepost.store import artifacts, sessions
from milepost.store.blobs import DirectoryBlobs
from milepost.store.records import NewArtifact, Page
from milepost.store.store import Store
from tests.store.making import NOW_MS, TENANT, a_finish, a_run, an_append, an_id, behind, held

PAGE = Page(limit=10, ascending=True)
SHA256 = "ab" * 32


def an_artifact(session_id: str, **changes: object) -> NewArtifact:
    """Return a small file, kept here."""
    given = {
        "id": an_id("art"), "session_id": session_id, "call_id": "call_1_0", "filename": "a.csv",
        "mime_type": "text/csv", "size": 10, "sha256": SHA256, "url": None, "role": None,
        "retention": None, "created_ms": NOW_MS, **changes,
    }  # fmt: skip
    return NewArtifact(**given)  # type: ignore[arg-type]  # as the test says


def files(folder: Path) -> list[str]:
    """Return the names of all files below the folder."""
    return [each.name for each in folder.rglob("*") if each.is_file()]


async def test_artifacts_are_kept_with_the_append_that_tells_of_them(store: Store) -> None:
    claim = await held(store)
    first, second = (an_artifact(claim.session_id) for _ in range(2))

    await store.append(an_append(claim, artifacts=(first, second)))

    rows = await store.read(artifacts.of_run(TENANT, claim.run_id, PAGE))
    assert [row.id for row in rows] == [first.id, second.id]
    assert rows[0] == await store.read(artifacts.find(TENANT, first.id))
    assert (rows[0].size, rows[0].url, rows[0].run_id) == (10, None, claim.run_id)


async def test_an_append_that_is_refused_keeps_no_artifact(store: Store) -> None:
    claim = await held(store)
    await store.append(an_append(claim))

    with pytest.raises(FencedError):
        await store.append(an_append(claim, artifacts=(an_artifact(claim.session_id),)))

    assert await store.read(artifacts.of_run(TENANT, claim.run_id, PAGE)) == []


async def test_a_content_is_read_in_stretches_byte_by_byte(store: Store) -> None:
    content = bytes(range(256))
    claim = await held(store)
    await store.append(an_append(claim, artifacts=(an_artifact(claim.session_id),)))
    await store.keep_content(TENANT, claim.session_id, SHA256, content)
    await store.keep_content(TENANT, claim.session_id, SHA256, content)
    [row] = await store.read(artifacts.of_run(TENANT, claim.run_id, PAGE))

    assert await store.read(artifacts.content(TENANT, row, 0, 256)) == content
    assert await store.read(artifacts.content(TENANT, row, 126, 4)) == content[126:130]
    assert await store.read(artifacts.content("globex", row, 0, 256)) is None


async def test_two_runs_of_a_session_have_each_their_own_artifacts_and_contents(
    store: Store,
) -> None:
    first = a_run()
    made = []
    for run, sha256, content in (
        (first, SHA256, b"first"),
        (behind(first), "cd" * 32, b"second"),
    ):
        claim = await held(store, run)
        left = an_artifact(claim.session_id, sha256=sha256)
        await store.append(a_finish(claim, artifacts=(left,)))
        await store.keep_content(TENANT, claim.session_id, sha256, content)
        made.append((claim.run_id, left.id, content))

    for run_id, artifact_id, content in made:
        [row] = await store.read(artifacts.of_run(TENANT, run_id, PAGE))
        assert row.id == artifact_id
        assert await store.read(artifacts.content(TENANT, row, 0, 10)) == content


async def test_another_tenants_artifact_does_not_exist(store: Store) -> None:
    claim = await held(store)
    artifact = an_artifact(claim.session_id)
    await store.append(an_append(claim, artifacts=(artifact,)))

    with pytest.raises(NotFoundError, match=artifact.id):
        await store.read(artifacts.find("globex", artifact.id))
    assert await store.read(artifacts.of_run("globex", claim.run_id, PAGE)) == []


async def test_artifacts_and_their_contents_go_with_their_session_alone(store: Store) -> None:
    kept = {}
    for name in ("gone", "stays"):
        claim = await held(store, a_run())
        artifact = an_artifact(claim.session_id)
        await store.append(a_finish(claim, artifacts=(artifact,)))
        await store.keep_content(TENANT, claim.session_id, SHA256, b"0123456789")
        kept[name] = await store.read(artifacts.find(TENANT, artifact.id))

    await store.write(sessions.delete(TENANT, kept["gone"].session_id))

    with pytest.raises(NotFoundError):
        await store.read(artifacts.find(TENANT, kept["gone"].id))
    assert await store.read(artifacts.content(TENANT, kept["gone"], 0, 10)) is None
    assert await store.read(artifacts.content(TENANT, kept["stays"], 0, 10)) == b"0123456789"


async def test_a_directory_keeps_a_content_once_and_reads_it_in_stretches(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)

    await blobs.put("../acme", "ses_1", SHA256, b"0123456789")
    await blobs.put("../acme", "ses_1", SHA256, b"0123456789")

    assert await blobs.read("../acme", "ses_1", SHA256, 3, 4) == b"3456"
    assert await blobs.read("globex", "ses_1", SHA256, 0, 10) is None
    assert len(files(tmp_path)) == 1


async def test_a_content_is_durable_with_all_the_folders_on_the_way_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that another process is just keeping, whose folders it has not synced yet."""
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", fsync)
    root = tmp_path / "artifacts"

    await DirectoryBlobs(root).put("acme", "ses_1", SHA256, b"one")
    first, synced[:] = list(synced), []
    await DirectoryBlobs(root).put("acme", "ses_1", SHA256, b"one")

    (place,) = root.rglob(SHA256)
    assert first[0].startswith(f"{place}.")
    assert first[1:] == [str(place.parent), str(place.parent.parent), str(root), str(tmp_path)]
    assert synced == first[1:-1]


async def test_a_directory_forgets_a_session_as_a_whole(tmp_path: Path) -> None:
    blobs = DirectoryBlobs(tmp_path)
    await blobs.put("acme", "ses_1", SHA256, b"one")
    await blobs.put("acme", "ses_2", SHA256, b"two")

    await blobs.clear("acme", "ses_1")
    await blobs.clear("acme", "ses_1")

    assert await blobs.read("acme", "ses_1", SHA256, 0, 10) is None
    assert await blobs.read("acme", "ses_2", SHA256, 0, 10) == b"two"


async def test_a_content_that_cannot_be_written_leaves_no_half_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, where a folder is needed")

    with pytest.raises(OSError, match="Not a directory"):
        await DirectoryBlobs(tmp_path / "taken").put("acme", "ses_1", SHA256, b"one")

    assert files(tmp_path) == ["taken"]
