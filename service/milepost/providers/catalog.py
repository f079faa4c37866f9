"""The providers that an installation has, by name."""

from collections.abc import Collection, Mapping

from milepost.core.errors import InvalidError
from milepost.core.model import Provider


class Catalog:
    """Finds the provider that a model's name begins with; `unlisted` ones are for no agent.

    The models of `instructed` ones must be told a schema: their vendor takes none.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        *,
        unlisted: Mapping[str, Provider] | None = None,
        instructed: Collection[str] = (),
    ) -> None:
        self._providers = dict(providers)
        self._unlisted = dict(unlisted or {})
        self._instructed = frozenset(instructed)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the providers that agents may name, sorted."""
        return tuple(sorted(self._providers))

    def takes_schema(self, name: str) -> bool:
        """Say whether the provider itself holds an answer to a JSON Schema."""
        return name not in self._instructed

    def get(self, name: str) -> Provider:
        """Return the provider called `name`. Raises `InvalidError` when there is none."""
        if (provider := self._providers.get(name) or self._unlisted.get(name)) is not None:
            return provider
        raise InvalidError(
            f"No provider is called {name!r}; this installation has {', '.join(self.names)}",
            code="unknown_provider",
        )
