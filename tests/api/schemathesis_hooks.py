"""What schemathesis is told of the service: which things there are, and what never ends.

Left out, because it lasts as long as a run does: a stream that is followed, and a wait for a run's
end. Streams are followed by the tests of the stream itself.
"""

import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

import schemathesis
from schemathesis import Case, HookContext, Response
from schemathesis.core.failures import Failure

# Names and ids of things that are there, by the parameter that names one.
THERE: dict[str, list[str]] = json.loads(os.environ["CONTRACT_THINGS"])
# The same for one operation alone: what it may delete, or what nothing else shall use up.
ITS_OWN: dict[str, dict[str, list[str]]] = json.loads(os.environ["CONTRACT_THINGS_OF"])
ANSWERS = Path(os.environ["CONTRACT_ANSWERS"])
# Why a request may be refused that its schema allows: what there is just now, a tool's own schema,
# or one part of the request beside another.
BEYOND_A_SCHEMA = {
    "agent_required",
    "invalid_export",
    "cursor_ahead",
    "digest_required",
    "duplicate_call",
    "duplicate_custom_id",
    "idempotency_key_reused",
    "invalid_arguments",
    "invalid_guardrail",
    "invalid_tool_source",
    "memory_unfit",
    "name_is_fixed",
    "not_acceptable",
    "not_pinnable",
    "one_page",
    "precondition_failed",
    "unknown_event",
    "unknown_guardrail",
    "unknown_provider",
    "tool_source_unreachable",
    "user_required",
    "wrong_decision",
    "unknown_tool",
    "url_not_allowed",
}
_REFUSED = "Schema-valid request rejected"
_NOT_FOUND = "Created resource not found"
NOBODY = "none"
_URL = re.compile(r"https?://[^\x00-\x20\x7f]{1,1900}\Z")
TIMES = {
    "cron": (
        re.compile(r"[0-9A-Za-z*,/#-]+(?: +[0-9A-Za-z*,/#-]+){4}"),
        ["0 9 * * MON-FRI", "59 23 L 12 *", "0 0 1 */3 *"],
    ),
    "timezone": (
        re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,2}"),
        ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires"],
    ),
}
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Name things that are there in every second case, never wait, delete what is meant for it."""
    del context, kwargs
    _be_impatient(case)
    if isinstance(case.body, dict):
        case.body = body = _whole({**case.body, **_unstreamed(case.body)})
        _name_what_is_there(body)
        _disturb_nobody(case, body)
        _send_nowhere(case, body)
        _tell_the_time(case, body)
    if case.method == "DELETE":
        _spare_what_is_there(case.path_parameters)
    elif _phase(case) != "stateful":
        _name_what_is_there(case.path_parameters)
        _name_what_is_there(case.query)
    if own := ITS_OWN.get(case.operation.label):
        _name_its_own(case, own)


@schemathesis.hook
def after_call(context: HookContext, case: Case[Any], response: Response) -> None:
    """Write down what was asked, and how that was answered."""
    del context
    with ANSWERS.open("a") as answers:
        answers.write(f"{case.operation.label} {response.status_code}\n")


@schemathesis.hook
def filter_failure(
    context: HookContext, failure: Failure, case: Case[Any], response: Response
) -> bool:
    """Count no refusal as a failure whose reason no schema can say, or that we brought about."""
    del context
    if failure.title == _NOT_FOUND:
        return NOBODY not in case.path_parameters.values()
    if failure.title != _REFUSED:
        return True
    code = response.json()["code"]
    # Of a tool and of a model, or of a message and of an agent: each alone is right.
    both = code == "bad_query" and case.operation.path.endswith(("/usage", "/state"))
    both |= code == "bad_cursor" and case.operation.path.startswith("/v1/sessions/")  # whose run?
    # Which types of events there are, no schema says either.
    both |= code == "bad_query" and "types" in (case.query or {})
    said = case.body if isinstance(case.body, dict) else {}
    # Which answer a question takes, and what a rule may mean, no schema says.
    judged = "decision" in said or bool(said.get("policy"))
    return not (code in BEYOND_A_SCHEMA or both or judged or _is_of_a_schema(response.json()))


def _is_of_a_schema(problem: dict[str, Any]) -> bool:
    """Say whether nothing is wrong but a JSON Schema in the request, of which the contract says
    little more than that it is one.
    """
    wrong = [each["pointer"] for each in problem.get("errors", ())]
    return bool(wrong) and all(pointer.endswith("/response_format/schema") for pointer in wrong)


def _be_impatient(case: Case[Any]) -> None:
    if case.operation.path.endswith("/events"):
        case.headers.setdefault("Accept", "application/json")
    if case.operation.path.endswith("/wait"):
        case.query.setdefault("timeout_s", 0)
    if case.operation.path == "/v1/channels/{channel}/messages":
        case.query.setdefault("wait", 0)
    for name in ("wait", "timeout_s"):
        if str(case.query.get(name, "")).isdecimal() and 0 <= int(case.query[name]) <= 120:
            case.query[name] = 0
    case.headers.pop("Prefer", None)


def _unstreamed(body: dict[str, Any]) -> dict[str, Any]:
    return {"stream": False} if body.get("stream") is True else {}


def _name_what_is_there(part: dict[str, Any]) -> None:
    for name, there in THERE.items():
        value = part.get(name)
        if isinstance(value, str) and _PLAIN.fullmatch(value):
            chance = zlib.crc32(value.encode())
            if chance % 2:
                part[name] = there[chance // 2 % len(there)]


def _name_its_own(case: Case[Any], own: dict[str, list[str]]) -> None:
    """Name one of the operation's own things; in the contract's examples always."""
    for name, there in own.items():
        value = str(case.path_parameters.get(name, ""))
        chance = zlib.crc32(value.encode())
        if _phase(case) == "examples" or (_PLAIN.fullmatch(value) and chance % 2):
            case.path_parameters[name] = there[chance // 2 % len(there)]


def _phase(case: Case[Any]) -> str:
    return "" if case.meta is None else case.meta.phase.name.value


def _disturb_nobody(case: Case[Any], body: dict[str, Any]) -> None:
    """Call no tool in a session that is there: another run of it may wait for a person for days."""
    if case.operation.path.endswith("/call"):
        _spare_what_is_there(body)


def _send_nowhere(case: Case[Any], body: dict[str, Any]) -> None:
    """Let webhooks lead to this machine, where nobody listens: what they are told goes nowhere."""
    url = body.get("url")
    if case.operation.path.startswith("/v1/webhooks") and isinstance(url, str) and _URL.match(url):
        body["url"] = "http://127.0.0.2:9/hook"


def _tell_the_time(case: Case[Any], body: dict[str, Any]) -> None:
    """Name days that come and places that are: which words do, no schema says."""
    if case.operation.path.startswith("/v1/schedules"):
        for name, (form, there) in TIMES.items():
            if isinstance(body.get(name), str) and form.fullmatch(body[name]):
                body[name] = there[zlib.crc32(body[name].encode()) % len(there)]


def _spare_what_is_there(part: dict[str, Any]) -> None:
    """Let nobody delete what the others are to find, such as the key that all of them use."""
    for name, there in THERE.items():
        if part.get(name) in there:
            part[name] = NOBODY


def _whole(value: Any) -> Any:
    """Return the value with integers written as such, to a schema 2.0 is one, and of 64 bits.

    Of those in free JSON the contract says that in words, as of NUL.
    """
    match value:
        case int() if not -(2**63) <= value < 2**63:
            return value % 2**63
        case float() if value.is_integer() and abs(value) < 2**53:
            return int(value)
        case dict():
            return {key: _whole(each) for key, each in value.items()}
        case list():
            return [_whole(each) for each in value]
        case _:
            return value
