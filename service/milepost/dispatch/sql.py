"""The queue as its own dispatcher: workers claim whatever is ready, and nobody is told anything."""

from milepost.dispatch.port import Offer

_ANY = Offer()


class Sql:
    """Lets a worker look whenever `bell` is rung, or it has waited for long enough."""

    def __init__(self, bell: str) -> None:
        self.bell = bell

    def next(self, most: int) -> Offer:  # noqa: ARG002 - the claim has the bound
        """Offer whatever is ready."""
        return _ANY

    def let_go(self, run_id: str) -> None:
        """Take no note: the queue knows."""

    def drain(self) -> None:
        """Do nothing: who asks no more gets nothing."""
