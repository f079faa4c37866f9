"""Who reads a yes in chats: the parser that there is, or one that the installation names."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from milepost.core.confirmations import ConfirmationParser, WholeMessages
from milepost.core.errors import ConfigurationError
from milepost.runtime import notices

_PARTS = ("is_confirm", "is_cancel")


def load_parser(spec: str) -> ConfirmationParser:
    """Return the parser that `module:attribute` names, made if it is a class; "" is our own.

    Raises `ConfigurationError` for one that cannot be used: nobody's yes may depend on luck.
    """
    if not spec:
        return WholeMessages()
    module, _, name = spec.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
        parser: ConfirmationParser = found() if isinstance(found, type) else found
        version: object = parser.version
    except Exception as error:
        raise ConfigurationError(
            f"the parser of confirmations {spec!r} cannot be loaded: {type(error).__name__}:"
            f" {error}; write module:attribute"
        ) from error
    if not isinstance(version, str) or not all(callable(getattr(parser, p, None)) for p in _PARTS):
        raise ConfigurationError(
            f"the parser of confirmations {spec!r} needs is_confirm(text), is_cancel(text) and a"
            " version, which is text"
        )
    return _Bounded(parser)


@dataclass(frozen=True, slots=True)
class _Bounded:
    """An installation's own parser, whose failure means neither yes nor no.

    Were it the request's, a chat would bring the same message again and again.
    """

    own: ConfirmationParser

    @property
    def version(self) -> str:
        return self.own.version

    def is_confirm(self, text: str) -> bool:
        return self._said(self.own.is_confirm, text)

    def is_cancel(self, text: str) -> bool:
        return self._said(self.own.is_cancel, text)

    def _said(self, read: Callable[[str], bool], text: str) -> bool:
        try:
            return read(text)
        except Exception as error:
            notices.parser_failed(error, self.version)
            return False
