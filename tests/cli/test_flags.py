"""What `--help` says of a setting: its variable, and what it is unless somebody says otherwise."""

from pathlib import Path

from tests.cli.typed import MISCONFIGURED, typed


def test_a_default_of_zero_is_a_number_and_one_of_false_a_no(tmp_path: Path) -> None:
    said = " ".join(typed(tmp_path, "worker", "--help").out.split())

    assert "0 is none [env: MILEPOST_PROBE_PORT] [default: 0]" in said
    assert "log lines as JSON [env: MILEPOST_LOG_JSON] [default: no]" in said


def test_a_number_that_may_be_unset_is_a_number_all_the_same(tmp_path: Path) -> None:
    said = " ".join(typed(tmp_path, "serve", "--help").out.split())
    refused = typed(tmp_path, "serve", "--requests-per-minute", "many")

    assert "--requests-per-minute <int>" in said
    assert "--kept-max-s <float>" in said
    assert "--redis-url <str>" in said
    assert refused.err.splitlines()[-1].endswith(
        "'--requests-per-minute': Input should be a valid integer,"
        " unable to parse string as an integer; not 'many'"
    )
    assert refused.code == MISCONFIGURED


def test_a_number_that_may_be_unset_still_has_its_bounds(tmp_path: Path) -> None:
    said = typed(tmp_path, "serve", "--kept-max-s", "60")

    assert said.complaint.startswith("--kept-max-s (MILEPOST_KEPT_MAX_S) cannot be 60.0: ")
    assert said.code == MISCONFIGURED
