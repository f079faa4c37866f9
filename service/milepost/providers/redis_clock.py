"""Which clock a script in Redis goes by: the server's, which all processes share, or one given."""

from collections.abc import Callable

NOW = """
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('time')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
"""
"""What a script begins with that needs the time, in ms; its first argument is `time_for`'s."""


def time_for(now_ms: Callable[[], int] | None) -> int | str:
    """Return the time by this clock; by none the server's is taken."""
    return "" if now_ms is None else now_ms()
