"""What `--help` says of a setting: its variable, and what it is unless somebody says otherwise."""

from pathlib import Path

from tests.cli.typed import typed


def test_a_default_of_zero_is_a_number_and_one_of_false_a_no(tmp_path: Path) -> None:
    said = " ".join(typed(tmp_path, "worker", "--help").out.split())

    assert "0 is none [env: MILEPOST_PROBE_PORT] [default: 0]" in said
    assert "log lines as JSON [env: MILEPOST_LOG_JSON] [default: no]" in said
