"""What was logged, as plain values."""

import pytest


def spoken(caplog: pytest.LogCaptureFixture, part: str) -> list[dict[str, object]]:
    """Return what a part of Milepost logged, in order, each with its level."""
    return [
        {key: value for key, value in record.msg.items() if key not in {"logger", "timestamp"}}
        for record in caplog.records
        if record.name == f"milepost.{part}" and isinstance(record.msg, dict)
    ]
