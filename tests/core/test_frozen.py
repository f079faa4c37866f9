"""Records that type checkers hold frozen: equal, hashed and copied as frozen ones are."""

from milepost.core.copying import replace
from milepost.core.frozen import dataclass
from milepost.core.usage import Usage


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


def test_equal_records_are_one_key() -> None:
    assert len({Usage(1), Usage(1), Usage(2)}) == 2


def test_a_record_has_no_room_for_what_is_not_a_field() -> None:
    assert not hasattr(Usage(), "__dict__")


def test_a_copy_differs_in_what_was_changed_alone() -> None:
    before = Point(1, 2)

    after = replace(before, y=3)

    assert (before, after) == (Point(1, 2), Point(1, 3))
