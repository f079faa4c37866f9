"""What is imported for a command is looked through by no search for garbage."""

import subprocess
import sys

LOOKING = """
import gc

from milepost.cli.garbage import none_expected

gc.set_threshold(1)
searches = []
with none_expected():
    gc.callbacks.append(lambda phase, told: searches.append(phase))
    imported = [[number] for number in range(10_000)]
    assert not searches
assert gc.isenabled()
assert not {id(each) for each in gc.get_objects()} & {id(each) for each in imported}
ring = []
ring.append(ring)
assert searches
"""


def test_what_is_imported_is_never_searched_and_what_comes_behind_is() -> None:
    subprocess.run([sys.executable, "-c", LOOKING], check=True)
