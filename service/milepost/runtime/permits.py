"""Who may have which tool called: what the tool says, which a tenant can only narrow."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import orjson

from milepost.core.approvers import Asker
from milepost.core.frozen import dataclass
from milepost.tools import Registry, Tool
from milepost.tools.definition import SCOPE_PREFIX

EVERYBODY = "*"

Listed = Mapping[str, Sequence[str]]
"""Tools by name, each with the users and `scope:<name>` that may have it called."""


@dataclass(frozen=True, slots=True)
class Identity:
    """For whom a run acts: its user, and the key that made it with its scopes."""

    user: str | None = None
    scopes: frozenset[str] = frozenset()
    key: str | None = None

    @classmethod
    def of(cls, user: str | None, scopes: str, key: str | None) -> "Identity":
        """Return the identity that a run's row has; `scopes` is a JSON list."""
        return cls(user, frozenset(orjson.loads(scopes)), key)

    @property
    def asker(self) -> Asker:
        """Who has asked for the run."""
        return Asker(self.key, self.user)

    def is_among(self, listed: Sequence[str]) -> bool:
        """Say whether one of the entries stands for this identity; a user is never a scope."""
        if EVERYBODY in listed:
            return True
        if self.user in listed and not str(self.user).startswith(SCOPE_PREFIX):
            return True
        return any(_entry(scope) in listed for scope in self.scopes)


@dataclass(frozen=True, slots=True)
class Permits:
    """What one run may have called. Without an identity nothing restricted is."""

    identity: Identity = field(default_factory=Identity)
    narrowed: Listed = field(default_factory=dict)

    def refusal(self, tool: Tool) -> str | None:
        """Return why the tool may not be called, for the model; None if it may."""
        lists = (tool.permissions, self.narrowed.get(tool.name))
        if all(each is None or self.identity.is_among(each) for each in lists):
            return None
        if self.identity.user is None and not self.identity.scopes:
            return f"{tool.name} is for certain users alone, and nobody knows whose run this is"
        who = "this user" if self.identity.user is not None else "the key that made this run"
        return f"{tool.name} is not permitted to {who}; do without it"

    def allowed(self, names: Iterable[str], tools: Registry) -> tuple[str, ...]:
        """Return those of `names` that are there and may be called."""
        found = ((name, tools.get(name)) for name in names)
        return tuple(name for name, tool in found if tool and self.refusal(tool) is None)


def _entry(scope: str) -> str:
    """Return how permissions name a scope: an installation's own ones are called so already."""
    return scope if scope.startswith(SCOPE_PREFIX) else f"{SCOPE_PREFIX}{scope}"
