"""What clients want in a simulation: few runs, small ones, and in each seed others."""

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.agents import CLERK, ONE_BY_ONE, PARENT, TOOLS, Plan, Wanted
from tests.simulation.clients import Wish

if TYPE_CHECKING:
    from tests.simulation.world import World

CHILD_PLANS_FROM = 100


def wishes(world: "World", within_s: float) -> list[Wish]:
    """Return what clients want, and put the plans where the model finds them."""
    random = world.random
    wanted: list[Wish] = []
    for number in range(random.choice((1, 1, 2, 2, 3))):
        plan = plan_of(random, world.plans, number)
        world.plans[number] = plan
        behind = wanted[-1] if wanted and random.random() < 0.5 else None
        wanted.append(_wish(random, plan, behind, within_s))
    return wanted


def _wish(random: Random, plan: Plan, behind: Wish | None, within_s: float) -> Wish:
    chance = random.random()
    return Wish(
        plan,
        key=f"key {plan.number}" if random.random() < 0.6 else None,
        at_s=random.random() ** 2 * within_s * 0.7,
        delay_s=random.random() * 3 if chance < 0.1 else None,
        deadline_s=0.5 + random.random() * 7 if chance > 0.87 else None,
        behind=behind,
        cancel_after_s=random.random() ** 2 * 6 if random.random() < 0.2 else None,
        says_after_s=_moments(random) if random.random() < 0.4 else (),
    )


def _moments(random: Random) -> tuple[float, ...]:
    """Return when something is said to a run: often at about the same time."""
    first_s = random.random() ** 2 * 4
    moments = [first_s + random.random() ** 3 for _ in range(random.choice((1, 1, 2, 3)))]
    return tuple(sorted(moments))


def plan_of(random: Random, plans: dict[int, Plan], number: int) -> Plan:
    """Return what a run is to do, and put what its child is to do among the plans."""
    agent = random.choice((CLERK, CLERK, CLERK, ONE_BY_ONE, PARENT))
    steps = tuple(
        tuple(_wanted(random, f"{number}{step}{call}") for call in range(random.choice((1, 1, 2))))
        for step in range(random.choice((0, 1, 1, 1, 2)))
    )
    if agent is PARENT:
        child = CHILD_PLANS_FROM + number
        plans[child] = Plan(child, CLERK, ((_wanted(random, f"{child}"),),))
        steps = ((Wanted("agent:clerk", child),), *steps[:1])
    return Plan(number, agent, steps)


def _wanted(random: Random, digits: str) -> Wanted:
    return Wanted(random.choice(TOOLS), int(f"1{digits}"))
