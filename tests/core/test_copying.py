"""A copy with some fields changed is what the standard library would have made."""

import dataclasses

from milepost.core.copying import replace
from milepost.core.state import State


def test_a_copy_differs_in_what_was_changed_alone() -> None:
    state = State(step=3, step_open=True)

    copied = replace(state, step=4)

    assert copied == dataclasses.replace(state, step=4)
    assert state.step == 3
