"""A client of a Milepost server, which follows runs to their end, whatever breaks on the way."""

from milepost.client.blocking import BlockingMilepost
from milepost.client.channels import ChannelAnswer, PendingAction
from milepost.client.milepost import Milepost
from milepost.client.patience import Patience
from milepost.client.shapes import (
    Agent,
    Approval,
    ApprovalChange,
    Batch,
    BatchProgress,
    BatchResult,
    Budget,
    BudgetCounter,
    Erasure,
    Event,
    Grant,
    Memory,
    Page,
    PolicyVerdict,
    RetentionRules,
    Run,
    Schedule,
    Session,
    StandingPolicy,
)

__all__ = [
    "Agent",
    "Approval",
    "ApprovalChange",
    "Batch",
    "BatchProgress",
    "BatchResult",
    "BlockingMilepost",
    "Budget",
    "BudgetCounter",
    "ChannelAnswer",
    "Erasure",
    "Event",
    "Grant",
    "Memory",
    "Milepost",
    "Page",
    "Patience",
    "PendingAction",
    "PolicyVerdict",
    "RetentionRules",
    "Run",
    "Schedule",
    "Session",
    "StandingPolicy",
]
