"""The example's forecast, from a service of the tests' own behind the injected session."""

import dataclasses
from collections.abc import Callable

import httpx2
import pytest

from examples import weather_tools
from milepost.core.json import Json
from milepost.tools import Outcome, execute, tool_of

Answer = Callable[[httpx2.Request], httpx2.Response]

LYON = {"name": "Lyon", "country_code": "FR", "latitude": 45.75, "longitude": 4.85}
HELIER = {"name": "Saint Helier", "latitude": 49.19, "longitude": -2.11}
PARISES = [{**LYON, "name": "Paris"}, {**LYON, "name": "Paris", "country_code": "US"}]


def weather(request: httpx2.Request) -> httpx2.Response:
    """Answer as the service does: it finds whatever begins like the name."""
    query = request.url.params
    if request.url.path == "/v1/search":
        known = [LYON, HELIER, *PARISES]
        found = [place for place in known if str(place["name"]).startswith(query["name"])]
        return httpx2.Response(200, json={"results": found} if found else {})
    assert query["timezone"] == "auto"
    count = int(query["forecast_days"])
    days = {
        "time": [f"2026-11-0{day}" for day in range(1, count + 1)],
        "temperature_2m_min": [4.5] * count,
        "temperature_2m_max": [11.0] * count,
        "precipitation_sum": [0.0] * count,
    }
    return httpx2.Response(200, json={"daily": days})


def called(answer: Answer = weather, **arguments: Json) -> Outcome:
    """Return what the forecast tells with such a service behind it."""
    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        tool = dataclasses.replace(tool_of(weather_tools.forecast), inject={"http": http})
        return execute(tool, arguments)


def test_a_forecast_has_the_days_that_were_asked_for_and_its_source() -> None:
    told = called(place="Lyon", days=2)

    assert told.content == {
        "kind": "forecast",
        "place": "Lyon",
        "days": [
            {"date": "2026-11-01", "low_c": 4.5, "high_c": 11.0, "rain_mm": 0.0},
            {"date": "2026-11-02", "low_c": 4.5, "high_c": 11.0, "rain_mm": 0.0},
        ],
        "source": "open-meteo.com",
    }


@pytest.mark.parametrize("place", ["Nowhere", "Saint"])
def test_a_place_that_nobody_knows_by_this_name_is_not_found(place: str) -> None:
    assert called(place=place).content == {
        "kind": "not_found",
        "entity": "place",
        "query": place,
    }


def test_a_name_in_two_countries_is_ambiguous_until_one_is_said() -> None:
    both = called(place="Paris")

    one = called(place="Paris", country="US", days=1)

    assert both.content == {
        "kind": "ambiguous",
        "entity": "place",
        "query": "Paris",
        "matches": ["Paris, FR", "Paris, US"],
    }
    assert one.as_text().startswith('{"kind":"forecast","place":"Paris"')


@pytest.mark.parametrize(("status", "again"), [(503, True), (429, True), (400, False)])
def test_a_refusal_says_whether_it_may_be_tried_again(status: int, again: bool) -> None:
    failed = called(lambda _: httpx2.Response(status), place="Lyon")

    assert failed.error is not None
    assert failed.error.message == f"forecast failed: the weather service answered {status}"
    assert failed.error.retryable is again


def test_a_service_that_cannot_be_reached_may_be_tried_again() -> None:
    def gone(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("no route", request=request)

    failed = called(gone, place="Lyon")

    assert failed.as_text() == "Error: forecast failed: the weather service cannot be reached"
    assert failed.error is not None
    assert failed.error.retryable


def test_the_model_is_not_told_of_the_session() -> None:
    offered = tool_of(weather_tools.forecast).signature.offered

    assert [parameter.name for parameter in offered] == ["place", "country", "days"]


def test_calls_share_one_session() -> None:
    assert weather_tools.session() is weather_tools.session()
