"""What a docstring says to a model: its first paragraph, on one line."""

import inspect


def summary(function: object) -> str:
    """Return the first paragraph of `function`'s own docstring, empty where it has none."""
    text = inspect.cleandoc(getattr(function, "__doc__", None) or "")
    return " ".join(text.partition("\n\n")[0].split())
