"""A client of a Milepost server, which follows runs to their end, whatever breaks on the way."""

from milepost.client.blocking import BlockingMilepost
from milepost.client.milepost import Milepost
from milepost.client.patience import Patience
from milepost.client.shapes import (
    Agent,
    Approval,
    Batch,
    BatchProgress,
    BatchResult,
    Budget,
    BudgetCounter,
    Event,
    Page,
    Run,
    Session,
)

__all__ = [
    "Agent",
    "Approval",
    "Batch",
    "BatchProgress",
    "BatchResult",
    "BlockingMilepost",
    "Budget",
    "BudgetCounter",
    "Event",
    "Milepost",
    "Page",
    "Patience",
    "Run",
    "Session",
]
