"""The parts of the console that know no page: tested where they run, in JavaScript."""

import pytest

from tests.console.script import run


@pytest.mark.parametrize("tests", ["sse", "story", "shown", "api"])
def test_the_parts_that_know_no_page_do_what_they_are_for(tests: str) -> None:
    printed = run(f"{tests}.test.mjs")

    assert "# fail 0" in printed
    assert "# pass 0" not in printed
