"""The steps from one schema to the next that this version knows."""

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[3] / "migrations"
_STEP = re.compile(r"(\d{4})_\w+\.py")


def folder() -> Path:
    """Return where they are: a wheel carries them inside the package, a checkout at its top."""
    packaged = Path(str(files("milepost"))) / "migrations"
    return packaged if packaged.is_dir() else _CHECKOUT


def numbers() -> list[str]:
    """Return the schemas that they lead to, the oldest first."""
    names = (path.name for path in (folder() / "versions").iterdir())
    return sorted(step[1] for name in names if (step := _STEP.fullmatch(name)))


@cache
def newest() -> str:
    """Return the schema that the last of them leads to."""
    return numbers()[-1]
