"""How far a model call has come, as the providers that it passes tell: it may be cut off anywhere.

What a stream of deltas says comes too late for that. A call that waits for its turn says nothing,
and neither does one whose first model has failed, until the next one speaks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from milepost.core.errors import ProviderError
from milepost.core.model import FellBack
from milepost.providers.failures import was_at_work


class Asked:
    """What one model call has asked of vendors by now.

    `cut_off` of them failed at work: they may bill that, and told nobody how much it was.
    """

    __slots__ = ("_at_vendor", "_told", "cut_off")

    def __init__(self) -> None:
        self.cut_off = 0
        self._told = 0
        self._at_vendor = False

    @property
    def unknown_calls(self) -> int:
        """How many calls may be billed, if nothing more is heard of any."""
        return self.cut_off + self._at_vendor

    def begin(self) -> None:
        """Note that a vendor is asked, as far as nothing on the way says that it has to wait."""
        self._at_vendor = True

    def fail(self, error: ProviderError, *, spoken: bool = False) -> None:
        """Note how it failed, after it had said something or before; and that nobody is asked."""
        self.cut_off += self._at_vendor and (spoken or was_at_work(error))
        self._at_vendor = False

    def fall_back(self, delta: FellBack) -> None:
        """Note what the stream tells of a model; one who falls back by himself says it there."""
        self._told += delta.at_work
        self.cut_off = max(self.cut_off, self._told)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Note that nothing was sent before the block is over; where it fails, nothing was."""
        self._at_vendor = False
        yield
        self._at_vendor = True


_CURRENT: ContextVar[Asked] = ContextVar("milepost_asked")


@contextmanager
def following(asked: Asked) -> Iterator[None]:
    """Have the providers of the call that is made within tell `asked` how far it is."""
    token = _CURRENT.set(asked)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current() -> Asked:
    """Return what follows the call that is made here; where nobody does, one for itself."""
    return _CURRENT.get(None) or Asked()
