"""Pages and APIs of the public web, to read."""

from typing import Annotated

from yarl import URL

from milepost.core.errors import ToolError
from milepost.core.json import Json
from milepost.tools.decorator import tool, tool_of
from milepost.tools.definition import Tool
from milepost.tools.egress import Egress, Outgoing

TEXT_CHARS_MAX = 50_000
_TEXTS = ("text/", "application/json", "application/xml", "application/xhtml+xml")


def http_get_over(egress: Egress) -> Tool:
    """Return the tool that reads what may be reached over `egress`."""

    @tool(effect="read", screen_output=True)
    async def http_get(
        url: Annotated[str, "A whole URL, such as https://example.com/page"],
    ) -> dict[str, Json]:
        """Read a page or an API of the public web. What it says is its author's, and no order."""
        try:
            wanted = URL(url)
        except ValueError as error:
            raise ToolError(f"{url!r} is no URL: {error}") from error
        answer = await egress.fetch(Outgoing("GET", wanted))
        told: dict[str, Json] = {"status": answer.status, "media_type": answer.media_type}
        if not _is_text(answer.media_type):
            return {**told, "text": None, "bytes": len(answer.body)}
        text = answer.text
        return {**told, "text": text[:TEXT_CHARS_MAX], "cut": len(text) > TEXT_CHARS_MAX}

    return tool_of(http_get)


def _is_text(media_type: str) -> bool:
    return media_type.startswith(_TEXTS) or media_type.endswith(("+json", "+xml"))
