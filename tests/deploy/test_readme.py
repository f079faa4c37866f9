"""The page on deploying: its links lead somewhere, its commands and settings are real."""

import re
import shlex

from milepost.settings import Settings
from tests.deploy.files import DEPLOY, OURS, complaint_about, known_variables
from tests.law.pages import ROOT, blocks_of, prose_of, text_of

PAGE = DEPLOY / "README.md"
_LINK = re.compile(r"\]\((?P<target>[^)#]+)")
_OURS = re.compile(r"-- (?:\\\n *)?milepost (?P<words>[^)\n]+)|run --rm (?P<keys>keys [^\n]+)")


def test_links_lead_somewhere() -> None:
    targets = [match["target"] for match in _LINK.finditer(prose_of(PAGE))]

    assert targets
    assert [target for target in targets if not (DEPLOY / target).exists()] == []


def test_every_file_that_there_is_to_know_of_is_in_the_table() -> None:
    present = {path.name for path in DEPLOY.iterdir()} - {"README.md", ".env"}

    told = {match["target"].rstrip("/") for match in _LINK.finditer(prose_of(PAGE))}

    assert present <= told


def test_variables_that_are_named_are_settings() -> None:
    named = set(re.findall(r"\b(?:MILEPOST|OTEL)_[A-Z_]+", text_of(PAGE)))

    assert named <= known_variables()


def test_commands_are_commands_with_flags_that_they_take() -> None:
    text = "\n".join(block.text for block in blocks_of(PAGE) if block.language == "sh")
    found = [shlex.split(match["words"] or match["keys"]) for match in _OURS.finditer(text)]

    wrong = [complaint_about(words[:1]) for words in found]

    assert len(found) == 3
    assert set(wrong) == {None}


def test_files_that_commands_name_are_there() -> None:
    text = "\n".join(block.text for block in blocks_of(PAGE))

    named = set(re.findall(r"(?<![\w.])deploy/[\w./-]+", text)) - {"deploy/.env"}

    assert [path for path in named if not (ROOT / path).exists()] == []
    assert OURS in text


def test_a_container_that_is_started_by_hand_is_given_the_drain_and_ten_seconds_more() -> None:
    [given] = re.findall(r"docker run --detach --stop-timeout (\d+)", text_of(PAGE))

    assert int(given) >= Settings.model_fields["drain_s"].default + 10
