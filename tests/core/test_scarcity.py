"""What a machine has none left of, and what is another trouble."""

import errno

import pytest

from milepost.core.scarcity import is_scarcity


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOBUFS])
def test_what_a_machine_can_run_out_of_is_scarce(number: int) -> None:
    assert is_scarcity(OSError(number, "none left"))


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(errno.ECONNREFUSED, "no"), OSError("who knows"), ValueError()]
)
def test_anything_else_is_not(error: Exception) -> None:
    assert not is_scarcity(error)
