"""What the pages say is so: their snippets run, their links lead somewhere, their facts hold."""

import dataclasses
import importlib
import re
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import orjson
import psycopg
import pytest

from milepost.core.codec import EVENTS, encode
from milepost.core.events import RunWaiting
from milepost.store import schema
from tests.law.mermaid import faults_of, states_of
from tests.law.page_shell import PageShell, lacks_curl, page_shell
from tests.law.pages import PAGES, ROOT, Block, blocks_of, named, prose_of, text_of
from tests.stubs.shop_model import shop_model

MODEL = "127.0.0.1:11434"
POSTGRES = "postgresql://milepost:secret@127.0.0.1:5432/milepost"
REDIS = "redis://127.0.0.1:6379/0"
LEFT_OUT_MAX = 3

EPHEMERAL = {
    "message.delta": ("message_id", "offset", "text"),
    "reasoning.delta": ("message_id", "offset", "text"),
    "tool_call.progress": ("call_id", "offset", "text"),
    "output.partial": ("message_id", "value"),
    "stream.lagged": ("resume_after",),
    "stream.idle": (),
    "stream.reconnect": ("after_ms",),
    "error": (),  # the fields of a problem
}

_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_PATH = re.compile(r"`(?P<path>[a-z_]+(?:/[\w.-]+)+\.(?:py|toml|yaml|md|txt))`")
_HEADING = re.compile(r"^#+ (?P<words>.+)$", re.MULTILINE)
_BOUND = re.compile(
    r"^\| `(?P<module>[\w.]+)\.(?P<name>[A-Z_]+)` \| (?P<value>[^|]+?) \|", re.MULTILINE
)
_RELEASE = re.compile(r"^## \[(?P<version>[^\]]+)\]", re.MULTILINE)
_EVENT = re.compile(r"^### `(?P<type>[\w.]+)`\n(?P<told>(?:(?!^#).*\n?)*)", re.MULTILINE)
_FIELD = re.compile(r"^- `(?P<name>\w+)`", re.MULTILINE)


def every_block() -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page)]


@pytest.fixture
async def model() -> AsyncIterator[str]:
    """A model's server, as `host:port`."""
    async with shop_model() as address:
        yield address


@pytest.fixture
def database(postgres_url: str) -> Iterator[str]:
    """An empty Postgres database of one's own."""
    name = f"docs_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield postgres_url.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(params=[page for page in PAGES if blocks_of(page)], ids=named)
async def opened(
    request: pytest.FixtureRequest, model: str, tmp_path: Path
) -> AsyncIterator[tuple[Path, PageShell]]:
    """A page, and a shell in which what it names is there."""
    page: Path = request.param
    if lacks_curl() and any("curl " in block.text for block in blocks_of(page)):
        pytest.skip("no curl on this machine that knows --fail-with-body, and the page needs one")
    stand_ins = {MODEL: model}
    text = text_of(page)
    for said, fixture in ((POSTGRES, "database"), (REDIS, "redis_url")):
        if said in text:
            stand_ins[said] = request.getfixturevalue(fixture)
    async with page_shell(tmp_path, stand_ins) as shell:
        yield page, shell


async def test_every_snippet_of_a_page_works(opened: tuple[Path, PageShell]) -> None:
    page, shell = opened

    for block in blocks_of(page):
        await shell.perform(block)


def test_every_block_says_how_it_is_checked() -> None:
    unknown = [str(block) for block in every_block() if not block.is_known]

    assert unknown == []


def test_few_blocks_are_left_out() -> None:
    left_out = [str(block) for block in every_block() if block.is_left_out]

    assert len(left_out) <= LEFT_OUT_MAX, left_out


def test_a_passage_stands_in_the_file_that_it_is_from() -> None:
    strange = [
        str(block)
        for block in every_block()
        if block.source and block.text not in (ROOT / block.source).read_text()
    ]

    assert strange == []


def test_json_is_json() -> None:
    broken = [
        str(block) for block in every_block() if block.language == "json" and not _is_json(block)
    ]

    assert broken == []


def _is_json(block: Block) -> bool:
    try:
        orjson.loads(block.text)
    except orjson.JSONDecodeError:
        return False
    return True


def test_pictures_can_be_drawn() -> None:
    faults = {
        str(block): found
        for block in every_block()
        if block.language == "mermaid" and (found := faults_of(block.text))
    }

    assert faults == {}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [match["target"] for match in _LINK.finditer(prose_of(page))]

    broken = [target for target in targets if not _leads_somewhere(page, target)]

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_that_are_named_are_there(page: Path) -> None:
    paths = {match["path"] for match in _PATH.finditer(prose_of(page))}

    places = (ROOT, ROOT / "service" / "milepost")
    missing = [path for path in paths if not any((place / path).is_file() for place in places)]

    assert missing == []


@pytest.mark.parametrize(
    "picture",
    [
        "gantt\n    a: b",
        "sequenceDiagram\n    A->>B: nobody was introduced",
        "sequenceDiagram\n    participant A\n    loop\n    A->>A: for ever",
        "sequenceDiagram\n    participant A\n    A->>A: one; two",
        "stateDiagram-v2\n    queued -> running",
        'flowchart TB\n    a["one" --> b',
    ],
)
def test_a_picture_that_cannot_be_drawn_is_noticed(picture: str) -> None:
    assert faults_of(picture) != []


def test_the_pictures_of_a_runs_life_have_its_states() -> None:
    architecture = blocks_of(ROOT / "docs" / "architecture.md")
    lives = [block for block in architecture if block.text.startswith("stateDiagram")]

    [life] = lives

    assert states_of(life.text) == {*schema.PENDING, *schema.ACTIVE, *schema.ENDED}


def test_bounds_are_as_the_page_says() -> None:
    told = list(_BOUND.finditer((ROOT / "docs" / "architecture.md").read_text()))

    wrong = [
        match[0]
        for match in told
        if str(getattr(importlib.import_module(f"milepost.{match['module']}"), match["name"]))
        != match["value"].replace(",", "").partition(" ")[0]
    ]

    assert told
    assert wrong == []


def test_every_event_is_told_with_exactly_its_fields() -> None:
    text = (ROOT / "docs" / "events.md").read_text()

    told = {
        match["type"]: tuple(field["name"] for field in _FIELD.finditer(match["told"]))
        for match in _EVENT.finditer(text)
    }

    assert told == {**{name: _fields(name) for name in EVENTS}, **EPHEMERAL}


def test_decisions_are_numbered_told_in_three_parts_and_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    pages = sorted(folder.glob("[0-9]*.md"))
    index = (folder / "README.md").read_text()

    parts = {page.name: _HEADING.findall(page.read_text())[1:] for page in pages}

    assert [page.name[:4] for page in pages] == [f"{n:04}" for n in range(1, len(pages) + 1)]
    assert set(map(tuple, parts.values())) == {("Context", "Decision", "Consequences")}
    assert [page.name for page in pages if f"]({page.name})" not in index] == []


def test_the_changelog_has_the_version_that_is_packaged() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    versions = _RELEASE.findall((ROOT / "CHANGELOG.md").read_text())

    assert versions[0] == project["version"]


def _leads_somewhere(page: Path, target: str) -> bool:
    """Say whether a link into the repository leads to a file, and to a heading of it if it says."""
    if "://" in target:
        return True
    path, _, anchor = target.partition("#")
    file = (page.parent / path) if path else page
    if not file.exists():
        return False
    return not anchor or anchor in _anchors(file)


def _anchors(page: Path) -> set[str]:
    found = _HEADING.findall(prose_of(page))
    return {re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-") for words in found}


def _fields(name: str) -> tuple[str, ...]:
    """Return the names of an event's fields, as clients see them."""
    kind = EVENTS[name]
    if kind is RunWaiting:
        return tuple(orjson.loads(encode(RunWaiting("approval", ()))))
    return tuple(field.name for field in dataclasses.fields(kind))
