"""Temporal's SDK is an extra: who does not choose it does not need it, and who does is told."""

import sys

import pytest

from milepost.core.errors import ConfigurationError
from milepost.settings import Settings
from milepost.wiring import _dispatch
from milepost.worker.shifts import BY_SQL
from tests.runtime.workshop import Workshop


@pytest.fixture
def without_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "temporalio", None)
    monkeypatch.delitem(sys.modules, "milepost.dispatch.temporal", raising=False)


@pytest.mark.usefixtures("without_sdk")
async def test_the_queue_dispatches_without_temporals_sdk(shop: Workshop) -> None:
    async with _dispatch(Settings(), shop.ports) as dispatch:
        assert dispatch is BY_SQL


@pytest.mark.usefixtures("without_sdk")
async def test_who_chooses_temporal_is_told_what_to_install(shop: Workshop) -> None:
    with pytest.raises(ConfigurationError, match=r"pip install 'milepost\[temporal\]'"):
        async with _dispatch(Settings(dispatcher="temporal"), shop.ports):
            pass
