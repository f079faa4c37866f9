"""The workflow that advances a run. It knows its id, and nothing else of it.

Changing what it does needs Temporal's `workflow.patched`: there may be open ones for months.
"""

import asyncio
import contextlib
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from milepost.dispatch.port import Slice

SLICES_MAX = 1_000
HEARTBEAT_S = 10.0
SLICE_S_MAX = 86_400.0
RETRY_S_MAX = 10.0


@workflow.defn(name="drive", sandboxed=False)
class DriveRun:
    """Has the run advanced until it is over: a slice, and another when it is woken or it is time.

    A slice that broke off, or never began, is delivered again. It may have got far, or still go on
    unheard of: the next one loses at the claim, and finds out how the run stands.
    """

    def __init__(self) -> None:
        self._woken = False

    @workflow.signal
    def wake(self) -> None:
        """Say that the run is ready."""
        self._woken = True

    @workflow.run
    async def run(self, run_id: str) -> None:
        """Advance it."""
        for _ in range(SLICES_MAX):
            # Before the slice: who wakes it from here on may mean what comes after.
            self._woken = False
            done = await workflow.execute_activity(
                "advance",
                run_id,
                result_type=Slice,
                start_to_close_timeout=timedelta(seconds=SLICE_S_MAX),
                heartbeat_timeout=timedelta(seconds=HEARTBEAT_S),
                retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=RETRY_S_MAX)),
                priority=workflow.info().priority,
            )
            if done.over:
                return
            with contextlib.suppress(asyncio.TimeoutError):
                await workflow.wait_condition(lambda: self._woken, timeout=done.again_s)
        # The next one begins with a slice: no waking is lost in between.
        workflow.continue_as_new(run_id)
