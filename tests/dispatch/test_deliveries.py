"""Deliveries: offered in their order, in the worker's hands, and let go of."""

from milepost.dispatch.deliveries import Deliveries


class Bell:
    """Counts how often it is rung."""

    def __init__(self) -> None:
        self.rung = 0

    def __call__(self) -> None:
        """Ring."""
        self.rung += 1


async def test_what_is_delivered_is_offered_once_and_in_its_order() -> None:
    bell = Bell()
    deliveries = Deliveries(bell)

    for run_id in ("a", "b", "c"):
        _ = deliveries.deliver(run_id)

    assert bell.rung == 3
    assert deliveries.next(2) == ("a", "b")
    assert deliveries.next(2) == ("c",)
    assert deliveries.next(2) == ()


async def test_a_delivery_lasts_until_the_worker_lets_go_of_it() -> None:
    deliveries = Deliveries(Bell())
    let_go = deliveries.deliver("a")
    deliveries.next(1)

    assert not let_go.done()

    deliveries.let_go("a")
    assert let_go.done()
    deliveries.let_go("a")


async def test_a_run_that_is_delivered_again_meanwhile_is_the_same_delivery() -> None:
    bell = Bell()
    deliveries = Deliveries(bell)
    first = deliveries.deliver("a")
    deliveries.next(1)

    assert deliveries.deliver("a") is first
    assert deliveries.next(1) == ()
    assert bell.rung == 1


async def test_a_run_is_offered_anew_when_it_is_delivered_after_it_was_let_go_of() -> None:
    deliveries = Deliveries(Bell())
    _ = deliveries.deliver("a")
    deliveries.next(1)
    deliveries.let_go("a")

    _ = deliveries.deliver("a")

    assert deliveries.next(1) == ("a",)


async def test_what_the_worker_took_without_an_offer_is_offered_no_more() -> None:
    deliveries = Deliveries(Bell())
    let_go = deliveries.deliver("a")

    deliveries.let_go("a")

    assert let_go.done()
    assert deliveries.next(1) == ()


async def test_who_closes_lets_go_of_what_nobody_took_up_and_of_what_comes() -> None:
    deliveries = Deliveries(Bell())
    held = deliveries.deliver("held")
    deliveries.next(1)
    offered = deliveries.deliver("offered")

    deliveries.close()

    assert offered.done()
    assert deliveries.deliver("late").done()
    assert deliveries.next(1) == ()
    assert not held.done()
    deliveries.let_go("held")
    assert held.done()
