"""Pages of documentation: their fenced blocks, and what a block's info string says of it.

The first word is the language. What follows says how the block is checked:

    sh                 run; it must succeed. Variables live on in the page's later blocks
    sh serve           started in the background in the place of the service before it
    sh serve beside    the same, beside what runs already
    sh stopped         run once the services have been stopped
    sh refused         run; it must fail
    python             run, with the page's variables in its environment
    … file=NAME        written to NAME, for the page's later blocks
    … from=PATH        a passage of that file of the repository
    … no-run (REASON)  left out
    text output        lines that the block before it printed; … stands for anything
    json, mermaid      must be well-formed
    text               is for the eye
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = frozenset({"sh", "python", "toml", "json", "text", "mermaid"})

_FENCE = re.compile(r"^```(?P<info>.*)\n(?P<text>(?:.*\n)*?)```$", re.MULTILINE)
_MANNERS = re.compile(
    r"serve|serve beside|stopped|refused|output|(?:file|from)=\S+|no-run \(.{10,}\)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `manner` is what its info string says after the language."""

    page: Path
    line: int
    language: str
    manner: str
    text: str

    def __str__(self) -> str:
        """Return where it stands."""
        return f"{named(self.page)}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that it is written to."""
        return self.manner.removeprefix("file=") if self.manner.startswith("file=") else None

    @property
    def source(self) -> str | None:
        """The file of the repository that it is a passage of."""
        return self.manner.removeprefix("from=") if self.manner.startswith("from=") else None

    @property
    def is_left_out(self) -> bool:
        """Say whether nothing is done with it."""
        return self.manner.startswith("no-run")

    @property
    def is_known(self) -> bool:
        """Say whether there is a rule by which it is checked."""
        if self.language not in LANGUAGES:
            return False
        if self.language == "toml":
            return bool(self.file or self.source)
        return not self.manner or _MANNERS.fullmatch(self.manner) is not None


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in their order."""
    text = text_of(page)
    return [_block(page, text, match) for match in _FENCE.finditer(text)]


def text_of(page: Path) -> str:
    """Return a page as it stands."""
    return page.read_text(encoding="utf-8")


def prose_of(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", text_of(page))


def named(page: Path) -> str:
    """Return a page's path below the repository."""
    return page.relative_to(ROOT).as_posix()


def _block(page: Path, text: str, match: re.Match[str]) -> Block:
    language, _, manner = match["info"].strip().partition(" ")
    line = text.count("\n", 0, match.start()) + 1
    return Block(page, line, language, manner.strip(), match["text"])
