"""Results that tell their kind."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import pytest

from milepost import Ambiguous, NotFound, ToolResult, tool, tool_of
from milepost.core.errors import ToolError
from milepost.tools import as_text
from milepost.tools.results import to_result


class Gauge:
    """Something that has no JSON form."""

    def __str__(self) -> str:
        return "gauge 7"


@dataclass(frozen=True)
class Weather(ToolResult):
    """What was measured."""

    kind: ClassVar[str] = "weather"
    degrees: float
    source: Any
    evidence: tuple[str, ...] = ()


def test_the_kind_stands_before_the_fields() -> None:
    result = to_result(Weather(21.5, "roof", ("photo 1",)))

    assert as_text(result) == (
        '{"kind":"weather","degrees":21.5,"source":"roof","evidence":["photo 1"]}'
    )


def test_the_kind_is_there_although_a_dataclass_does_not_count_it_among_its_fields() -> None:
    weather = Weather(21.5, "roof")

    assert "kind" not in asdict(weather)
    assert as_text(to_result({"now": [weather]})).startswith('{"now":[{"kind":"weather"')


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (NotFound("city", "Belrin"), '{"kind":"not_found","entity":"city","query":"Belrin"}'),
        (
            Ambiguous("city", "Frankfurt", ["am Main", "Oder"]),
            '{"kind":"ambiguous","entity":"city","query":"Frankfurt","matches":["am Main","Oder"]}',
        ),
    ],
)
def test_nothing_found_and_too_much_found_are_built_in(result: ToolResult, text: str) -> None:
    assert as_text(to_result(result)) == text


def test_a_result_may_say_where_it_comes_from() -> None:
    result = to_result(Weather(21.5, {"station": 7}, ("photo 1", "photo 2")))

    assert isinstance(result, dict)
    assert result["source"] == {"station": 7}
    assert result["evidence"] == ["photo 1", "photo 2"]


def test_what_has_no_json_form_is_text_within_a_typed_result_and_an_error_elsewhere() -> None:
    assert to_result(Weather(21.5, Gauge())) == {
        "kind": "weather", "degrees": 21.5, "source": "gauge 7", "evidence": [],
    }  # fmt: skip
    with pytest.raises(ToolError, match="cannot be sent as JSON"):
        to_result([Weather(21.5, "roof"), Gauge()])


def test_a_subclass_without_a_kind_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r'Vague needs a kind; write `kind: ClassVar\[str\] = "'):

        class Vague(ToolResult):
            pass


def test_the_output_schema_shows_the_kind_as_a_constant() -> None:
    @tool
    def measure(place: str) -> Weather | NotFound:
        """Measure."""
        return NotFound("place", place)

    schema: Any = tool_of(measure).output_schema

    weather, missing = schema["$defs"]["Weather"], schema["$defs"]["NotFound"]
    assert list(weather["properties"]) == ["kind", "degrees", "source", "evidence"]
    assert weather["properties"]["kind"] == {"const": "weather"}
    assert missing["required"] == ["kind", "entity", "query"]
