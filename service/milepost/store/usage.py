"""What model calls took, and to whose account."""

from dataclasses import fields

from sqlalchemy import func, select

from milepost.core.usage import Usage
from milepost.store import schema
from milepost.store.dialect import text
from milepost.store.work import Statement, Work

_U = schema.usage.c
_sums = [func.coalesce(func.sum(_U[field.name]), 0) for field in fields(Usage)]
_TOTAL = Statement(select(*_sums).where(_U.tenant == text("tenant"), _U.run_id == text("run_id")))


def total(tenant: str, run_id: str) -> Work[Usage]:
    """Return what the run has used so far."""
    ((*sums,),) = yield _TOTAL(tenant=tenant, run_id=run_id)
    return Usage(*(int(value) for value in sums))
