"""Log lines: one form for ours and our libraries', on stderr, with secrets masked.

The wiring calls `configure` once; everybody else asks for a `logger`, which may be made before.
Nobody configures a program that embeds agents but itself: until it does, nothing is said.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import TextIO

import structlog
from structlog.stdlib import BoundLogger, ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

MASK = "***"
# What these say at "info" tells of themselves, not of the service.
WORDY = ("alembic", "uvicorn.error")
# What these say is of somebody's server, which may have them say it without end, and quotes it with
# the secrets that it repeats. Whoever asked that server hears of it from us.
OUTSIDE = ("mcp", "httpx2")
DEPTH_MAX = 8
# What every formatter shows by means of its own, or leaves out on purpose.
_SAID_ANYWAY = frozenset({"event", "level", "logger", "timestamp", "exception"})

_SECRET_KEY = re.compile(
    "passw|passphrase|secret|credential|authorization|cookie|api[-_]?key|private[-_]?key|token$",
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(
    r"""
      (?P<bearer>\bbearer\s+)[\w.~+/=-]{8,}
    | (?P<named>(?:authorization|api[-_]?key|password|secret)["']?\s*[:=]\s*["']?)
      (?:(?:basic|bearer)\s+)?[^\s"',}\\]+
    | (?P<user>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/@]+(?=@)
    | \b(?:mp_[\w-]{8,}|sk-[\w-]{16,})
    """,
    re.IGNORECASE | re.VERBOSE,
)


def configure(level: str, *, json: bool) -> None:
    """Send everything from `level` up to stderr: for machines as JSON, for people in columns.

    It replaces only what it set itself, so that a second call counts and a test's handlers stay.
    """
    shown: list[Processor] = [_on_one_line, _columns()]
    if json:
        shown = [structlog.processors.JSONRenderer(default=repr)]
    handler = _Stderr()
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=_COMMON,
            processors=[ProcessorFormatter.remove_processors_meta, *shown, _mask_text],
        )
    )
    root = logging.getLogger()
    for former in [one for one in root.handlers if isinstance(one, _Stderr)]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for names, bound in ((WORDY, logging.WARNING), (OUTSIDE, logging.CRITICAL)):
        for name in names:
            logging.getLogger(name).setLevel(logging.NOTSET if level == "debug" else bound)


def logger(name: str) -> BoundLogger:
    """Return the logger of a part of Milepost: `_log = logger("worker")`."""
    bound: BoundLogger = structlog.wrap_logger(
        logging.getLogger(f"milepost.{name}"),
        processors=[
            structlog.stdlib.filter_by_level,
            *_COMMON,
            _readable,
            ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=BoundLogger,
    )
    return bound


def mask(text: str) -> str:
    """Return `text` without API keys, bearer tokens and passwords in URLs."""
    return _SECRET_TEXT.sub(_masked, text)


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what stderr is when it writes, as the standard library's last resort does."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # what a variable was is looked up
        return sys.stderr


class _Line(dict[str, object]):
    """What is said, in a form that a formatter of somebody else's can show to people."""

    def __str__(self) -> str:
        told = [f"{name}={_word(self[name])}" for name in self if name not in _SAID_ANYWAY]
        below = [str(self["exception"])] if "exception" in self else []
        return mask("\n".join([" ".join([str(self["event"]), *told]), *below]))


def _readable(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    return _Line(event)


def _word(value: object) -> str:
    text = str(value)
    return text if re.fullmatch(r"[^\s\"'\\]+", text) and text.isprintable() else repr(text)


def _masked(found: re.Match[str]) -> str:
    kept = found["bearer"] or found["named"] or found["user"] or ""
    return f"{kept}{MASK}"


def _mask_keys(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    return {key: _without_secrets(key, value, 0) for key, value in event.items()}


def _without_secrets(key: object, value: object, depth: int) -> object:
    if isinstance(key, str) and _SECRET_KEY.search(key):
        return MASK
    if depth >= DEPTH_MAX:
        return value
    match value:
        case Mapping():
            return {name: _without_secrets(name, item, depth + 1) for name, item in value.items()}
        case list() | tuple():
            return [_without_secrets(None, item, depth + 1) for item in value]
        case _:
            return value


def _mask_text(_: WrappedLogger, __: str, line: object) -> str:
    return mask(str(line))


class _Quoted:
    """A text that columns show as Python would write it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return repr(self._text)


def _on_one_line(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Let nothing that is quoted look like another line, or command a terminal."""
    for name, value in event.items():
        if not isinstance(value, str) or value.isprintable():
            continue
        if name == "exception":
            event[name] = "\n".join(map(_visible, value.split("\n")))
        else:
            event[name] = _visible(value) if name == "event" else _Quoted(value)
    return event


def _visible(text: str) -> str:
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _columns() -> structlog.dev.ConsoleRenderer:
    # The default formatter of exceptions shows the frames' variables, secrets among them.
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)


_COMMON: list[Processor] = [
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.PositionalArgumentsFormatter(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
    _mask_keys,
]

# As a library does: without a handler Python itself would write warnings to stderr.
logging.getLogger("milepost").addHandler(logging.NullHandler())
