"""Sessions that requests make: anew, as a fork of another, or out of what was exported."""

import orjson
from pydantic import Field
from starlette.responses import Response

from milepost.api.bodies import Body, UserName
from milepost.api.conditions import etag
from milepost.api.paging import json_response
from milepost.api.replays import Made
from milepost.api.session_shown import ms, show_session
from milepost.runtime.agent_spec import Metadata
from milepost.runtime.session_spec import Span, TermsSpec, Title
from milepost.store.sessions import NewSession, SessionRow


class SessionCreate(Body):
    """What `POST /v1/sessions` takes."""

    user: UserName | None = None
    title: Title | None = None
    metadata: Metadata = Field(default_factory=dict)
    ttl_s: Span | None = None
    keep_s: Span | None = None


def session_of(
    terms: SessionCreate | TermsSpec, tenant: str, user: str | None, *, session_id: str, now_ms: int
) -> NewSession:
    """Return the session on these terms; whose it is has been looked at."""
    return NewSession(
        id=session_id,
        tenant=tenant,
        user=user,
        title=terms.title,
        metadata=orjson.dumps(terms.metadata).decode(),
        created_ms=now_ms,
        ttl_ms=ms(terms.ttl_s),
        keep_ms=ms(terms.keep_s),
    )


def created(made: Made[SessionRow]) -> Response:
    """Answer whoever had the session made."""
    row = made.resource
    headers = made.headers(Location=f"/v1/sessions/{row.id}", ETag=etag(row))
    return json_response(show_session(row), 201, headers)
