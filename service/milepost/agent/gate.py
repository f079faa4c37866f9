"""Which calls of an agent are put to its approver, besides those that its policy and tools name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from milepost.agent.approval import ApprovalHandler, ConfirmAction
from milepost.agent.approver import TIMEOUT_S, Approver, approver_of
from milepost.agent.definition import Written
from milepost.core.errors import ConfigurationError
from milepost.core.policy import Policy

EVERYTHING = "*"

RequireApproval = Sequence[str] | Literal["*"]
"""Globs on the names of tools, or `"*"`: all of them."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The calls to ask about, as globs, and who answers; None: nobody does."""

    globs: tuple[str, ...]
    approver: Approver | None

    def around(self, written: Written) -> Written:
        """Return the definition with the gate in its policy, and with the approver's time."""
        agent = written.agent
        if self.globs:
            # What an agent without a policy lets through, one with a policy must allow.
            policy = agent.policy or Policy(allow=(EVERYTHING,))
            agent = replace(agent, policy=replace(policy, ask=(*policy.ask, *self.globs)))
        if self.approver:
            ttl_s = min(self.approver.timeout_s, agent.limits.approval_ttl_s)
            agent = replace(agent, limits=replace(agent.limits, approval_ttl_s=ttl_s))
        return replace(written, agent=agent)


def gate_of(
    require_approval: RequireApproval,
    handler: ApprovalHandler | None,
    confirm: ConfirmAction | None,
    timeout_s: float,
) -> Gate:
    """Return the gate; raise `ConfigurationError` for one that nobody would ever open."""
    globs = _globs(require_approval)
    approver = approver_of(handler, confirm, timeout_s)
    if globs and approver is None:
        raise ConfigurationError(
            f"require_approval names {', '.join(globs)}, and there is nobody to ask; give an"
            " approval_handler or confirm_action"
        )
    if approver is None and timeout_s != TIMEOUT_S:
        raise ConfigurationError(
            f"approval_timeout_s is {timeout_s:g}, and there is nobody to wait for; give an"
            " approval_handler or confirm_action"
        )
    return Gate(globs, approver)


def _globs(given: object) -> tuple[str, ...]:
    match given:
        case "*":
            return (EVERYTHING,)
        case [*globs] if all(isinstance(glob, str) and glob for glob in globs):
            return tuple(map(str, globs))
        case _:
            raise ConfigurationError(
                f'require_approval is {given!r}; give a list of globs on the names of tools, or "*"'
            )
