"""What counts as written: all but defaults that nobody touched."""

import pytest

from milepost.core.json import Json
from milepost.core.written import written

GIVEN: dict[str, Json] = {"order": 7, "lines": [{"sku": "a"}]}
SHOWN: dict[str, Json] = {"order": 7, "lines": [{"sku": "a", "count": 1}], "cents": 500}


@pytest.mark.parametrize(
    ("changed", "left"),
    [
        (SHOWN, GIVEN),
        ({**SHOWN, "order": 8}, {**GIVEN, "order": 8}),
        ({**SHOWN, "cents": 600}, {**GIVEN, "cents": 600}),
        ({**SHOWN, "note": "soon"}, {**GIVEN, "note": "soon"}),
        ({"cents": 500}, {}),
        ({"lines": [{"sku": "b", "count": 1}]}, {"lines": [{"sku": "b"}]}),
        ({"lines": [{"sku": "a", "count": 2}]}, {"lines": [{"sku": "a", "count": 2}]}),
        # Of other items nobody can say which of them was left as it was.
        ({"lines": [*SHOWN["lines"], {"sku": "b"}]},) * 2,  # type: ignore[misc]  # it is a list
        ({"lines": "none"},) * 2,
    ],
)
def test_a_default_that_is_as_it_was_shown_was_written_by_nobody(
    changed: dict[str, Json], left: dict[str, Json]
) -> None:
    assert written(changed, SHOWN, GIVEN) == left


def test_what_was_not_filled_in_was_all_written() -> None:
    assert written(SHOWN, GIVEN, GIVEN) == SHOWN
