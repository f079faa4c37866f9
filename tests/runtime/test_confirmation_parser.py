"""Who reads a yes in chats: our own parser, or one that is named."""

from pathlib import Path

import pytest

from milepost.core.confirmations import WholeMessages
from milepost.core.errors import ConfigurationError
from milepost.runtime.confirmation_parser import load_parser
from tests.telemetry.spoken import spoken

PARSERS = """
class Jawohl:
    version = "de-1"
    def is_confirm(self, text): return text == "jawohl"
    def is_cancel(self, text): return text == "nein"

class Nameless:
    def is_confirm(self, text): return True
    def is_cancel(self, text): return False

class Deaf:
    version = "1"

class Lost:
    version = "lost-1"
    def is_confirm(self, text): raise LookupError(text)
    def is_cancel(self, text): return {"nein": True}[text]

ready = Jawohl()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with parsers."""
    (tmp_path / "own_parsers.py").write_text(PARSERS)
    monkeypatch.syspath_prepend(tmp_path)


def test_dc18_without_a_word_our_own_reads() -> None:
    assert load_parser("") == WholeMessages()


@pytest.mark.parametrize("spec", ["own_parsers:Jawohl", "own_parsers:ready"])
def test_dc18_a_parser_is_named_as_a_class_or_as_an_object(spec: str) -> None:
    parser = load_parser(spec)

    assert parser.is_confirm("jawohl")
    assert parser.version == "de-1"


@pytest.mark.parametrize(
    "spec",
    ["own_parsers", "own_parsers:None_such", "no_such:Parser", "own_parsers:Nameless",
     "own_parsers:Deaf"],
)  # fmt: skip
def test_dc18_one_that_cannot_read_keeps_the_service_from_starting(spec: str) -> None:
    with pytest.raises(ConfigurationError, match="parser of confirmations"):
        load_parser(spec)


def test_what_a_parser_fails_at_is_neither_yes_nor_no(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parser = load_parser("own_parsers:Lost")

    assert not parser.is_confirm("jawohl")
    assert not parser.is_cancel("jawohl")
    assert parser.is_cancel("nein")
    assert [line["parser"] for line in spoken(caplog, "runs")] == ["lost-1", "lost-1"]
