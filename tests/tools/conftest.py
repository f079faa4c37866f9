"""What tests of tools share: a call's context, and something that runs tools."""

from collections.abc import Iterator

import pytest

from milepost.tools import Invoker, ToolContext, ToolThreads


@pytest.fixture
def context() -> ToolContext:
    """Return the first attempt at some call."""
    return ToolContext(
        run_id="run_1",
        session_id="ses_1",
        tenant="acme",
        user="ada",
        call_id="call_1_0",
        attempt=1,
        idempotency_key="key-1",
    )


@pytest.fixture
def threads() -> Iterator[ToolThreads]:
    """Yield two threads for tools."""
    threads = ToolThreads(threads_max=2)
    yield threads
    threads.close()


@pytest.fixture
def invoker(threads: ToolThreads) -> Invoker:
    """Return what runs tools."""
    return Invoker(threads)
