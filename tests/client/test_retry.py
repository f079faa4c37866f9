"""A run that waits for an operator is sent on, from Python and from the command line."""

import asyncio
import json
from pathlib import Path

import pytest

from milepost.client import Milepost
from milepost.core.errors import ApiError
from tests.api.serving import serving, settings_for
from tests.api.stuck import a_stuck_run
from tests.cli.typed import FAILED, typed


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """Where there is no database yet."""
    return f"sqlite:///{tmp_path}/milepost.db"


async def test_a_run_that_waits_for_an_operator_is_sent_on_once(database_url: str) -> None:
    run_id = await a_stuck_run(database_url)
    async with (
        serving(settings_for(database_url)) as service,
        Milepost(service.base_url) as milepost,
    ):
        sent_on = await milepost.runs.retry(run_id)
        ended = await milepost.runs.wait(run_id)
        with pytest.raises(ApiError) as refused:
            await milepost.runs.retry(run_id)

    assert sent_on.id == run_id
    assert (ended.status, ended.text) == ("completed", "17 + 25 = 42.")
    assert refused.value.code == "not_waiting_for_operator"


async def test_it_is_sent_on_from_the_command_line(database_url: str, tmp_path: Path) -> None:
    run_id = await a_stuck_run(database_url)
    async with serving(settings_for(database_url)) as service:
        at = {"MILEPOST_BASE_URL": service.base_url}
        told = await asyncio.to_thread(typed, tmp_path, "runs", "retry", run_id, **at)
        await asyncio.to_thread(typed, tmp_path, "runs", "get", run_id, "--wait", "10", **at)
        again = await asyncio.to_thread(typed, tmp_path, "runs", "retry", run_id, **at)

    assert (told.code, json.loads(told.out)["id"]) == (0, run_id)
    assert again.code == FAILED
    assert "only a run that waits for an operator" in again.err
