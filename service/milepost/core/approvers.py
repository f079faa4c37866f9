"""Whose answer counts: the people that the terms of a question name, and never its own asker."""

from collections.abc import Iterable
from dataclasses import dataclass

NOBODY: frozenset[str] = frozenset()
OPEN_ID = "local"
"""Whoever calls a service that asks nobody for a key: nobody knows who that is."""


@dataclass(frozen=True, slots=True)
class Approver:
    """Who answers: a key, the person or system that it stands for, and what it may.

    `own_keys` are all keys of that person, where they are known. `channel` is a person at a chat,
    for whom the chat alone vouches: `channel:<name>:<user>`, and only that names them.
    """

    key: str | None = None
    subject: str | None = None
    scopes: frozenset[str] = NOBODY
    own_keys: frozenset[str] = NOBODY
    channel: str | None = None

    @property
    def person(self) -> str | None:
        """What counts as one voice: two keys of one person are one."""
        return self.key if self.subject is None else f"user:{self.subject}"

    @property
    def names(self) -> frozenset[str]:
        """All by which terms may name them. A scope counts only if the key has it by name."""
        if self.channel is not None:
            return frozenset({self.channel})
        named = {f"scope:{scope.removeprefix('scope:')}" for scope in self.scopes}
        if self.key is not None:
            named.add(f"key:{self.key}")
        if self.subject is not None:
            named.add(f"user:{self.subject}")
        return frozenset(named)


UNKNOWN = Approver()


@dataclass(frozen=True, slots=True)
class Asker:
    """Who has asked for a run: the key that made it, and the user for whom."""

    key: str | None = None
    user: str | None = None


NOBODY_KNOWN = Asker()


def is_asked(approvers: Iterable[str], who: Approver) -> bool:
    """Say whether an answer is theirs to give; anybody's, if nobody is named."""
    named = frozenset(approvers)
    return not named or not named.isdisjoint(who.names)


def has_asked(
    made_by: str | None, user: str | None, speakers: Iterable[str], who: Approver
) -> bool:
    """Say whether it may have been they who asked for the run, or had a say in what it does.

    `made_by` is the key that made it, `user` for whom, `speakers` are the keys that have told its
    model something since. Of what nobody knows whose it was, and of an approver that nobody knows,
    it must be assumed.
    """
    askers = {made_by or OPEN_ID, *speakers}
    if OPEN_ID in askers or who.person is None:
        return True
    mine = who.key in askers or not askers.isdisjoint(who.own_keys)
    return mine or (user is not None and user == who.subject)
