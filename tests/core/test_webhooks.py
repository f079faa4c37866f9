"""Globs over events, the specification's own example of a signature, and when to try again."""

import pytest

from milepost.core.codec import EVENTS
from milepost.core.webhooks import (
    LOGGED_TYPES,
    RETRY_WAITS_MS,
    TYPES,
    delivery_id,
    key_of,
    secret_of,
    signature,
    wait_ms,
    wants,
)


@pytest.mark.parametrize(
    ("pattern", "fitting"),
    [
        ("approval.*", {"approval.requested", "approval.decided", "approval.reminder"}),
        ("run.completed", {"run.completed"}),
        ("*", {"approval.requested", "run.failed", "webhook.test"}),
        ("RUN.*", set()),
        ("run", set()),
    ],
)
def test_a_glob_fits_types_of_events(pattern: str, fitting: set[str]) -> None:
    fits = {kind for kind in TYPES if wants([pattern], kind)}

    assert fitting <= fits
    assert bool(fits) == bool(fitting)


def test_any_of_several_globs_is_enough() -> None:
    assert wants(["run.failed", "approval.*"], "approval.decided")
    assert not wants([], "approval.decided")


def test_what_a_webhook_may_want_of_a_log_is_an_event_that_there_is() -> None:
    assert set(EVENTS) >= LOGGED_TYPES


def test_every_end_of_a_run_may_be_wanted() -> None:
    ends = {f"run.{how}" for how in ("completed", "incomplete", "failed", "cancelled", "expired")}

    assert ends <= LOGGED_TYPES


def test_a_message_is_signed_as_the_specification_signs_its_example() -> None:
    key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert key is not None

    signed = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_secret_is_written_so_that_its_key_can_be_read_again() -> None:
    assert key_of(secret_of(b"k" * 32)) == b"k" * 32
    assert key_of("whsec_not base64!") is None


def test_seven_retries_follow_after_longer_and_longer_waits_and_then_none() -> None:
    waits = [wait_ms(attempt, 0) for attempt in range(1, 9)]

    assert waits == [*RETRY_WAITS_MS, None]
    assert [wait // 1000 for wait in RETRY_WAITS_MS] == [5, 30, 120, 600, 3_600, 21_600, 86_400]


def test_what_failed_together_is_spread_over_a_tenth_of_the_wait() -> None:
    assert wait_ms(1, 1.0) == 5_500
    assert wait_ms(1, 0.5) == 5_250


def test_a_delivery_has_the_same_id_whoever_makes_it_and_another_for_another_webhook() -> None:
    one = delivery_id("run_1:4", "whk_1", 1_700_000_000_000)

    assert one == delivery_id("run_1:4", "whk_1", 1_700_000_000_000)
    assert one != delivery_id("run_1:4", "whk_2", 1_700_000_000_000)
    assert one != delivery_id("run_1:5", "whk_1", 1_700_000_000_000)
    assert one.startswith("whd_")
