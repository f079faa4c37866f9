"""What a machine has none left of, and what is another trouble."""

import errno
import threading

import pytest

from milepost.core.scarcity import is_scarcity


def _without_threads() -> None:
    """Ask the system for a thread with a stack larger than all of its memory."""
    before = threading.stack_size(2**62)
    try:
        threading.Thread(target=int).start()
    finally:
        threading.stack_size(before)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOBUFS])
def test_what_a_machine_can_run_out_of_is_scarce(number: int) -> None:
    assert is_scarcity(OSError(number, "none left"))


def test_threads_are_scarce_where_the_system_gives_none() -> None:
    with pytest.raises(RuntimeError) as caught:
        _without_threads()

    assert is_scarcity(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "no"),
        OSError("who knows"),
        ValueError(),
        RuntimeError("dictionary changed size during iteration"),
    ],
)
def test_anything_else_is_not(error: Exception) -> None:
    assert not is_scarcity(error)
