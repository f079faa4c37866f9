"""What a run's tools left behind, on its page: listed, downloaded, and harmless."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.api.making import made
from tests.api.serving import KeyedService, serving_tenants, settings_for
from tests.console.browser import Page
from tests.console.visiting import a_key, one, refused, unlock
from tests.stubs.directed_model import DirectedModel, directed_model

TOOLS = """
from milepost import emit_artifact, tool

@tool
def leave(content: str = "0123456789", filename: str = "a b.csv", times: int = 1) -> str:
    '''Leave files.'''
    for _ in range(times):
        emit_artifact(content=content, filename=filename)
    return "left"

@tool
def link(url: str) -> str:
    '''Leave a link.'''
    emit_artifact(url)
    return "linked"
"""
ROWS = "document.querySelectorAll('section.left tbody tr')"
BUTTON = "section.left tbody button"


@dataclass(frozen=True, slots=True)
class Desk:
    """A service whose tools leave things behind, and a tab that looks at it."""

    keyed: KeyedService
    model: DirectedModel
    page: Page

    async def left(self, *lines: str) -> str:
        """Have the calls made, and look at their run; return its session."""
        body = {"agent": "clerk", "input": "\n".join(lines)}
        run = await made(self.keyed.acme, "/v1/runs", body)
        await self.page.open(f"{self.keyed.service.base_url}/#/runs/{run['id']}")
        await unlock(self.page, await a_key(self.keyed, "ann", "runs:read"))
        await self.page.until(one("article.said"))
        self.page.faults.clear()  # It had asked without a key.
        session: str = run["session_id"]
        return session

    async def rows(self, count: int) -> list[str]:
        """Wait for so many artifacts; return what is said of each."""
        await self.page.until(f"{ROWS}.length === {count}")
        told: list[str] = await self.page.do(f"[...{ROWS}].map(each => each.innerText)")
        return told


@pytest.fixture
async def desk(sqlite_database_url: str, tmp_path: Path, page: Page) -> AsyncIterator[Desk]:
    """Such a service."""
    (tmp_path / "leaving.py").write_text(TOOLS)
    async with directed_model() as model:
        settings = settings_for(
            sqlite_database_url,
            tools=str(tmp_path / "leaving.py"),
            artifacts_dir=str(tmp_path / "artifacts"),
            OPENAI_BASE_URL=model.base_url,
        )
        async with serving_tenants(settings) as keyed:
            agent = {"name": "clerk", "model": "openai/m", "tools": ["leave", "link"]}
            await made(keyed.acme, "/v1/agents", agent)
            yield Desk(keyed, model, page)


async def test_what_a_run_leaves_behind_shows_up_and_is_downloaded_with_the_key(desk: Desk) -> None:
    desk.model.gate.clear()
    await desk.left("call leave {}")
    assert await desk.page.do(f"{ROWS}.length") == 0

    desk.model.gate.set()

    assert await desk.rows(1) == ["a b.csv\ttext/csv\t10 B\tDownload"]
    await desk.page.do(f"{one(BUTTON)}.click()")
    assert await desk.page.saved() == ("a b.csv", b"0123456789")
    assert await desk.page.do(f"{one(BUTTON)}.ariaLabel") == "Download a b.csv"
    assert desk.page.faults == []


async def test_a_page_that_a_tool_wrote_is_saved_and_never_shown(desk: Desk) -> None:
    taken = "<script>document.title = 'taken'</script>"
    await desk.left(
        f'call leave {{"content": "{taken}", "filename": "../<img src=x>\\u202Efdp.html"}}'
    )

    [told] = await desk.rows(1)
    await desk.page.do(f"{one(BUTTON)}.click()")
    name, content = await desk.page.saved()

    assert told.startswith("../<img src=x>\\u202efdp.html\t")
    assert "/" not in name
    assert "\u202e" not in name
    assert content == taken.encode()
    assert await desk.page.do("document.querySelectorAll('main script, main img').length") == 0
    assert await desk.page.do("document.title") == "Run · Milepost"


async def test_what_lies_elsewhere_is_a_link_if_it_leads_to_a_page(desk: Desk) -> None:
    await desk.left('call link {"url": "https://example.com/a.pdf"}')
    await desk.rows(1)
    link = one("section.left tbody a")
    assert await desk.page.do(f"{link}.href") == "https://example.com/a.pdf"
    assert await desk.page.do(f"{link}.rel") == "noopener noreferrer"

    await desk.page.do("sessionStorage.clear()")
    await desk.left('call link {"url": "javascript://x/%0adocument.title=1"}')
    [told] = await desk.rows(1)
    assert "javascript://x" in told
    assert await desk.page.do(f"{link}") is None


async def test_what_was_erased_meanwhile_is_told_as_such(desk: Desk) -> None:
    session = await desk.left("call leave {}")
    await desk.rows(1)
    await desk.page.until(one("article.end"))

    erased = await desk.keyed.acme.delete(f"/v1/sessions/{session}")
    await desk.page.do(f"{one(BUTTON)}.click()")

    assert erased.status_code == 204
    await refused(desk.page, "artifact_not_found")


async def test_a_long_list_comes_in_pieces(desk: Desk) -> None:
    await desk.left('call leave {"times": 60}', 'call leave {"times": 60}')
    await desk.rows(100)

    await desk.page.do(f"{one('section.left .pages button')}.click()")

    await desk.rows(120)
    assert not await desk.page.do(f"Boolean({one('section.left .pages button')})")
