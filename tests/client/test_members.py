"""An answer is of a type if its members are what the type promises of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest

from milepost.client.members import Sure, Told, fits


class Run(TypedDict):
    """An object that is looked into."""

    agent: str


@dataclass(frozen=True, slots=True)
class Thing:
    """A type of answer, with members of all kinds."""

    id: Sure[str]
    counts: Annotated[Mapping[str, int], Told(("total",))]
    state: Literal["on", "off"]
    limit: float | None
    run: Run | None
    anything: Any
    raw: Mapping[str, Any]


WHOLE: dict[str, Any] = {"id": "t", "counts": {"total": 1}}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"state": "a newer server's", "limit": 1, "run": {"agent": "demo"}, "anything": []},
        {"state": None, "limit": 1.5, "run": None, "anything": None, "newer": 1},
    ],
)
def test_what_an_older_or_newer_server_says_fits(more: dict[str, Any]) -> None:
    assert fits(Thing, {**WHOLE, **more})


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": None},
        {"id": 1},
        {"counts": None},
        {"counts": []},
        {"counts": {"all": 1}},
        {"state": {}},
        {"limit": "1"},
        {"run": "demo"},
        {"run": {}},
        {"run": {"agent": 1}},
    ],
)
def test_what_is_missing_or_of_another_kind_does_not_fit(wrong: dict[str, Any]) -> None:
    assert not fits(Thing, {**WHOLE, **wrong})
