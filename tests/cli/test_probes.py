"""What a worker answers to those who watch over it, and that it answers nothing else."""

import asyncio
from pathlib import Path

import httpx2

from milepost.cli.keys import create_key
from milepost.settings import load_settings
from tests.cli.typed import MISCONFIGURED, typed
from tests.journeys.processes import installed
from tests.ports import free_port

LEASED = "\nmilepost_lease 1.0\n"
LEASED_S = 20.0


async def test_a_worker_with_a_probe_port_says_how_it_is_and_what_it_counts(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with installed(tmp_path, {"MILEPOST_LOG_LEVEL": "warning"}) as installation:
        await installation.start_worker(MILEPOST_PROBE_PORT=str(port), MILEPOST_SLOTS="7")
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            health, ready, runs = [
                await http.get(path) for path in ("/healthz", "/readyz", "/v1/runs")
            ]
            async with asyncio.timeout(LEASED_S):  # It answers from before its first lease on.
                while LEASED not in (metrics := await http.get("/metrics")).text:
                    pass

    assert (health.json(), ready.json()) == ({"status": "ok"}, {"status": "ready"})
    assert "\nmilepost_slots 7.0\n" in metrics.text
    assert runs.status_code == 404


async def test_a_worker_shows_its_metrics_to_who_has_the_key_once_there_is_one(
    tmp_path: Path,
) -> None:
    settings = load_settings({"database_url": f"sqlite:///{tmp_path}/milepost.db"})
    key = create_key(settings, tenant="default", name="prometheus", scopes=["metrics:read"])
    port = free_port()
    environment = {"MILEPOST_DATABASE_URL": settings.database_url}
    async with installed(tmp_path, environment) as installation:
        await installation.start_worker(MILEPOST_PROBE_PORT=str(port), MILEPOST_HOST="0.0.0.0")
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            bare = await http.get("/metrics")
            keyed = await http.get("/metrics", headers={"Authorization": f"Bearer {key}"})
            health = await http.get("/healthz")

    assert (bare.status_code, keyed.status_code, health.status_code) == (401, 200, 200)


async def test_a_worker_that_answers_probes_drains_when_it_is_told_to_stop(tmp_path: Path) -> None:
    port = free_port()
    async with installed(tmp_path, {"MILEPOST_LOG_LEVEL": "warning"}) as installation:
        worker = await installation.start_worker(MILEPOST_PROBE_PORT=str(port))
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            await http.get("/healthz")  # its connection stays open

            code = await worker.stop()

    assert code == 0


def test_a_probe_port_that_is_taken_is_refused_in_words(tmp_path: Path) -> None:
    refused = typed(tmp_path, "worker", "--probe-port", "80", "--host", "192.0.2.1")

    assert refused.code == MISCONFIGURED
    assert "this machine does not have that address" in refused.complaint
