"""The times at which schedules come: each once, when it is due, and with what was wanted then."""

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from tests.simulation.watch import Watch
    from tests.simulation.world import World

Time = tuple[str, int]
"""A schedule's id, and when it comes."""


class Times:
    """Sees schedules being moved on; `came` is what came of which time."""

    def __init__(self, world: "World", watch: "Watch") -> None:
        self._world = world
        self._watch = watch
        self._passed: set[Time] = set()
        self.came: dict[Time, dict[str, Any]] = {}

    def saw(
        self,
        schedule_id: str,
        old_ms: int | None,
        new_ms: int | None,
        old_version: int,
        version: int | None,
        last: str | None,
    ) -> None:
        """A schedule was made, changed, or moved on behind a time, of which there is word then."""
        self._world.tell("schedule", schedule_id, old_ms, new_ms, version, last)
        if version == old_version and old_ms is not None and old_ms != new_ms:
            self._passed.add((schedule_id, old_ms))
        if last is not None:
            self._saw_word(schedule_id, orjson.loads(last))

    def require_all_told(self) -> None:
        """No transaction leaves a time behind of which there is no word."""
        passed = self._passed
        self._watch.require(not passed, f"{passed} have passed, and nothing came of them")

    def _saw_word(self, schedule_id: str, came: dict[str, Any]) -> None:
        require, time = self._watch.require, (schedule_id, came["for_ms"])
        require(time in self._passed, f"{time} came, and its schedule was not moved on")
        require(time not in self.came, f"{time} came twice: {came}")
        require(came["for_ms"] <= self._world.now_ms(), f"{time} came before it was due")
        self._require_wanted(schedule_id, came)
        self._passed.discard(time)
        self.came[time] = came
        self._watch.counted[f"times {came['result']}"] += 1

    def _require_wanted(self, schedule_id: str, came: dict[str, Any]) -> None:
        """What came of a time is what its schedule says, as it is when that time comes."""
        ((overlap, late_max_ms, wanted),) = self._world.database.rows(
            "SELECT overlap, late_max_ms, run FROM schedules WHERE id = ?", schedule_id
        )
        is_late = late_max_ms is not None and came["at_ms"] - came["for_ms"] > late_max_ms
        is_busy = overlap == "skip" and self._is_active(schedule_id)
        due = "late" if is_late else "skipped" if is_busy else "started"
        self._watch.require(came["result"] == due, f"{schedule_id} was to be {due}, and is {came}")
        if due == "started":
            self._require_run(schedule_id, came["run_id"], orjson.loads(wanted))

    def _is_active(self, schedule_id: str) -> bool:
        """Say whether a run of the schedule is under way."""
        begun = [came["run_id"] for (of, _), came in self.came.items() if of == schedule_id]
        return any(not self._watch.runs[run_id].is_over for run_id in begun if run_id)

    def _require_run(self, schedule_id: str, run_id: str, wanted: dict[str, Any]) -> None:
        """The run of a time is there as soon as there is word of it, and is what was wanted."""
        made = self._world.database.rows("SELECT metadata FROM runs WHERE id = ?", run_id)
        wishes = [orjson.loads(labels)["wish"] for (labels,) in made]
        wish = wanted["metadata"]["wish"]
        self._watch.require(
            wishes == [wish], f"{schedule_id} is to run {wish}, and {wishes} was begun"
        )
