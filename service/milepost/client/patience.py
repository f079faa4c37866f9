"""How long a client goes on while its server does not answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """How often to try in a row without a single answer, and how long to wait in between.

    The waits double, from `wait_s` or from what the server asked for, which is obeyed up to
    `asked_s_max`. A stream that was open for `held_s` is an answer, though it told nothing new:
    there are hours in which nothing happens, and proxies that cut what is silent.
    """

    tries_max: int = 8
    wait_s: float = 0.5
    wait_s_max: float = 20.0
    asked_s_max: float = 120.0
    held_s: float = 5.0

    def wait_after(self, failures: int, asked_s: float | None = None) -> float:
        """Return the wait in seconds after so many failures in a row, the first being 1."""
        first_s = self.wait_s if asked_s is None else min(asked_s, self.asked_s_max)
        return min(first_s * 2.0 ** (failures - 1), max(first_s, self.wait_s_max))
