"""Answers that fit a JSON Schema: how a model learns of it, and how its answer is read."""

import orjson
import pytest

from milepost.core.agents import Limits, StructuredOutput
from milepost.core.errors import InvalidError
from milepost.core.events import RunCompleted, RunIncomplete, StructuredRetried
from milepost.core.json import Json
from milepost.core.messages import Message
from milepost.core.model import ResponseFormat
from milepost.core.rulings import Fits, Misfits
from milepost.providers.catalog import Catalog
from milepost.providers.scripted import Scripted, saying
from milepost.runtime.structured import PATTERNS_CHARS_MAX, answer_rule, require_judged
from tests.runtime.workshop import Workshop, of

SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer", "minimum": -90}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
WANTED = StructuredOutput(SCHEMA, "weather")


# --- Reading ---


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Oslo", "degrees": -3}',
        'Here you are:\n```json\n{"city": "Oslo", "degrees": -3}\n```',
        'It is {"city": "Oslo", "degrees": -3}.',
    ],
)
def test_an_answer_is_read_wherever_it_stands(text: str) -> None:
    assert answer_rule(WANTED).read(text) == Fits({"city": "Oslo", "degrees": -3})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cold", "no JSON"),
        ('{"city": "Oslo"}', "missing the required parameter 'degrees'"),
        ('{"city": "Oslo", "degrees": "-3"}', "degrees"),
        ('{"city": "Oslo", "degrees": -300}', "degrees"),
        ('{"city": "Oslo", "degrees": 1, "mood": "ok"}', "mood"),
        ("[]", "object"),
    ],
)
def test_an_answer_that_does_not_fit_says_where(text: str, why: str) -> None:
    read = answer_rule(WANTED).read(text)

    assert isinstance(read, Misfits)
    assert why in read.error


def test_an_answer_keeps_its_own_order() -> None:
    nested: dict[str, Json] = {"type": "object", "properties": {"here": SCHEMA}}
    said = '{"wind":3,"here":{"degrees":-3,"city":"Oslo"},"sky":null}'

    read = answer_rule(StructuredOutput(nested)).read(said)

    assert isinstance(read, Fits)
    assert orjson.dumps(read.value).decode() == said


def test_a_bare_array_is_an_answer_too() -> None:
    wanted = StructuredOutput({"type": "array", "items": {"type": "integer"}})

    assert answer_rule(wanted).read("The numbers: [1, 2]") == Fits([1, 2])


@pytest.mark.parametrize(
    "schema", [{"type": "thing"}, {"$ref": "#/$defs/no"}, {"properties": {"a": {"not": {}}}}]
)
def test_a_schema_that_cannot_be_judged_is_refused(schema: dict[str, Json]) -> None:
    with pytest.raises(InvalidError, match="the response format: the schema at #"):
        require_judged(schema)


@pytest.mark.timeout(10)
def test_a_schema_of_thousands_of_references_keeps_nobody_waiting() -> None:
    definitions: dict[str, Json] = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(20_000)}

    require_judged({"$defs": {**definitions, "d20000": {"type": "string"}}})

    with pytest.raises(InvalidError, match="nothing but that again"):
        require_judged({"$defs": {**definitions, "d20000": {"$ref": "#/$defs/d19999"}}})


@pytest.mark.parametrize(
    "pattern",
    ["^(a+)+$", "(a|a)*b", "(x+x+)+y", "(", r"(a)\1", "(" * 5_000 + ")" * 5_000, "a{99999999999}"],
)
def test_a_pattern_that_could_keep_everybody_waiting_is_refused(pattern: str) -> None:
    schema: dict[str, Json] = {"properties": {"a": {"type": "string", "pattern": pattern}}}

    with pytest.raises(InvalidError, match="the response format: the"):
        require_judged(schema)


@pytest.mark.timeout(10)
def test_patterns_that_are_many_and_long_keep_nobody_waiting() -> None:
    properties: dict[str, Json] = {
        f"p{n}": {"type": "string", "pattern": f"^{n}{'[b-y]z(aa|bb)' * 30}$"} for n in range(2_000)
    }

    with pytest.raises(InvalidError, match=f"and may have {PATTERNS_CHARS_MAX}"):
        require_judged({"properties": properties})
    require_judged({"properties": dict([*properties.items()][:40])})


@pytest.mark.parametrize(
    "pattern", ["^[a-z]*$", r"^\\d{4}-\\d{2}-\\d{2}$", "^(red|green|blue)$", "a+b"]
)
def test_a_pattern_that_is_soon_judged_is_taken(pattern: str) -> None:
    require_judged({"properties": {"a": {"type": "string", "pattern": pattern}}})


@pytest.mark.timeout(10)
def test_a_long_answer_keeps_nobody_waiting_for_a_pattern_that_may_begin_anywhere() -> None:
    long = orjson.dumps("a" * 50_000).decode()

    read = answer_rule(StructuredOutput({"type": "string", "pattern": "[a-z]*1"})).read(long)

    assert isinstance(read, Misfits)
    assert "at most 10000 characters, as the pattern [a-z]*1 does not begin with ^" in read.error
    for pattern in ("^[a-z]*$", r"\w", "a{2,20}"):
        taken = answer_rule(StructuredOutput({"type": "string", "pattern": pattern})).read(long)
        assert isinstance(taken, Fits)


# --- Running ---


async def test_a_vendor_that_takes_schemas_is_told_and_the_prompt_stays_as_it_was(
    shop: Workshop,
) -> None:
    model = Scripted([saying('{"city": "Oslo", "degrees": -3}')])

    run_id = await shop.driven(model, agent=shop.agent(response_format=WANTED))

    [ended] = of(await shop.log(run_id), RunCompleted)
    assert ended.output.parsed == {"city": "Oslo", "degrees": -3}
    [request] = model.requests
    assert request.response_format == ResponseFormat(SCHEMA, "weather")
    assert [message.role for message in request.messages] == ["user"]


async def test_a_model_whose_vendor_takes_none_is_told_itself(shop: Workshop) -> None:
    model = Scripted([saying('{"city": "Oslo", "degrees": -3}')])
    agent = shop.agent(response_format=WANTED, instructions="Be brief.")
    providers = Catalog({"test": model}, instructed=("test",))

    run = await shop.queue()
    means = shop.means(model, providers=providers)
    await (await shop.driving(await shop.claim(), agent, means)).run()

    [request] = model.requests
    assert request.response_format is None
    told = request.messages[0]
    assert told.role == "system"
    assert told.content.startswith("Be brief.\n\n")
    assert '"degrees"' in told.content
    assert of(await shop.log(run.id), RunCompleted)


async def test_a_fallback_that_takes_none_has_all_told_in_words(shop: Workshop) -> None:
    model = Scripted([saying('{"city": "Oslo", "degrees": -3}')])
    agent = shop.agent(response_format=WANTED, fallbacks=("small/model",))
    providers = Catalog({"test": model, "small": model}, instructed=("small",))

    await shop.queue()
    means = shop.means(model, providers=providers)
    await (await shop.driving(await shop.claim(), agent, means)).run()

    [request] = model.requests
    assert request.response_format is None
    assert '"degrees"' in request.messages[0].content


@pytest.mark.parametrize(("mode", "native"), [("native", True), ("instructed", False)])
async def test_an_agent_may_say_how(shop: Workshop, mode: str, *, native: bool) -> None:
    model = Scripted([saying('{"city": "Oslo", "degrees": -3}')])
    wanted = StructuredOutput(SCHEMA, mode=mode)  # type: ignore[arg-type]  # both are modes

    await shop.driven(model, agent=shop.agent(response_format=wanted))

    assert (model.requests[0].response_format is not None) is native


async def test_the_model_hears_what_was_wrong_and_answers_again(shop: Workshop) -> None:
    model = Scripted([saying("It is cold."), saying('{"city": "Oslo", "degrees": -3}')])

    run_id = await shop.driven(model, agent=shop.agent(response_format=WANTED))

    log = await shop.log(run_id)
    [retried] = of(log, StructuredRetried)
    assert model.requests[1].messages[-2:] == (
        Message("assistant", "It is cold."),
        Message("user", retried.notice),
    )
    [ended] = of(log, RunCompleted)
    assert ended.usage.model_calls == 2


async def test_corrections_have_a_budget_of_their_own(shop: Workshop) -> None:
    limits = Limits(max_steps=1, retry_backoff_s=0)
    wanted = StructuredOutput(SCHEMA, retries=2)
    agent = shop.agent(limits=limits, response_format=wanted)
    model = Scripted([saying("a"), saying("b"), saying("c")])

    run_id = await shop.driven(model, agent=agent)

    [ended] = of(await shop.log(run_id), RunIncomplete)
    assert (ended.reason, ended.output.text) == ("structured_output", "c")
    assert len(model.requests) == 3


async def test_a_run_may_want_another_form_than_its_agent(shop: Workshop) -> None:
    model = Scripted([saying('{"city": "Oslo", "degrees": -3}')])

    run_id = await shop.driven(model, response_format=WANTED)

    [ended] = of(await shop.log(run_id), RunCompleted)
    assert ended.output.parsed == {"city": "Oslo", "degrees": -3}
