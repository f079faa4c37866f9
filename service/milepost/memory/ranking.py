"""What of all that is known is worth telling: the best by words, by meaning and by time."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

SMOOTHING = 60


def fused(*rankings: Sequence[K], weights: Iterable[float] | None = None) -> list[K]:
    """Return all that is in any of the rankings, what stands high in several of them first.

    Reciprocal rank fusion: it needs no scores that could be compared with each other. What stands
    equally high comes in the order of the rankings.
    """
    scores: defaultdict[K, float] = defaultdict(float)
    for ranking, weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        for place, key in enumerate(ranking, start=1):
            scores[key] += weight / (SMOOTHING + place)
    return sorted(scores, key=lambda key: -scores[key])
