"""The contract, `openapi.yaml`, as every test finds it. Nobody may change what it holds."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]

# Python alone takes 5 s for what libyaml reads in half of one.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

CONTRACT: dict[str, Any] = yaml.load((ROOT / "openapi.yaml").read_text(), _LOADER)
