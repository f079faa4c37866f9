"""A graph of knowledge: what hangs together with what, as triples that are looked up by words."""

from collections.abc import Collection, Mapping, Sequence

from milepost.core.json import Json
from milepost.core.memories import NAME_CHARS_MAX, Finding, likeness, line

RELATIONS_MAX = 200
"""How many are kept of one owner; what was not mentioned for longest goes first."""

SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "subject": {"type": "string"},
        "predicate": {"type": "string", "description": "A verb: works at, knows, owns, …"},
        "object": {"type": "string"},
        "message": {"type": "integer", "description": "The number of the message that says so."},
    },
    "required": ["subject", "predicate", "object", "message"],
    "additionalProperties": False,
}


def relation(told: Mapping[str, Json]) -> Finding | None:
    """Return what a model's answer relates; None if a part of it is missing."""
    subject, predicate, other = (
        line(str(told.get(name) or ""), NAME_CHARS_MAX)
        for name in ("subject", "predicate", "object")
    )
    if not (subject and predicate and other):
        return None
    return Finding("relation", "", subject, predicate, other)


def about(relations: Sequence[Finding], words: Collection[str]) -> list[Finding]:
    """Return the relations in which one of the words occurs, those with most of them first."""
    scored = [(likeness(finding, words), finding) for finding in relations]
    ordered = sorted(scored, key=lambda each: -each[0])  # Stable: else in the order they came.
    return [finding for score, finding in ordered if score]


def shown(finding: Finding) -> str:
    """Return a relation as a model reads it."""
    told = f"{finding.subject} — {finding.predicate} — {finding.object}"
    return f"{told} ({finding.content})" if finding.content else told
