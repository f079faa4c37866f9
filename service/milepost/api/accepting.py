"""In which form an answer is wanted, out of several that it comes in."""

from starlette.requests import Request
from starlette.responses import Response

from milepost.core.errors import InvalidError

EVENTS = "text/event-stream"
JSON = "application/json"
LINES = "application/x-ndjson"


def accepted(request: Request, *forms: str) -> str:
    """Return which of the forms `Accept` asks for; whoever takes anything gets the first."""
    asked = request.headers.get("accept", "*/*")
    first = forms[0]
    for part in asked.split(","):
        form = part.partition(";")[0].strip().lower()
        if form in forms:
            return form
        if form in {f"{first.partition('/')[0]}/*", "*/*", ""}:
            return first
    raise InvalidError(f"this comes as {' or '.join(forms)}, not {asked!r}", code="not_acceptable")


def headers_of_a_stream(form: str) -> Response:
    """Answer a HEAD: who wants no body waits for none."""
    answer = Response(media_type=form)
    del answer.headers["content-length"]
    return answer
