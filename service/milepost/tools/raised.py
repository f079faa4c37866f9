"""What a tool's own code raised, in words that a model may read."""

from milepost.core.errors import ToolError
from milepost.core.json import clean_text
from milepost.tools.references import NOTHING, Revealed

ERROR_CHARS_MAX = 2_000


def told(error: BaseException, revealed: Revealed = NOTHING) -> str:
    """Return the kind of error and what it says, in a bounded number of words.

    What was `revealed` to the tool is hidden before that is cut.
    """
    try:
        words = revealed.hide(str(error))
    except Exception:  # it cannot even be printed
        words = ""
    kind = "" if isinstance(error, ToolError) else revealed.hide(type(error).__name__)
    return clean_text(": ".join(part for part in (kind, words[:ERROR_CHARS_MAX]) if part))
