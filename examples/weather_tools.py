"""The weather, from a public service that needs no key, through an HTTP session that is injected.

make run ARGS="--tools examples/weather_tools.py"
"""

import functools
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import httpx2
from pydantic import Field

from milepost import Ambiguous, Injected, NotFound, ToolError, ToolResult, tool

PLACES_URL = "https://geocoding-api.open-meteo.com/v1/search"
FORECAST_URL = "https://api.open-meteo.com/v1/forecast"
ANSWER_S = 5.0


@dataclass(frozen=True, slots=True)
class Day:
    """What one day will be like."""

    date: str
    low_c: float
    high_c: float
    rain_mm: float


@dataclass(frozen=True, slots=True)
class Forecast(ToolResult):
    """The days to come, and who says so."""

    kind: ClassVar[str] = "forecast"
    place: str
    days: list[Day]
    source: str = "open-meteo.com"


@functools.cache
def session() -> httpx2.Client:
    """Return the session that all calls share; it is made for the first of them."""
    return httpx2.Client(timeout=ANSWER_S)


@tool(effect="read", timeout_s=15, inject={"http": session})
def forecast(
    place: Annotated[str, Field(min_length=2, description="A town, such as Lyon")],
    http: Injected[httpx2.Client],
    country: Annotated[str | None, "Two letters, such as FR, where a name is not enough"] = None,
    days: Annotated[int, Field(ge=1, le=7)] = 3,
) -> Forecast | NotFound | Ambiguous:
    """Tell the weather of the days to come, today included."""
    found = _asked(http, PLACES_URL, name=place, count=10).get("results", [])
    fitting = [
        each
        for each in found
        if each["name"].casefold() == place.casefold()
        and country in {None, each.get("country_code")}
    ]
    if not fitting:
        return NotFound("place", place)
    countries = sorted({each.get("country_code", "") for each in fitting})
    if len(countries) > 1:
        return Ambiguous("place", place, [f"{fitting[0]['name']}, {code}" for code in countries])
    return Forecast(fitting[0]["name"], _days(http, fitting[0], days))


def _days(http: httpx2.Client, place: dict[str, Any], count: int) -> list[Day]:
    daily = _asked(
        http,
        FORECAST_URL,
        latitude=place["latitude"],
        longitude=place["longitude"],
        daily="temperature_2m_min,temperature_2m_max,precipitation_sum",
        timezone="auto",
        forecast_days=count,
    )["daily"]
    columns = ("time", "temperature_2m_min", "temperature_2m_max", "precipitation_sum")
    return [Day(*day) for day in zip(*(daily[name] for name in columns), strict=True)]


def _asked(http: httpx2.Client, url: str, **query: str | float) -> dict[str, Any]:
    """Return what the service answers, or tell the model that it does not."""
    try:
        answer = http.get(url, params=query)
    except httpx2.TransportError as error:
        raise ToolError("the weather service cannot be reached", retryable=True) from error
    if answer.is_error:
        again = answer.status_code in {429, 500, 502, 503, 504}
        raise ToolError(f"the weather service answered {answer.status_code}", retryable=again)
    said: dict[str, Any] = answer.json()
    return said
