"""A provider that asks the next model when one gives no reply."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

from milepost.core.errors import ConfigurationError, ProviderError
from milepost.core.model import Delta, FellBack, ModelRequest, Provider
from milepost.providers import asked
from milepost.providers.closing import closing
from milepost.providers.failures import was_at_work
from milepost.providers.opening import opening
from milepost.providers.trouble import CIRCUIT_OPEN, in_trouble

OnFallback = Callable[[str, str, ProviderError], object]
"""Told `(failed, next, error)`, the first two as `<provider>/<model>`."""


class Fallback:
    """Asks the models in their order until one says something; then that one has the word.

    Each is named `<provider>/<model>`, and the second part is what its provider is asked for. Those
    that gave nothing are told by a `FellBack` each, just before the reply. Nobody else is asked
    once a reply has begun. `on_fallback` is told of each step at once.
    """

    def __init__(
        self, models: Sequence[tuple[str, Provider]], *, on_fallback: OnFallback | None = None
    ) -> None:
        if not models:
            raise ConfigurationError("Fallback needs at least one model to ask")
        for name, _ in models:
            if not all(name.partition("/")):
                raise ConfigurationError(
                    f"Fallback needs models as <provider>/<model>, and {name!r} is none"
                )
        self._models = tuple(models)
        self._on_fallback = on_fallback

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the reply of the first model that gives one. Raises `ProviderError` if none."""
        failed: list[tuple[str, ProviderError]] = []
        for name, provider in self._models:
            self._tell(failed, name)
            asked.current().begin()
            theirs = replace(request, model=name.partition("/")[2])
            async with closing(provider.stream(theirs)) as deltas:
                try:
                    opened = await opening(deltas)
                except ProviderError as error:
                    asked.current().fail(error)
                    if not in_trouble(error):
                        raise
                    failed.append((name, error))
                    continue
                for other, why in failed:
                    yield FellBack(other, name, why.code, str(why), was_at_work(why))
                for delta in opened:
                    yield delta
                async for delta in deltas:
                    yield delta
                return
        raise _exhausted(failed)

    def _tell(self, failed: list[tuple[str, ProviderError]], following: str) -> None:
        if failed and self._on_fallback is not None:
            name, error = failed[-1]
            self._on_fallback(name, following, error)


def _exhausted(failed: list[tuple[str, ProviderError]]) -> ProviderError:
    """Return the error of all together: it may pass where one of them may, and when the first may.

    Its code is that of the last that was really asked.
    """
    errors = [error for _, error in failed]
    if len(errors) == 1:
        return errors[0]
    tried = [error for error in errors if error.code != CIRCUIT_OPEN] or errors
    waits_s = [error.retry_after_s or 0 for error in errors if error.retryable]
    told = "; ".join(f"{name}: {error}" for name, error in failed)
    return ProviderError(
        f"None of {len(failed)} models answered. {told}",
        code=tried[-1].code,
        retryable=bool(waits_s),
        retry_after_s=min(waits_s, default=0) or None,
        status=tried[-1].status,
    )
