"""What the model reads."""

import pytest

from milepost.core.messages import told


@pytest.mark.parametrize(
    ("result", "read"),
    [("as it is", "as it is"), (None, ""), ([1, "a"], '[1,"a"]'), ({"a": 1.5}, '{"a":1.5}')],
)
def test_a_result_is_read_as_text_where_it_is_text_and_as_json_elsewhere(
    result: object, read: str
) -> None:
    assert told(result) == read  # type: ignore[arg-type]  # each is JSON
