"""Who may have which tool called, as a tenant says: one map, of which each change is a version."""

from dataclasses import dataclass

from sqlalchemy import select, update

from milepost.core.errors import ConflictError
from milepost.store import schema
from milepost.store.dialect import insert_new, number, text
from milepost.store.work import Statement, Work

_P = schema.tool_permissions.c


@dataclass(frozen=True, slots=True)
class PermissionsRow:
    """A tenant's map, as JSON. Version 0 is that of a tenant which never had one."""

    tenant: str
    permissions: str = "{}"
    version: int = 0
    updated_ms: int | None = None

    @property
    def id(self) -> str:
        """What it is called: there is one."""
        return "tool permissions"


_GET = Statement(
    select(_P.tenant, _P.permissions, _P.version, _P.updated_ms).where(_P.tenant == text("tenant"))
)
_ADD = Statement(
    insert_new(schema.tool_permissions)
    .values(
        tenant=text("tenant"),
        permissions=text("permissions"),
        version=1,
        updated_ms=number("now_ms"),
    )
    .returning(_P.version)
)
_REPLACE = Statement(
    update(schema.tool_permissions)
    .where(_P.tenant == text("tenant"), _P.version == number("expected"))
    .values(permissions=text("permissions"), version=_P.version + 1, updated_ms=number("now_ms"))
    .returning(_P.version)
)


def get(tenant: str) -> Work[PermissionsRow]:
    """Return the tenant's map, an empty one where it never had any."""
    found = yield _GET(tenant=tenant)
    return PermissionsRow(*found[0]) if found else PermissionsRow(tenant)


def replace(before: PermissionsRow, permissions: str, now_ms: int) -> Work[PermissionsRow]:
    """Put another map in the place of exactly this one; `ConflictError` if it has moved since."""
    bound = {"tenant": before.tenant, "permissions": permissions, "now_ms": now_ms}
    if before.version:
        changed = yield _REPLACE(**bound, expected=before.version)
    else:
        changed = yield _ADD(**bound)
    if not changed:
        raise ConflictError(
            "the tool permissions were changed meanwhile; read them again",
            code="precondition_failed",
        )
    return PermissionsRow(before.tenant, permissions, changed[0][0], now_ms)
