"""What the commands share that talk to a server: the connection, and bits of their arguments."""

import logging
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson
import typer

from milepost.client import BlockingMilepost, Patience
from milepost.settings import Settings

# Somebody sits and waits: a server that is not there should be told of soon.
BRIEF = Patience(tries_max=3)


@contextmanager
def connected(settings: Settings, patience: Patience = BRIEF) -> Iterator[BlockingMilepost]:
    """Give a client of the server that the settings name."""
    if patience is BRIEF:
        logging.getLogger("milepost.client").setLevel(logging.ERROR)  # It is all over in no time.
    key = settings.api_key.get_secret_value() if settings.api_key else None
    with BlockingMilepost(settings.base_url, key, patience=patience) as milepost:
        yield milepost


def finite(number: float | None) -> float | None:
    """Refuse what is no number to wait for: JSON could not even say it."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is no number of seconds")
    return number


def pairs(words: Sequence[str]) -> dict[str, str]:
    """Return the words of `--metadata` as a mapping."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(
                f"{word!r} is not of the form key=value", param_hint="'--metadata'"
            )
        found[key] = value
    return found


def text_of(file: str) -> str:
    """Return what is in a file, or what is piped in for `-`: UTF-8, with or without its mark."""
    if file == "-" and sys.stdin is None:
        raise typer.BadParameter("nothing is piped in, as - would have it")
    try:
        read = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return read.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from error


def json_object(text: str, name: str) -> dict[str, object]:
    """Return a JSON object; refuse what is none."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"{name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise typer.BadParameter(f'{name} is a JSON object, such as \'{{"deny": ["delete_*"]}}\'')
    return value
