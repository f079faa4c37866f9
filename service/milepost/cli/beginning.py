"""What a command that logs does first."""

import os

from milepost.settings import Settings, unread
from milepost.telemetry import logs

_log = logs.logger("settings")


def begin(settings: Settings) -> None:
    """Send logs where the settings say, and name the variables that count for nothing."""
    logs.configure(settings.log_level, json=settings.log_json)
    for name, nearest in unread(os.environ).items():
        told = {"nearest": nearest} if nearest else {}
        _log.warning("a variable is no setting, and counts for nothing", variable=name, **told)
