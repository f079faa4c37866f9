"""How many requests a minute each key may make: told with every answer, and refused beyond it."""

import math
from dataclasses import dataclass

from milepost.core.errors import OverloadedError
from milepost.providers.windows import WINDOW_S, Quota, Windows

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a key has left of its minute; where that is nothing, it has to wait for `wait_s`."""

    per_minute: int
    left: int
    wait_s: float

    @property
    def headers(self) -> tuple[Header, Header]:
        """The two fields of draft-ietf-httpapi-ratelimit-headers, as of its tenth version."""
        seconds = math.ceil(self.wait_s) or WINDOW_S
        return (
            (b"ratelimit-policy", f'"key";q={self.per_minute};w={WINDOW_S}'.encode()),
            (b"ratelimit", f'"key";r={self.left};t={seconds}'.encode()),
        )

    def require(self) -> None:
        """Raise `OverloadedError` where nothing is left."""
        if self.wait_s:
            raise OverloadedError(
                f"this key has made the {self.per_minute} requests that it may make in"
                f" {WINDOW_S} s; come back in {math.ceil(self.wait_s)} s",
                code="rate_limited",
                retry_after_s=self.wait_s,
            )


class RequestLimit:
    """Counts the requests of each key: any 60 seconds see `per_minute` of them at most."""

    def __init__(self, windows: Windows, per_minute: int) -> None:
        self._windows = windows
        self._quota = Quota(requests=per_minute)
        self._per_minute = per_minute

    async def take(self, key_id: str) -> Allowance:
        """Count one request of the key, unless that would be too many."""
        taken = await self._windows.take(f"key:{key_id}", self._quota, 0)
        return Allowance(self._per_minute, taken.left or 0, taken.wait_s)
