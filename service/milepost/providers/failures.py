"""What a vendor's refusal means: HTTP statuses and error objects as `ProviderError`."""

import math
from collections.abc import Iterable, Iterator, Mapping

import orjson

from milepost.core.errors import ProviderError
from milepost.core.hiding import sifted
from milepost.core.http_dates import seconds_between

STREAM_CUT = "provider_stream_cut"
# A vendor that fell silent, or whose stream broke, had taken the request; one that answers 504
# has refused it.
_AT_WORK = frozenset({STREAM_CUT, "provider_timeout"})

DETAIL_CHARS_MAX = 300
RETRY_AFTER_S_MAX = 3600.0
# Shorter values occur by chance, and hiding them would garble what is told.
_HIDDEN_CHARS_MIN = 8

_CODES = {
    400: "provider_bad_request",
    401: "provider_auth",
    403: "provider_auth",
    404: "provider_bad_request",
    408: "provider_timeout",
    413: "provider_bad_request",
    422: "provider_bad_request",
    429: "provider_rate_limited",
}
_REMEDIES = {
    "provider_auth": "check its API key",
    "provider_bad_request": "check the model's name and the request",
    "provider_overloaded": "try again later",
    "provider_rate_limited": "slow down, or ask for a higher limit",
    "provider_timeout": "try again later",
}
_RETRYABLE = {"provider_overloaded", "provider_rate_limited", "provider_timeout"}
# Statuses that vendors put into words where an error comes inside of a stream. Those in capitals
# are Google's.
_STATUSES = {
    "DEADLINE_EXCEEDED": 504,
    "INTERNAL": 500,
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "UNAUTHENTICATED": 401,
    "UNAVAILABLE": 503,
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 402,
    "context_length_exceeded": 400,
    "insufficient_quota": 429,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "request_too_large": 413,
    "server_error": 500,
    "timeout_error": 504,
}
# They come with 429, but no waiting helps: somebody has to pay.
_OUT_OF_MONEY = {
    "contract_spend_limit_reached",
    "enforced_spend_limit_reached",
    "insufficient_quota",
    "linked_organization_spend_limit_reached",
}
# Google says 400 to a key that it does not know.
_BAD_KEY = "API_KEY_INVALID"


def was_at_work(error: ProviderError) -> bool:
    """Say whether the vendor may have been at work when a call failed, and bills it.

    One that was not reached, or that refused the request, bills nothing.
    """
    if error.at_work is not None:
        return error.at_work
    return error.code in _AT_WORK and error.status is None


class Failures:
    """Words one vendor's failures, without ever repeating the key that it was given.

    Nor does it repeat `headers`, the values that were sent with each request.
    """

    def __init__(self, vendor: str, secret: str | None, headers: Iterable[str] = ()) -> None:
        self._vendor = vendor
        told = [part for value in headers for part in _parts(value)]
        self._secrets = frozenset({*told, *([secret] if secret else ())})

    def refused(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """Return the error that an HTTP status other than 200 stands for."""
        text = body.decode(errors="replace")
        answer = _parse(text)
        error = answer.get("error") or answer
        detail = _redirection(status, headers) or _message(error) or text
        after_s = _retry_after_s(headers)
        if after_s is None:
            after_s = _retry_delay_s(error)
        request_id = headers.get("request-id") or headers.get("x-request-id") or ""
        refusal = self._of_status(
            status, detail, _kind(error), retry_after_s=after_s, request_id=request_id
        )
        if (told := headers.get("x-should-retry")) in {"true", "false"}:
            refusal.retryable = told == "true"  # Some vendors know, and say so.
        return refusal

    def inside(self, error: object) -> ProviderError:
        """Return the error that an error object stands for, inside of a reply with status 200."""
        status = _status(error)
        detail = _message(error) or str(error)
        if status is None:
            return ProviderError(f"{self._vendor} failed: {self._cut(detail)}", retryable=True)
        after_s = _retry_delay_s(error)
        return self._of_status(status, detail, _kind(error), retry_after_s=after_s)

    def not_streamed(self, body: bytes) -> ProviderError:
        """Return the error of a plain JSON answer where a stream was asked for."""
        answer = _parse(body.decode(errors="replace"))
        if error := answer.get("error"):
            return self.inside(error)
        return self.unreadable("a plain answer where a stream was asked for", body)

    def cut_short(self, last_words: bytes = b"") -> ProviderError:
        """Return the error of a stream that ended in the middle of the reply.

        Its last words may be an error object that is no event, as Google's are.
        """
        if error := _parse(last_words.decode(errors="replace")).get("error"):
            return self.inside(error)
        return ProviderError(
            f"{self._vendor}'s stream broke off in the middle of the reply; try again",
            code=STREAM_CUT,
            retryable=True,
        )

    def hung_up(self) -> ProviderError:
        """Return the error of a vendor that went away before its answer, and had the request."""
        return ProviderError(
            f"{self._vendor} had the request, and hung up before it answered; try again",
            code=STREAM_CUT,
            retryable=True,
        )

    def unreadable(self, what: str, payload: bytes) -> ProviderError:
        """Return the error of an answer that is not what the wire prescribes."""
        detail = self._cut(payload.decode(errors="replace"))
        return ProviderError(f"{self._vendor} sent {what}: {detail}", retryable=True)

    def unreachable(self, cause: Exception, *, retryable: bool = True) -> ProviderError:
        """Return the error of a connection that could not be made, or broke at once."""
        return ProviderError(
            f"{self._vendor} cannot be reached ({self._cut(str(cause) or type(cause).__name__)});"
            " check its base URL and the network",
            code="provider_unreachable",
            retryable=retryable,
        )

    def timed_out(self, awaited: str, after_s: float) -> ProviderError:
        """Return the error of a vendor that kept us waiting."""
        return ProviderError(
            f"{self._vendor} sent no {awaited} within {after_s:g} s; try again later",
            code="provider_timeout",
            retryable=True,
        )

    def _of_status(
        self, status: int, detail: str, kind: str, *, retry_after_s: float | None = None,
        request_id: str = "",
    ) -> ProviderError:  # fmt: skip
        code = "provider_overloaded" if status >= 500 else _CODES.get(status, "provider_error")
        code = "provider_auth" if kind == _BAD_KEY else code
        remedy = f"; {_REMEDIES[code]}" if code in _REMEDIES else ""
        named = f" (request {self._cut(request_id)})" if request_id else ""
        return ProviderError(
            f"{self._vendor} answered {status}: {self._cut(detail)}{named}{remedy}",
            code=code,
            retryable=code in _RETRYABLE and kind not in _OUT_OF_MONEY,
            retry_after_s=retry_after_s,
            status=status,
        )

    def _cut(self, detail: str) -> str:
        told, _ = sifted(self._secrets, detail, "[key]", len(detail))
        detail = " ".join(told.split())
        if len(detail) > DETAIL_CHARS_MAX:
            return detail[:DETAIL_CHARS_MAX] + "…"
        return detail or "(no details)"


def _parts(header: str) -> Iterator[str]:
    """Yield what to hide of a header: all of it, and a credential without its scheme as well."""
    match header.split(" "):
        case [_, credential] if len(credential) >= _HIDDEN_CHARS_MIN:
            yield credential
        case _:
            pass  # A sentence, or a credential by itself.
    if len(header) >= _HIDDEN_CHARS_MIN:
        yield header


def _redirection(status: int, headers: Mapping[str, str]) -> str:
    """Return where the vendor sends us, if it does: no key goes to where nobody told it to."""
    if not 300 <= status < 400 or not (location := headers.get("location")):
        return ""
    return f"it redirects to {location}; make that its base URL, if that is right"


def _parse(text: str) -> dict[str, object]:
    try:
        answer = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    if isinstance(answer, list) and answer:
        answer = answer[0]  # Google wraps the error of a stream in a list.
    return answer if isinstance(answer, dict) else {}


def _message(error: object) -> str:
    match error:
        case str():
            return error
        case {"message": str(message)} | {"detail": str(message)}:
            return message
        case _:
            return ""


def _kind(error: object) -> str:
    match error:
        case {"code": str(code)} | {"details": {"error_code": str(code)}}:
            return code
        case {"type": str(kind)}:
            return kind
        case _:
            return _detail(error, "reason")


def _status(error: object) -> int | None:
    match error:
        case {"code": int(status)} | {"status": int(status)} if 400 <= status < 600:
            return status
        case {"code": str(code)} if code in _STATUSES:
            return _STATUSES[code]
        case {"type": str(kind)} | {"status": str(kind)}:
            return _STATUSES.get(kind)
        case _:
            return None


def _retry_delay_s(error: object) -> float | None:
    """Return what Google asks us to wait: `"retryDelay": "17.4s"` among an error's details."""
    return _bounded(_detail(error, "retryDelay").removesuffix("s"), 1.0)


def _detail(error: object, name: str) -> str:
    """Return what the first of an error's details that has a text under `name` says there."""
    match error:
        case {"details": list(details)}:
            said = (detail.get(name) for detail in details if isinstance(detail, dict))
            return next((text for text in said if isinstance(text, str)), "")
        case _:
            return ""


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    after = headers.get("retry-after", "")
    for said, unit_s in ((headers.get("retry-after-ms", ""), 0.001), (after, 1.0)):
        if (seconds := _bounded(said, unit_s)) is not None:
            return seconds
    until_s = seconds_between(headers.get("date"), after)
    return None if until_s is None else min(until_s, RETRY_AFTER_S_MAX)


def _bounded(text: str, unit_s: float) -> float | None:
    try:
        seconds = float(text) * unit_s
    except ValueError:
        return None
    if math.isnan(seconds) or seconds < 0:
        return None
    return min(seconds, RETRY_AFTER_S_MAX)
