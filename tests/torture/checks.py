"""What must hold of every run, whatever was done to the processes, and what does not."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

import orjson

from milepost.core.codec import decode
from milepost.core.events import MessageAborted, MessageCompleted
from milepost.core.usage import Usage
from milepost.telemetry.spans import SpanFold
from tests.torture.follower import TERMINAL
from tests.torture.history import Batch, Entry, History, Question, Run, SpanRow
from tests.torture.ledger import Effect, by_call
from tests.torture.load import Followed
from tests.torture.times import Time

ENDED = frozenset({"completed", "incomplete", "failed", "cancelled", "expired"})
NEVER_TWICE = frozenset({"once", "gated"})
CLAIMS = ("run.started", "run.resumed")


def violations(
    history: History, effects: Iterable[Effect], followed: Mapping[str, Followed]
) -> Iterator[str]:
    """Yield what is wrong, in words."""
    for run in history.runs.values():
        # What is beside a log that contradicts itself says nothing more.
        wrong = list(_of_run(run)) or _beside(history, run)
        yield from (f"{run.id}: {said}" for said in wrong)
    yield from _of_keys(history, followed)
    yield from _of_sessions(history)
    yield from _of_effects(history, list(effects))
    yield from _of_questions(history)
    yield from _of_clients(history, followed)
    yield from _of_children(history)
    for batch in history.batches:
        yield from (f"{batch.id}: {said}" for said in _of_batch(history, batch))


def untimely(history: History, known: Collection[Time], unsure: Collection[Time]) -> Iterator[str]:
    """Yield each time of a schedule that did not come once; of those `unsure` that came twice."""
    made = Counter(run.time for run in history.runs.values() if run.time and run.parent is None)
    yield from (f"{time} came {count} times" for time, count in made.items() if count > 1)
    yield from (f"{time} never came" for time in known if time not in made)
    yield from (f"{time} came, and nobody had set it" for time in made.keys() - {*known, *unsure})


def untold(history: History, told: Collection[tuple[str, str]]) -> Iterator[str]:
    """Yield each end that no webhook was told of; `told` are runs, and their ends' types."""
    for run in history.runs.values():
        if run.status in ENDED and (run.id, f"run.{run.status}") not in told:
            yield f"{run.id}: no webhook was told that it is {run.status}"


def _of_run(run: Run) -> Iterator[str]:
    if run.status not in ENDED:
        last = run.log[-1] if run.log else None
        yield f"stuck: {run.status}, behind {last.type if last else 'nothing'}"
    if [entry.seq for entry in run.log] != list(range(1, len(run.log) + 1)):
        yield f"its log has a gap: {[entry.seq for entry in run.log]}"
    terminal = [entry for entry in run.log if entry.type in TERMINAL]
    if len(terminal) > 1:
        yield f"{len(terminal)} events end it"
    if terminal and terminal[-1] is not run.log[-1]:
        yield f"{run.log[-1].type} follows {terminal[-1].type}"
    if bool(terminal) != (run.status in ENDED) or (
        terminal and terminal[0].type != f"run.{run.status}"
    ):
        yield f"its row says {run.status}, its log ends with {run.log[-1].type}"
    yield from _of_epochs(run)
    yield from _of_messages(run)


def _of_epochs(run: Run) -> Iterator[str]:
    epochs = [entry.epoch for entry in run.log]
    if epochs != sorted(epochs):
        yield f"its epochs go back: {epochs}"
    claims = run.of(*CLAIMS)
    attempts = [entry.said["attempt"] for entry in claims]
    if attempts != sorted(set(attempts)) or attempts != [entry.epoch for entry in claims]:
        yield f"its claims are {attempts}, in the epochs {[entry.epoch for entry in claims]}"


def _of_messages(run: Run) -> Iterator[str]:
    """A message, or an attempt at a call, has one beginning and at most one end."""
    began = [entry.said["message_id"] for entry in run.of("message.started")]
    ended = [entry.said["message_id"] for entry in run.of("message.completed", "message.aborted")]
    calls = [entry.said["call_id"] for entry in run.of("tool_call.completed", "tool_call.failed")]
    for kind, ids in (("began", began), ("ended", ended), ("answered", calls)):
        yield from (
            f"{id_} {kind} {count} times" for id_, count in Counter(ids).items() if count > 1
        )
    yield from (f"message {id_} ended and never began" for id_ in set(ended) - set(began))


def _beside(history: History, run: Run) -> Iterator[str]:
    """What is summed up of a run is what its log says."""
    used = history.usage.get(run.id, {})
    if used != (told := dict(_used(run))):
        yield f"its rows of usage are {used}, and its log says {told}"
    spans = history.spans.get(run.id, [])
    if differing := Counter(spans) - Counter(_spans(run)):
        yield f"there are spans that its log does not tell of: {list(differing)}"
    if differing := Counter(_spans(run)) - Counter(spans):
        yield f"its log tells of spans that there are none of: {list(differing)}"


def _used(run: Run) -> Iterator[tuple[int, Usage]]:
    for entry in run.log:
        event = decode(entry.type, orjson.dumps(entry.said))
        if isinstance(event, MessageCompleted) or (
            isinstance(event, MessageAborted) and event.usage != Usage()
        ):
            yield entry.seq, event.usage


def _spans(run: Run) -> Iterator[SpanRow]:
    fold = SpanFold(run.id, None, provider="openai")
    for entry in run.log:
        if event := decode(entry.type, orjson.dumps(entry.said)):
            for span in fold.feed(entry.seq, entry.time_ms, event):
                yield SpanRow(span.seq, span.kind, span.start_ms, span.end_ms, span.status)


def _of_children(history: History) -> Iterator[str]:
    """What became of a child is what its parent was told, if that has an answer."""
    for child in history.runs.values():
        if child.parent is None:
            continue
        parent = history.runs.get(child.parent)
        if parent is None:
            yield f"{child.id}: its parent {child.parent} is gone"
            continue
        ends = [
            entry.said["status"]
            for entry in parent.of("child_run.ended")
            if entry.said["run_id"] == child.id
        ]
        if ends not in ([], [child.status]) or (parent.status == "completed" and not ends):
            yield f"{child.id}: it is {child.status}, and its parent was told {ends}"


def _of_batch(history: History, batch: Batch) -> Iterator[str]:
    """Each item has become one run, and ended as that has."""
    if batch.status != "completed":
        yield f"it is {batch.status}"
    counts = {status: count for status, count in batch.counts.items() if count}
    if counts != (counted := Counter(status for status, _ in batch.items)):
        yield f"it counts {counts}, and its items are {dict(counted)}"
    if len(batch.items) != batch.total:
        yield f"it has {len(batch.items)} items of {batch.total}"
    for run_id, count in Counter(run_id for _, run_id in batch.items).items():
        if count > 1:
            yield f"{run_id} is {count} items"
    for status, run_id in batch.items:
        run = history.runs.get(run_id or "")
        if run is None or run.status != status:
            yield f"an item is {status}, and {run_id} is {run.status if run else 'gone'}"


def _of_keys(history: History, followed: Mapping[str, Followed]) -> Iterator[str]:
    made: dict[str, list[str]] = defaultdict(list)
    for run in history.runs.values():
        if run.parent is None and run.time is None:  # A child is labelled as its parent is.
            made[run.key or ""].append(run.id)
    yield from (f"the key {key} made {ids}" for key, ids in made.items() if len(ids) > 1)
    for run_id, each in followed.items():
        key = each.errand.key
        if made.get(key) != [run_id]:
            yield f"the key {key} was answered with {run_id}, and made {made.get(key)}"


def _of_sessions(history: History) -> Iterator[str]:
    """A session's runs come one after the other: each saw all that had ended before it began."""
    turns: dict[str, dict[int, Run]] = defaultdict(dict)
    for run in history.runs.values():
        if run.turn is None:
            continue
        if run.turn in turns[run.session_id]:
            yield f"{run.id}: another run of its session was the turn {run.turn}, too"
        turns[run.session_id][run.turn] = run
    for session_id, found in turns.items():
        if sorted(found) != list(range(1, len(found) + 1)):
            yield f"session {session_id} has the turns {sorted(found)}"
        for run in found.values():
            yield from _of_turn(run, found)


def _of_turn(run: Run, turns: Mapping[int, Run]) -> Iterator[str]:
    loaded = run.of("session.loaded")
    if not loaded or run.turn is None:
        return
    for missed in range(loaded[0].said["turns"] + 1, run.turn):
        # Whoever was cancelled while it was blocked ended meanwhile, and never had begun.
        if turns[missed].of(*CLAIMS):
            yield f"{run.id}: it began before {turns[missed].id} of its session had ended"


def _of_effects(history: History, effects: list[Effect]) -> Iterator[str]:
    keys: dict[str, set[tuple[str, str]]] = defaultdict(set)
    done = by_call(effects)
    for (run_id, call_id), each in done.items():
        first = each[0]
        keys[first.key].add((run_id, call_id))
        if first.effect in NEVER_TWICE and len(each) > 1:
            yield f"{run_id}: {first.tool} was done {len(each)} times for {call_id}"
        if len({effect.key for effect in each}) > 1:
            yield f"{run_id}: {call_id} had several keys"
        run = history.runs.get(run_id)
        yield from _of_call(run, call_id, each) if run else [f"{run_id} did {call_id}, and is gone"]
    yield from (
        f"the key {key} was used for {calls}" for key, calls in keys.items() if len(calls) > 1
    )
    for run in history.runs.values():
        yield from _of_results(run, done)


def _of_call(run: Run, call_id: str, effects: list[Effect]) -> Iterator[str]:
    started = [entry for entry in run.of("tool_call.started") if entry.said["call_id"] == call_id]
    attempts = {entry.said["attempt"] for entry in started}
    for effect in effects:
        if effect.attempt not in attempts:
            yield f"{run.id}: {call_id} was done, and attempt {effect.attempt} is not in its log"
    if effects[0].effect == "gated" and not _approved_before(run, call_id, started):
        yield f"{run.id}: {call_id} was done, and nobody had approved it"


def _approved_before(run: Run, call_id: str, started: list[Entry]) -> bool:
    asked = {
        entry.said["approval_id"]
        for entry in run.of("approval.requested")
        if entry.said["call_id"] == call_id
    }
    approved = [
        entry.seq
        for entry in run.of("approval.decided")
        if entry.said["approval_id"] in asked and entry.said["decision"] == "approve"
    ]
    return bool(started and approved) and approved[0] < started[0].seq


def _of_results(run: Run, done: Mapping[tuple[str, str], list[Effect]]) -> Iterator[str]:
    """What a tool reported, it has done; only a person, or a child, may say so in its place."""
    told = {entry.said.get("call_id") for entry in run.of("approval.requested")
            if entry.said.get("kind") == "outcome"}  # fmt: skip
    told |= {entry.said["call_id"] for entry in run.of("child_run.ended")}
    for entry in run.of("tool_call.completed"):
        call_id = entry.said["call_id"]
        if (run.id, call_id) not in done and call_id not in told:
            yield f"{run.id}: {call_id} is completed, and was never done"


def _of_questions(history: History) -> Iterator[str]:
    for question in history.questions:
        run = history.runs[question.run_id]
        answers = [
            entry.said["decision"]
            for entry in run.of("approval.decided")
            if entry.said["approval_id"] == question.id
        ]
        if len(answers) > 1:
            yield f"{run.id}: {question.id} was decided {len(answers)} times"
        yield from _of_answer(run, question, answers)


def _of_answer(run: Run, question: Question, answers: list[str]) -> Iterator[str]:
    if question.status == "pending":
        yield f"{run.id}: {question.id} is still pending"
    if answers and question.status in {"withdrawn", "expired"}:
        yield f"{run.id}: {question.id} is {question.status}, and was decided {answers[0]}"
    decided = question.status in {"approved", "denied"}
    if decided and not answers and run.status == "completed":
        yield f"{run.id}: {question.id} is {question.status}, and its run never heard of it"


def _of_clients(history: History, followed: Mapping[str, Followed]) -> Iterator[str]:
    for run_id, each in followed.items():
        run, seen = history.runs.get(run_id), each.seen
        if run is None:
            yield f"{run_id} was answered, and is gone"
        elif seen.terminal is None:
            yield f"{run_id}: its client read no end, {seen.seq} of {len(run.log)} events"
        elif seen.seq != len(run.log):
            yield f"{run_id}: its client read {seen.seq} events, and there are {len(run.log)}"
        else:
            texts = {
                entry.said["message_id"]: entry.said["content"]
                for entry in run.of("message.completed")
            }
            if seen.completed != texts:
                yield f"{run_id}: its client's texts are not those of its log"
