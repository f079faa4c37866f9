"""Entities: who and what conversations are about, each once, those of late before all others."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from milepost.core.json import Json
from milepost.core.memories import NAME_CHARS_MAX, Finding, line

ENTITIES_MAX = 50
"""How many are kept of one owner; who was not mentioned for longest goes first."""

TYPE = "type"
SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "As people call it."},
        "type": {"type": "string", "description": "person, place, organisation, product, …"},
        "description": {
            "type": "string",
            "description": "What was said of it, in a few words; empty if nothing was.",
        },
        "message": {"type": "integer", "description": "The number of the message that says so."},
    },
    "required": ["name", "type", "description", "message"],
    "additionalProperties": False,
}


def entity(told: Mapping[str, Json]) -> Finding | None:
    """Return what a model's answer names; None if it names nothing."""
    name = line(str(told.get("name") or ""), NAME_CHARS_MAX)
    if not name:
        return None
    kind = line(str(told.get("type") or ""), NAME_CHARS_MAX)
    described = line(str(told.get("description") or ""))
    return Finding("entity", described, name, attributes={TYPE: kind} if kind else {})


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Return each thing once, whatever its case: as it was called last, and as it was told best.

    Those that were mentioned last come last.
    """
    known: OrderedDict[tuple[str, str], Finding] = OrderedDict()
    for finding in findings:
        key = (finding.kind, finding.key)
        known[key] = _both(known.pop(key, None), finding)
    return list(known.values())


def _both(earlier: Finding | None, later: Finding) -> Finding:
    if earlier is None:
        return later
    return replace(
        later,
        content=later.content or earlier.content,
        attributes={**earlier.attributes, **later.attributes},
    )


def kept(findings: Sequence[Finding], most: int = ENTITIES_MAX) -> list[Finding]:
    """Return the last ones, as many as may be kept."""
    return list(findings[-most:]) if most else []


def shown(finding: Finding) -> str:
    """Return an entity as a model reads it."""
    kind = finding.attributes.get(TYPE)
    named = f"{finding.subject} ({kind})" if kind else finding.subject
    return f"{named}: {finding.content}" if finding.content else named
