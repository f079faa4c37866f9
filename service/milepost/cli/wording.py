"""What is said to whoever mistyped something: what they typed, and what would do."""

from typing import Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from milepost.runtime.spec import why


class Worded(TyperGroup):
    """Commands that refuse a value in words for people, and not in those of what checked it."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):
                error.message = _told(error.__cause__)
            raise


def _told(error: ValidationError) -> str:
    fault = error.errors()[0]
    value, told = repr(fault["input"]), why(fault)
    return told if value in told else f"{told}; not {value}"
