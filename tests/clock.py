"""A clock in the test's hands."""


class Clock:
    """Tells seconds, which pass when they are told to. Its `ms` tells the same in milliseconds."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def ms(self) -> int:
        """Return the same time in milliseconds."""
        return round(self.now * 1000)

    async def sleep(self, seconds: float) -> None:
        """Move on by so much, without taking the time."""
        self.now += seconds
