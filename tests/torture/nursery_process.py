"""A process that has imported Milepost and forks one `milepost` after another from itself.

What is forked is the whole program, from its command line on; only the imports, which take most of
a start, are shared. So a campaign can kill a thousand processes on a small machine. It obeys a line
of JSON at a time, tells who was born and who ended, and takes its children with it.
"""

import gc
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import orjson

import milepost.cli.commands
import milepost.cli.migrate
import milepost.cli.serve
import milepost.wiring
from tests.devservices import _die_with_parent

_READ_MAX = 65_536
_SKEW = "TORTURE_SKEW_S"


def main() -> None:
    """Fork what is asked for until nobody asks any more."""
    gc.collect()
    gc.freeze()  # Pages that the collector does not touch stay shared with the children.
    children: set[int] = set()
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker)
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        _tell({"ready": os.getpid()})
        born = _obey(selector, woken, children)
    if born is not None:
        born()
        return
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _obey(
    selector: selectors.BaseSelector, woken: int, children: set[int]
) -> Callable[[], None] | None:
    """Obey until stdin ends; return what a child is to do, in the child."""
    unread = b""
    while True:
        for key, _ in selector.select():
            if key.fd == woken:
                os.read(woken, _READ_MAX)
                _bury(children)
                continue
            piece = os.read(key.fd, _READ_MAX)
            if not piece:
                return None
            *lines, unread = (unread + piece).split(b"\n")
            for line in lines:
                asked = orjson.loads(line)
                become = _die_with_parent(signal.SIGKILL)
                if (pid := os.fork()) == 0:
                    return lambda: _become(asked, become)
                children.add(pid)
                _tell({"born": asked["number"], "pid": pid})


def _bury(children: set[int]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            children.discard(pid)
            _tell({"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _tell(said: dict[str, Any]) -> None:
    os.write(sys.stdout.fileno(), orjson.dumps(said) + b"\n")


def _become(asked: dict[str, Any], die_with_parent: Callable[[], None] | None) -> None:
    """Be a `milepost` that was just started."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if die_with_parent:
        die_with_parent()
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    _reopen(0, os.devnull, os.O_RDONLY)
    for descriptor, name in ((1, asked["stdout"]), (2, "stderr")):
        _reopen(descriptor, name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    if skew := os.environ.get(_SKEW):
        _set_clocks(float(skew))
    sys.argv = ["milepost", *asked["arguments"]]
    milepost.cli.commands.main()


def _reopen(descriptor: int, name: str, flags: int) -> None:
    opened = os.open(Path(name), flags, 0o644)
    os.dup2(opened, descriptor)
    os.close(opened)


def _set_clocks(skew_s: float) -> None:
    """Let this process believe that it is `skew_s` later than it is."""
    true_s, true_ns = time.time, time.time_ns
    skew_ns = round(skew_s * 1e9)
    clocks = cast(Any, time)
    clocks.time = lambda: true_s() + skew_s
    clocks.time_ns = lambda: true_ns() + skew_ns


if __name__ == "__main__":
    main()
