"""Events that are told anew, without words that have to go: nothing else ever changes a log."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import orjson
from sqlalchemy import select, update

from milepost.store import schema
from milepost.store.dialect import among, in_reach, reach, rows, rows_of, text
from milepost.store.work import Statement, Work

Said = Mapping[str, Any]
Retelling = Callable[[str, Said], Said]
"""Returns what an event of this run says instead; the very same, if it may say that."""

_E = schema.events.c
_in = rows("within", "run_id")
_of = rows("of_types", "type")
_FIND = Statement(
    select(_E.run_id, _E.seq, _E.data).where(
        among(_E.run_id, select(_in.c.run_id).scalar_subquery()),
        in_reach(_E.run_id),
        _E.tenant == text("tenant"),
        _E.type.in_(select(_of.c.type)),
    )
)
_instead = rows("instead", "run_id", "data", numbers=("seq",))
_TELL = Statement(
    update(schema.events)
    .where(
        _E.run_id == _instead.c.run_id,
        _E.seq == _instead.c.seq,
        in_reach(_E.run_id),
        _E.tenant == text("tenant"),
    )
    .values(data=_instead.c.data)
)


def retell(
    tenant: str, run_ids: Collection[str], types: Collection[str], retold: Retelling
) -> Work[None]:
    """Have events of these types in these runs' logs say what `retold` makes of them."""
    if not run_ids:
        return
    found = yield _FIND(
        within=rows_of({"run_id": each} for each in run_ids),
        of_types=rows_of({"type": each} for each in types),
        tenant=tenant,
        **reach(run_ids),
    )
    instead = []
    for run_id, seq, data in found:
        said = orjson.loads(data)
        if (then := retold(run_id, said)) != said:
            told = orjson.dumps(then).decode()
            instead.append({"run_id": run_id, "seq": seq, "data": told})
    if instead:
        yield _TELL(instead=rows_of(instead), tenant=tenant, **reach(run_ids))
