"""API keys: what they may be, how they are made and taken back, each act with its audit row."""

import hashlib
import re
import secrets
from typing import Annotated, Literal, get_args

import orjson
from pydantic import AfterValidator, Field, field_validator

from milepost.runtime.agent_spec import Spec
from milepost.store import audit, keys
from milepost.store.audit import AuditRow
from milepost.store.keys import KeyRow, NewKey
from milepost.store.work import Work

Scope = Literal[
    "runs:read",
    "runs:write",
    "approvals:decide",
    "agents:write",
    "budgets:read",
    "budgets:write",
    "users:act_as",
    "metrics:read",
    "admin",
]
SCOPES: tuple[Scope, ...] = get_args(Scope)
OWN_SCOPES_MAX = 50

KEY_PREFIX = "mp_"
KEY_BYTES = 32
HINT_CHARS = 4
EXPIRES_DAYS_MAX = 3_660
DAY_MS = 86_400_000

# A scope of one's own opens no route: permissions of tools name it, exactly as a key does.
OWN_SCOPE = "scope:[a-z0-9][a-z0-9_.-]{0,63}"
_SCOPE = re.compile(f"{'|'.join(SCOPES)}|{OWN_SCOPE}")


def _checked_scope(scope: str) -> str:
    if not _SCOPE.fullmatch(scope):
        raise ValueError(
            f"there is no such scope; there are {', '.join(SCOPES)}, and your own, as in scope:name"
        )
    return scope


KeyScope = Annotated[str, AfterValidator(_checked_scope)]
Label = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")]


class KeySpec(Spec):
    """A key as people ask for it; without `expires_days` it is valid until it is revoked."""

    name: Label
    scopes: Annotated[list[KeyScope], Field(min_length=1, max_length=len(SCOPES) + OWN_SCOPES_MAX)]
    subject: Label | None = None
    expires_days: Annotated[int, Field(ge=1, le=EXPIRES_DAYS_MAX)] | None = None

    @field_validator("scopes")
    @classmethod
    def _are_distinct(cls, scopes: list[str]) -> list[str]:
        if len(set(scopes)) != len(scopes):
            raise ValueError("a scope is named twice")
        return scopes


def new_secret() -> str:
    """Return the text of a key that nobody can guess. It is shown once and never stored."""
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


def key_hash(secret: str) -> str:
    """Return what is stored of a key. Keys are random, so that a plain hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def key_of(spec: KeySpec, secret: str, *, tenant: str, key_id: str, now_ms: int) -> NewKey:
    """Return the key as it is stored: a hash, and a hint by which people tell theirs."""
    return NewKey(
        id=key_id,
        tenant=tenant,
        name=spec.name,
        hash=key_hash(secret),
        hint=f"{KEY_PREFIX}…{secret[-HINT_CHARS:]}",
        scopes=orjson.dumps(spec.scopes).decode(),
        subject=spec.subject,
        created_ms=now_ms,
        expires_ms=None if spec.expires_days is None else now_ms + spec.expires_days * DAY_MS,
    )


def issue(key: NewKey, *, actor: str, act_id: str) -> Work[KeyRow]:
    """Make the key valid, and write down who did."""
    row = yield from keys.create(key)
    yield from audit.add(_act("key.created", row, actor, act_id, key.created_ms))
    return row


def revoke(tenant: str, key_id: str, *, actor: str, act_id: str, now_ms: int) -> Work[KeyRow]:
    """End the key's validity, and write down who did; doing so twice changes nothing."""
    row = yield from keys.revoke(tenant, key_id, now_ms)
    if row.revoked_ms == now_ms:
        yield from audit.add(_act("key.revoked", row, actor, act_id, now_ms))
    return row


def _act(action: str, row: KeyRow, actor: str, act_id: str, now_ms: int) -> AuditRow:
    details = {
        "name": row.name,
        "hint": row.hint,
        "scopes": orjson.Fragment(row.scopes),
        "subject": row.subject,
    }
    return AuditRow(
        id=act_id,
        tenant=row.tenant,
        actor=actor,
        action=action,
        target=row.id,
        details=orjson.dumps(details).decode(),
        time_ms=now_ms,
    )
