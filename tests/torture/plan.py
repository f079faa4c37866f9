"""What a campaign is to reach, on one database, and from which seed."""

from dataclasses import dataclass
from typing import Literal

AT_ONCE = 64
GAP_S = 0.7

DatabaseName = Literal["postgres", "sqlite"]
FaultName = Literal[
    "kill", "drain", "pause", "database restart", "redis kill", "redis flush", "partition"
]


@dataclass(frozen=True, slots=True)
class Plan:
    """Figures to reach before `minutes` are over. Faults and runs go on until all are reached.

    `gap_s` is the pause between two faults, on average. `settle_s` is how long the last runs may
    take once the faults have ended. `skew_s` is by how much some workers' clocks are wrong. With
    `pooled`, PgBouncer lends all of them sessions of Postgres, each for one transaction.
    """

    database: DatabaseName
    seed: int
    minutes: float
    runs: int
    resumes: int
    faults: dict[FaultName, int]
    at_once: int = AT_ONCE
    apis: int = 3
    workers: int = 5
    gap_s: float = GAP_S
    lease_s: float = 2.0
    sweep_s: float = 0.5
    settle_s: float = 120.0
    partition_s_max: float = 8.0
    skew_s: float = 600.0
    pooled: bool = False

    @property
    def bound_ms(self) -> float:
        """How late a dead worker's run may go on, where a sweeper lives."""
        return (self.lease_s + self.sweep_s + 1.0) * 1000
