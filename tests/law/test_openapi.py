"""`openapi.yaml` says what is served, all of it and nothing else."""

import dataclasses
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import httpx2
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from starlette.routing import Route

from milepost.api.approval_bodies import (
    ApprovalDecision,
    ApprovalDecisions,
    ApprovalWithdrawal,
)
from milepost.api.batch_items import BatchItem
from milepost.api.batches import BatchCancel
from milepost.api.budgets import BudgetChange, BudgetCreate, BudgetLimits
from milepost.api.channels import ChannelMessage
from milepost.api.memories import MemoryCreate, MemoryPut
from milepost.api.new_batches import BatchCreate
from milepost.api.new_runs import OtherMessageBody, RunCreate, UserMessageBody
from milepost.api.new_sessions import SessionCreate
from milepost.api.partials import PARTIAL
from milepost.api.policies import PolicyBody, PolicyCheck
from milepost.api.retention import RetentionBody
from milepost.api.run_forks import RunFork
from milepost.api.run_replays import RunReplay
from milepost.api.runs import RunCancel
from milepost.api.secrets import SecretValue
from milepost.api.service import Api
from milepost.api.sessions import SessionChange
from milepost.api.tool_calls import ToolCallCreate
from milepost.api.tool_permissions import ToolPermissionsBody
from milepost.api.tool_results import ToolResult, ToolResults
from milepost.api.webhooks import (
    WebhookChange,
    WebhookCreate,
    WebhookSecretRotate,
    WebhookSend,
)
from milepost.core.codec import EVENTS
from milepost.core.errors import ConflictError, ForbiddenError, MilepostError, UnauthorizedError
from milepost.core.spans import SpanKind, SpanStatus
from milepost.core.webhooks import TYPES
from milepost.live.hub import TextKind
from milepost.runtime.agent_spec import AgentSpec, CacheSpec, LimitsSpec
from milepost.runtime.credentials import SCOPES, KeySpec
from milepost.runtime.guardrail_spec import (
    CoherenceSpec,
    GuardrailsSpec,
    InjectionSpec,
    LengthSpec,
    PiiSpec,
    PythonRailSpec,
    RegexSpec,
    TopicsSpec,
)
from milepost.runtime.policy_spec import PolicySpec
from milepost.runtime.tool_source import ClientSource, HttpSource, McpSource, OpenApiSource
from milepost.settings import Settings
from milepost.tools.declaration import ClientToolSpec
from milepost.tools.http.declared import HttpToolSpec
from milepost.wiring import process
from tests.contract import CONTRACT
from tests.law.codes import SOURCE, failure_codes, made_without_a_code, named_codes

SCHEMAS: dict[str, Any] = CONTRACT["components"]["schemas"]
# These keep a command from its work, or stay between the parts of one: no problem and no log has
# them.
UNSEEN = {
    "aborted",
    "api_error",
    "cannot_bind",
    "collision",
    "conflict",
    "demo_failed",
    "database_in_use",
    "database_refused",
    "fenced",
    "forbidden",
    "group_split",
    "inbox_moved",
    "invalid_tool",
    "misconfigured",
    "no_keys",
    "statement_refused",
    "part_died",
    "run_not_completed",
    "secret_unreadable",
    "unauthorized",
    "unknown_group",
    "unreachable",
    "weak_secret_key",
}
# What a stream carries beside the log.
NOT_IN_THE_LOG = {
    PARTIAL,
    "error",
    "stream.lagged",
    "stream.idle",
    "stream.reconnect",
    *get_args(TextKind),
}


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """The API of a process as it starts."""
    monkeypatch.chdir(tmp_path)
    settings = Settings(database_url=f"sqlite:///{tmp_path}/milepost.db", slots=0)
    async with process(settings) as running:
        yield running.app


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in CONTRACT["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method.upper(), operation


def within(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in the document."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from within(item)


def codes_of(name: str) -> dict[str, str]:
    return {each["const"]: each["description"] for each in SCHEMAS[name]["oneOf"]}


async def test_what_is_served_is_in_the_contract_and_the_other_way_round(api: Api) -> None:
    served = {
        (route.path_format, method)
        for route in api.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }

    promised = {(path, method) for path, method, _ in operations()}

    assert served == promised


def test_the_contract_is_valid_openapi() -> None:
    import schemathesis  # noqa: PLC0415 - seconds, for each process that reads this file

    schemathesis.openapi.from_dict(CONTRACT).validate()

    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)


def test_no_words_of_the_contract_are_taken_for_anything_else() -> None:
    """In braces YAML takes what follows a comma for a member, and anywhere `off` for false."""
    members: list[tuple[Any, Any]] = [
        member for part in within(CONTRACT) for member in part.items()
    ]

    strange = [
        name
        for name, value in members
        if not isinstance(name, str) or (value is None and " " in name)
    ]

    assert strange == []


def test_every_operation_has_a_name_of_its_own_and_the_answers_that_any_may_give() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    lacking = [
        (path, method)
        for path, method, operation in operations()
        if path.startswith("/v1/")
        and not {"400", "401", "403", "421", "429", "503"} <= set(operation["responses"])
    ]

    assert len(set(names)) == len(names)
    assert lacking == []


def test_every_operation_whose_path_names_something_says_that_it_may_not_be_there() -> None:
    lacking = [
        (path, method)
        for path, method, operation in operations()
        if "{" in path and "404" not in operation["responses"]
    ]

    assert lacking == [], "nothing has a NUL character in its name"


def test_every_operation_that_takes_a_body_says_how_it_refuses_one() -> None:
    lacking = [
        (path, method)
        for path, method, operation in operations()
        if "requestBody" in operation and not {"413", "415", "422"} <= set(operation["responses"])
    ]

    assert lacking == []


async def test_every_query_parameter_that_is_taken_is_promised_and_no_other(api: Api) -> None:
    """Who sends one that there is none of is told which there are."""
    taken, promised = {}, {}
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(api), base_url="http://localhost"
    ) as client:
        for path, method, operation in operations():
            if not path.startswith("/v1/"):
                continue
            there = re.sub(r"{approval_id}", "apr_1", re.sub(r"{(?!approval)\w+}", "one", path))
            answer = await client.request(
                method, f"{there}?nonsense=1", headers={"content-type": "application/json"}
            )
            named = answer.json()["detail"].partition("'nonsense'; there are: ")[2]
            taken[method, path] = {name.partition("[")[0] for name in named.split(", ")} - {"none"}
            promised[method, path] = _queried(path, operation)

    assert taken == promised


def _queried(path: str, operation: dict[str, Any]) -> set[str]:
    """Return the names of the parameters that stand in a query."""
    listed = [*CONTRACT["paths"][path].get("parameters", []), *operation.get("parameters", [])]
    shared = CONTRACT["components"]["parameters"]
    named = [shared[each["$ref"].rpartition("/")[2]] if "$ref" in each else each for each in listed]
    return {each["name"] for each in named if each["in"] == "query"}


def test_every_part_of_the_contract_is_used_and_none_that_there_is_not() -> None:
    used = {part["$ref"] for part in within(CONTRACT) if "$ref" in part}
    parts = {
        f"#/components/{kind}/{name}"
        for kind, named in CONTRACT["components"].items()
        for name in named
        if kind != "securitySchemes"
    }

    # What a stream carries is named in words: OpenAPI 3.1 cannot describe it.
    streamed = {"ApprovalEvent", "BatchEvent", "StreamEvent"}
    assert parts - used == {f"#/components/schemas/{name}" for name in streamed}
    assert used - parts == set(), "what is referred to is there"


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_an_event_is_promised_with_exactly_its_fields(name: str) -> None:
    fields = {field.name for field in dataclasses.fields(EVENTS[name])}
    wire = {"for" if field == "cause" else field for field in fields}

    promised = SCHEMAS[name]["properties"]["data"]
    promised = SCHEMAS["Waiting"] if "$ref" in promised else promised

    assert SCHEMAS[name]["properties"]["type"] == {"const": name}
    assert set(promised["properties"]) == wire
    assert set(promised["required"]) == wire


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        (name, field, set(get_args(kind)))
        for name, event in sorted(EVENTS.items())
        for field, kind in get_type_hints(event).items()
        if get_origin(kind) is Literal
    ],
)
def test_a_field_that_has_one_of_some_words_is_promised_with_all_of_them(
    name: str, field: str, values: set[str]
) -> None:
    data = SCHEMAS[name]["properties"]["data"]
    data = SCHEMAS["Waiting"] if "$ref" in data else data
    promised = data["properties"]["for" if field == "cause" else field]
    if "$ref" in promised:
        promised = SCHEMAS[promised["$ref"].rpartition("/")[2]]

    assert set(promised["enum"]) == values


def test_the_log_has_the_events_that_are_promised_and_a_stream_has_those_and_its_own() -> None:
    def names(of: str, key: str) -> set[str]:
        return {each["$ref"].rpartition("/")[2] for each in SCHEMAS[of][key]}

    assert names("Event", "oneOf") == set(EVENTS)
    assert names("StreamEvent", "anyOf") == {"Event"} | NOT_IN_THE_LOG


def test_what_a_stream_says_for_itself_is_promised() -> None:
    said = {
        name
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r'(?:ephemeral|notice)\(\s*"([a-z_.]+)"', path.read_text())
    }

    assert said
    assert said <= NOT_IN_THE_LOG


def test_every_code_that_the_source_names_is_promised() -> None:
    promised = codes_of("ProblemCode").keys() | codes_of("FailureCode").keys()

    assert named_codes().keys() - promised == UNSEEN


def test_every_code_that_a_failure_is_given_is_promised_as_one() -> None:
    given = failure_codes()

    assert given
    assert given <= codes_of("FailureCode").keys()


@pytest.mark.parametrize("kind", [ConflictError, ForbiddenError, UnauthorizedError])
def test_a_refusal_whose_own_code_says_nothing_is_made_with_one_that_does(
    kind: type[MilepostError],
) -> None:
    assert kind.code in UNSEEN
    assert made_without_a_code(kind.__name__) == []


def test_every_code_that_is_promised_is_named_in_the_source() -> None:
    promised = codes_of("ProblemCode").keys() | codes_of("FailureCode").keys()

    assert promised - named_codes().keys() == set()


def test_a_code_is_promised_with_the_status_that_it_is_answered_with() -> None:
    promised = codes_of("ProblemCode")
    answered = {
        code: {status for status in statuses if status}
        for code, statuses in named_codes().items()
        if code not in UNSEEN
    }

    wrong = {
        (code, status)
        for code, statuses in answered.items()
        for status in statuses
        if not promised.get(code, "").startswith(f"{status}: ")
    }

    assert wrong == set()


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("AgentCreate", AgentSpec),
        ("AgentChange", AgentSpec),
        ("ApprovalDecision", ApprovalDecision),
        ("ApprovalDecisions", ApprovalDecisions),
        ("ApprovalWithdrawal", ApprovalWithdrawal),
        ("BudgetChange", BudgetChange),
        ("BudgetCreate", BudgetCreate),
        ("BudgetLimits", BudgetLimits),
        ("BatchCancel", BatchCancel),
        ("BatchCreate", BatchCreate),
        ("BatchItem", BatchItem),
        ("Cache", CacheSpec),
        ("ChannelMessage", ChannelMessage),
        ("Coherence", CoherenceSpec),
        ("Guardrails", GuardrailsSpec),
        ("InjectionRail", InjectionSpec),
        ("KeyCreate", KeySpec),
        ("LengthRail", LengthSpec),
        ("MemoryCreate", MemoryCreate),
        ("MemoryPut", MemoryPut),
        ("Limits", LimitsSpec),
        ("OtherMessage", OtherMessageBody),
        ("UserMessage", UserMessageBody),
        ("PiiRail", PiiSpec),
        ("Policy", PolicySpec),
        ("PythonRail", PythonRailSpec),
        ("RegexRail", RegexSpec),
        ("RunCancel", RunCancel),
        ("RunFork", RunFork),
        ("RunReplay", RunReplay),
        ("RunCreate", RunCreate),
        ("SecretValue", SecretValue),
        ("RetentionPut", RetentionBody),
        ("SessionChange", SessionChange),
        ("SessionCreate", SessionCreate),
        ("ClientTool", ClientToolSpec),
        ("ClientToolSource", ClientSource),
        ("HttpTool", HttpToolSpec),
        ("HttpToolSource", HttpSource),
        ("McpToolSource", McpSource),
        ("OpenApiToolSource", OpenApiSource),
        ("ToolCallCreate", ToolCallCreate),
        ("TopicsRail", TopicsSpec),
        ("PolicyCheck", PolicyCheck),
        ("PolicyPut", PolicyBody),
        ("ToolPermissionsPut", ToolPermissionsBody),
        ("ToolResult", ToolResult),
        ("ToolResults", ToolResults),
        ("WebhookChange", WebhookChange),
        ("WebhookCreate", WebhookCreate),
        ("WebhookSecretRotate", WebhookSecretRotate),
        ("WebhookSend", WebhookSend),
    ],
)
def test_a_body_is_promised_with_the_fields_that_are_taken(
    name: str, model: type[BaseModel]
) -> None:
    needed = {field for field, told in model.model_fields.items() if told.is_required()}

    promised = SCHEMAS[name]

    assert promised["additionalProperties"] is False
    assert set(promised["properties"]) == set(model.model_fields)
    assert set(promised.get("required", [])) == (set() if name == "AgentChange" else needed)


def test_the_scopes_are_promised() -> None:
    assert set(SCHEMAS["Scope"]["enum"]) == set(SCOPES)


def test_the_types_of_events_that_webhooks_are_told_of_are_promised() -> None:
    assert set(SCHEMAS["WebhookMessageType"]["enum"]) == TYPES


def test_the_types_of_a_trace_s_steps_are_promised() -> None:
    assert tuple(SCHEMAS["SpanKind"]["enum"]) == get_args(SpanKind)
    assert tuple(SCHEMAS["SpanStatus"]["enum"]) == get_args(SpanStatus)


def test_every_example_is_what_its_schema_says() -> None:
    document = DRAFT202012.create_resource(CONTRACT)
    registry: Registry[Any] = Registry().with_resource("urn:contract", document)
    examples = list(_examples())

    for schema, example in examples:
        absolute = _absolute(schema)
        Draft202012Validator(
            absolute, registry=registry, format_checker=Draft202012Validator.FORMAT_CHECKER
        ).validate(example)

    assert len(examples) > 15


def _examples() -> Iterator[tuple[Any, Any]]:
    """Yield schemas with their examples: of bodies, of parameters, and those of schemas."""
    for part in within(CONTRACT):
        schema = part.get("schema", part)
        if "example" in part:
            yield schema, part["example"]
        match part.get("examples"):
            case dict(named):
                for each in named.values():
                    yield schema, each["value"]
            case list(listed):
                for each in listed:
                    yield part, each
            case _:
                pass


def _absolute(schema: Any) -> Any:
    """Return the schema with references that do not depend on where it stands."""
    if isinstance(schema, dict):
        return {
            key: f"urn:contract{value}" if key == "$ref" else _absolute(value)
            for key, value in schema.items()
        }
    return [_absolute(each) for each in schema] if isinstance(schema, list) else schema
