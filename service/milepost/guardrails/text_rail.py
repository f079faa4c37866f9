"""A rail over texts: what its finder finds is blocked, replaced, or only told of."""

from collections import Counter

from milepost.core.guardrails import Action, OnError
from milepost.core.json import Json
from milepost.core.messages import told
from milepost.guardrails.finds import Finder, Passing
from milepost.guardrails.in_json import PassingJson
from milepost.guardrails.strings import changed
from milepost.guardrails.verdicts import PASS, Block, Rewrite, Subject, Verdict, Warn


class TextRail:
    """Judges a text by what is found in it, as a whole or while it comes."""

    on_error: OnError = "block"

    def __init__(
        self, name: str, finder: Finder, action: Action, *, reads_json: bool = False
    ) -> None:
        self.name = name
        self.action = action
        self.demands = finder.demands
        self._finder = finder
        self._reads_json = reads_json

    def in_json(self) -> "TextRail":
        """Return the rail for texts in JSON, which it reads as whoever parses them will."""
        return TextRail(self.name, self._finder, self.action, reads_json=True)

    async def check(self, subject: Subject) -> Verdict:
        """Judge the subject's value."""
        return self.judge(subject.value)

    def judge(self, value: Json) -> Verdict:
        """Judge a text, or the strings of any other value."""
        found: Counter[str] = Counter()

        def passed(text: str) -> str:
            passing = self.passing()
            out = passing.finish(text)
            found.update(passing.found)
            return out

        whole = self._finder.reads_whole and not isinstance(value, str)
        result = changed(told(value) if whole else value, passed)
        return _verdict(self.action, found, result)

    def passing(self) -> Passing:
        """Return the way of one text past this rail."""
        made = PassingJson if self._reads_json else Passing
        return made(self._finder, self.action)


def _verdict(action: Action, found: Counter[str], result: Json) -> Verdict:
    if not found:
        return PASS
    reason = listed(found)
    match action:
        case "block":
            return Block(reason)
        case "rewrite":
            return Rewrite(result, reason)
        case "warn":
            return Warn(reason)


def listed(found: Counter[str]) -> str:
    """Return what was found in words: `an e-mail address (2 times), a secret`."""
    return ", ".join(
        what if count == 1 else f"{what} ({count} times)" for what, count in found.items()
    )
