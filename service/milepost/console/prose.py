"""The contract's descriptions as HTML: the little of Markdown that they use, and no more of it.

What is text stays text: there is no way through here for a tag.
"""

import re
from html import escape

_SPAN = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<strong>[^*]+)\*\*")
_ITEM = re.compile(r"^- ", re.MULTILINE)


def prose(text: str) -> str:
    """Return paragraphs and lists."""
    return "".join(_block(block) for block in re.split(r"\n\s*\n", text.strip()) if block)


def line(text: str) -> str:
    """Return a text as one line, with its code and what is said loudly."""
    parts, end = [], 0
    for match in _SPAN.finditer(text):
        parts.append(escape(text[end : match.start()]))
        kind = match.lastgroup or ""
        parts.append(f"<{kind}>{escape(match[kind])}</{kind}>")
        end = match.end()
    return "".join([*parts, escape(text[end:])])


def _block(block: str) -> str:
    if not block.startswith("- "):
        return f"<p>{line(block)}</p>"
    items = (item for item in _ITEM.split(block) if item)
    return f"<ul>{''.join(f'<li>{line(item)}</li>' for item in items)}</ul>"
