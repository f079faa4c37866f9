"""What is stored encrypted; this module sees ciphertext only."""

from sqlalchemy import delete as delete_from
from sqlalchemy import select, update

from milepost.core.errors import NotFoundError
from milepost.store import schema
from milepost.store.dialect import insert_new, number, text
from milepost.store.work import Statement, Work

_S = schema.secrets.c
_one = (_S.tenant == text("tenant")) & (_S.name == text("name"))

_ADD = Statement(
    insert_new(schema.secrets)
    .values(
        tenant=text("tenant"),
        name=text("name"),
        ciphertext=text("ciphertext"),
        created_ms=number("now_ms"),
    )
    .returning(_S.name)
)
_REPLACE = Statement(
    update(schema.secrets)
    .where(_one)
    .values(ciphertext=text("ciphertext"), created_ms=number("now_ms"))
)
_GET = Statement(select(_S.ciphertext).where(_one))
_DELETE = Statement(delete_from(schema.secrets).where(_one).returning(_S.name))
_NAMES = Statement(select(_S.name).where(_S.tenant == text("tenant")).order_by(_S.name))


def put(tenant: str, name: str, ciphertext: str, now_ms: int) -> Work[None]:
    """Keep a secret, in the place of an earlier one of that name."""
    bound = {"tenant": tenant, "name": name, "ciphertext": ciphertext, "now_ms": now_ms}
    if not (yield _ADD(**bound)):
        yield _REPLACE(**bound)


def get(tenant: str, name: str) -> Work[str]:
    """Return a secret's ciphertext; raise `NotFoundError` if the tenant has none such."""
    found = yield _GET(tenant=tenant, name=name)
    if not found:
        raise _not_found(name)
    return str(found[0][0])


def delete(tenant: str, name: str) -> Work[None]:
    """Forget a secret; raise `NotFoundError` if the tenant has none such."""
    if not (yield _DELETE(tenant=tenant, name=name)):
        raise _not_found(name)


def names(tenant: str) -> Work[list[str]]:
    """Return the names of the tenant's secrets."""
    return [name for (name,) in (yield _NAMES(tenant=tenant))]


def _not_found(name: str) -> NotFoundError:
    return NotFoundError(f"there is no secret {name!r}", code="secret_not_found")
