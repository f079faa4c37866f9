"""JSON that is written once and sent many times."""

import orjson

from milepost.providers.encoded_once import KEPT_MAX, EncodedOnce


class Counting:
    """Counts how often it shapes what."""

    def __init__(self) -> None:
        self.shaped: list[int] = []

    def shape(self, thing: list[int]) -> dict[str, int]:
        self.shaped.append(thing[0])
        return {"n": thing[0]}


def test_the_same_thing_is_written_once() -> None:
    counting = Counting()
    encoded, thing = EncodedOnce(counting.shape), [7]

    documents = [orjson.dumps([encoded.of(thing)]) for _ in range(3)]

    assert documents == [b'[{"n":7}]'] * 3
    assert counting.shaped == [7]


def test_equal_things_are_not_taken_for_the_same() -> None:
    counting = Counting()
    encoded = EncodedOnce(counting.shape)
    one, other = [7], [7]

    encoded.of(one)
    other[0] = 8

    assert orjson.dumps(encoded.of(other)) == b'{"n":8}'


def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    counting = Counting()
    encoded = EncodedOnce(counting.shape)
    things = [[n] for n in range(KEPT_MAX + 1)]

    for thing in things[:-1]:
        encoded.of(thing)
    encoded.of(things[0])
    encoded.of(things[-1])
    counting.shaped.clear()
    encoded.of(things[0])
    encoded.of(things[1])

    assert counting.shaped == [1]
