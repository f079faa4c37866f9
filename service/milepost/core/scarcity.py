"""What a machine may run out of, which is no fault of the run that meets it."""

import errno

# Open files, of the process and of the machine; room on a disk, or of a quota; memory for sockets.
_SCARCE = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.ENOBUFS, errno.ENOMEM}
)

# CPython's own words, which is all that tells this error from others of its type.
_NO_THREAD = "can't start new thread"


def is_scarcity(error: BaseException) -> bool:
    """Say whether the error tells that the machine had none left of something."""
    if isinstance(error, RuntimeError):
        return str(error) == _NO_THREAD
    return isinstance(error, OSError) and error.errno in _SCARCE
