"""How ids look: a prefix for the resource and a UUIDv7 body that sorts by time (RFC 9562)."""

import hashlib
from functools import lru_cache

_RANDOM_BITS = 74


def format_id(prefix: str, time_ms: int, chance: int) -> str:
    """Return `<prefix>_<32 hex digits>` from Unix milliseconds and at least 74 random bits."""
    chance &= (1 << _RANDOM_BITS) - 1
    rand_a, rand_b = chance >> 62, chance & ((1 << 62) - 1)
    value = (time_ms & (2**48 - 1)) << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b
    return f"{prefix}_{value:032x}"


def call_id(step: int, index: int) -> str:
    """Return the id of a step's `index`-th call: unique in its run, whatever vendors say."""
    return f"call_{step}_{index}"


def message_id(ordinal: int) -> str:
    """Return the id of the run's `ordinal`-th attempt at a message."""
    return f"msg_{ordinal}"


def child_run_id(run_id: str, call: str) -> str:
    """Return the id of the run that a call starts: always the same, so that there is but one.

    It sorts with its parent's, whose time it bears.
    """
    chance = int.from_bytes(hashlib.sha256(f"{run_id}\n{call}\nchild".encode()).digest()[:10])
    time_ms = int(run_id.partition("_")[2][:12], 16)
    return format_id("run", time_ms, chance)


def pending_id(run_id: str, call: str) -> str:
    """Return the id of the action that a call puts off: the same for every attempt at the call."""
    chance = int.from_bytes(hashlib.sha256(f"{run_id}\n{call}\npending".encode()).digest()[:10])
    return format_id("pnd", int(run_id.partition("_")[2][:12], 16), chance)


@lru_cache(maxsize=1_024)  # Each call is asked about twice: when it is logged, and when it is run.
def idempotency_key(run_id: str, call: str) -> str:
    """Return what a tool passes on, so that the other side can tell a repetition."""
    return hashlib.sha256(f"{run_id}\n{call}".encode()).hexdigest()[:32]
