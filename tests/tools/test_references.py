"""Secrets that a declaration mentions, and those that it does not."""

import pytest

from milepost.core.errors import ToolError
from milepost.tools.references import Reference, limited


async def test_only_what_a_declaration_mentions_is_read() -> None:
    asked = []

    async def every(reference: Reference) -> str:
        asked.append(reference)
        return "value"

    secrets = limited(every, [Reference("env", "TOKEN")])

    assert await secrets(Reference("env", "TOKEN")) == "value"
    for other in (Reference("env", "OTHER"), Reference("secret", "TOKEN")):
        with pytest.raises(ToolError, match="is not in the declaration"):
            await secrets(other)
    assert asked == [Reference("env", "TOKEN")]
