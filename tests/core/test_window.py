"""The window: what of a session is in sight, where it begins, and how much it takes."""

from hypothesis import given
from hypothesis import strategies as st

from milepost.core.agents import Memory, Window
from milepost.core.messages import Image, Message, ToolCall
from milepost.core.window import (
    PLAIN,
    TOKENS_PER_IMAGE,
    Counted,
    Place,
    Placed,
    cut,
    estimated,
    holds,
    weighed,
    window_of,
)

CALL = ToolCall("call_1_0", "look", {})
PLAIN_TURN = (Message("user", "Well?"), Message("assistant", "Well."))
TOOL_TURN = (
    Message("user", "Look."),
    Message("assistant", calls=(CALL,)),
    Message("tool", "seen", call_id=CALL.id),
    Message("assistant", "I see."),
)

SESSIONS = st.lists(
    st.lists(st.sampled_from(["user", "assistant", "call", "system"]), min_size=1, max_size=6),
    max_size=12,
)
WINDOWS = st.builds(Window, messages=st.integers(1, 12), tokens=st.none()) | st.builds(
    Window, messages=st.none() | st.integers(1, 12), tokens=st.integers(1, 60)
)


def session(*turns: tuple[Message, ...], tokens: int = 5) -> list[Placed]:
    return [
        Placed(Place(turn, at), message, tokens)
        for turn, messages in enumerate(turns, start=1)
        for at, message in enumerate(messages)
    ]


def spelt(turns: list[list[str]]) -> list[Placed]:
    """Return a session in which every call has its result behind it."""
    said: list[tuple[Message, ...]] = []
    for turn in turns:
        messages: list[Message] = []
        for word in turn:
            if word == "call":
                messages += TOOL_TURN[1:3]
            else:
                messages.append(Message(word, "…"))  # type: ignore[arg-type]  # these are roles
        said.append(tuple(messages))
    return session(*said)


def test_what_has_room_is_all_shown() -> None:
    assert cut(session(*[PLAIN_TURN] * 10), Window(messages=20)) == 0
    assert cut([], Window(messages=1)) == 0


def test_too_much_frees_half_of_the_window_at_once() -> None:
    messages = session(*[PLAIN_TURN] * 11)

    begins = cut(messages, Window(messages=20))

    assert messages[begins].place == Place(7, 0)
    assert len(messages) - begins == 10


def test_a_window_in_tokens_counts_what_messages_take() -> None:
    messages = session(*[PLAIN_TURN] * 5, tokens=10)

    assert cut(messages, Window(tokens=100)) == 0
    assert len(messages) - cut(messages, Window(tokens=99)) == 4
    assert len(messages) - cut(messages, Window(tokens=80)) == 4


def test_of_two_bounds_the_one_that_is_reached_first_holds() -> None:
    messages = session(*[PLAIN_TURN] * 5, tokens=10)

    assert len(messages) - cut(messages, Window(messages=6, tokens=1_000)) == 2
    assert len(messages) - cut(messages, Window(messages=1_000, tokens=60)) == 2


def test_a_turn_that_is_more_than_half_is_kept_whole_if_there_is_room() -> None:
    messages = session(PLAIN_TURN, PLAIN_TURN, TOOL_TURN)

    assert messages[cut(messages, Window(messages=6))].place == Place(3, 0)


def test_a_turn_that_is_alone_too_much_is_never_cut_before_a_result() -> None:
    messages = session(PLAIN_TURN, TOOL_TURN)

    assert [each.message.role for each in messages[cut(messages, Window(messages=3)) :]] == [
        "assistant"
    ]
    assert cut(session(TOOL_TURN[:3]), Window(messages=1)) == 3


def test_of_a_turn_that_is_alone_too_much_half_of_the_window_is_kept() -> None:
    messages = session(PLAIN_TURN * 5)

    assert len(messages) - cut(messages, Window(messages=6)) == 3


def test_results_that_take_more_than_half_are_kept_with_their_calls_and_nothing_before() -> None:
    """What is freed now need not be freed with the next message."""
    calls = tuple(ToolCall(f"call_1_{at}", "look", {}) for at in range(4))
    results = tuple(Message("tool", "seen", call_id=call.id) for call in calls)
    messages = session((*PLAIN_TURN, Message("assistant", calls=calls), *results))

    assert cut(messages, Window(messages=6)) == len(PLAIN_TURN)


@given(SESSIONS, WINDOWS)
def test_me1_what_is_shown_is_within_the_window_and_begins_with_no_orphan(
    turns: list[list[str]], window: Window
) -> None:
    messages = spelt(turns)

    shown = messages[cut(messages, window) :]

    assert holds(shown, window)
    assert not shown or shown[0].message.role != "tool"
    asked = {call.id for each in shown for call in each.message.calls}
    assert all(each.message.call_id in asked for each in shown if each.message.role == "tool")


@given(SESSIONS, WINDOWS)
def test_what_was_cut_is_not_cut_again(turns: list[list[str]], window: Window) -> None:
    messages = spelt(turns)

    assert cut(messages[cut(messages, window) :], window) == 0


def test_an_agent_that_says_nothing_has_the_plain_window() -> None:
    assert window_of(None) == window_of(Memory()) == PLAIN
    assert window_of(Memory(Window(messages=4))) == Window(messages=4)


def test_a_place_is_written_and_read() -> None:
    assert str(Place(12, 3)) == "12.3"
    assert Place.of("12.3") == Place(12, 3)
    assert Place(2, 10) > Place(2, 9) > Place(1, 99)


def test_a_token_is_estimated_as_four_bytes() -> None:
    plain = estimated(Message("user", "x" * 400))

    assert 100 <= plain <= 110
    assert estimated(Message("user", "ж" * 400)) > plain
    with_image = Message("user", "x" * 400, images=(Image("https://a/b.png"),))
    assert estimated(with_image) == plain + TOKENS_PER_IMAGE
    called = Message("assistant", calls=(ToolCall("c", "look", {"at": "x" * 400}),))
    assert estimated(called) > 100


def test_what_a_vendor_has_counted_takes_the_place_of_the_estimate() -> None:
    said = (
        Message("user", "x" * 40),
        Message("assistant", "y" * 40),
        Message("user", "z" * 40),
        Message("assistant", "w" * 40),
    )

    tokens = weighed(said, [Counted(given=500, said=20), Counted(given=550, said=7)])

    assert tokens == (estimated(said[0]), 20, 30, 7)


def test_a_count_out_of_all_proportion_is_not_taken() -> None:
    said = (*PLAIN_TURN, Message("user", "And?"), Message("assistant", "No."))

    shrunk = weighed(said, [Counted(900, 5), Counted(20, 5)])
    grown = weighed(said, [Counted(900, 5), Counted(9_000, 5)])

    assert shrunk[2] == grown[2] == estimated(said[2])


def test_counts_belong_to_the_last_replies() -> None:
    """A run that goes on from another one has replies that nobody counted in it."""
    said = (*PLAIN_TURN, Message("user", "And?"), Message("assistant", "No."))

    assert weighed(said, [Counted(90, 9)])[3] == 9
    assert weighed(said, [Counted(90, 9)])[1] == estimated(said[1])
    assert weighed(said, [None, Counted(90, 9)])[2] == estimated(said[2])


def test_several_messages_share_what_was_counted_for_all_of_them() -> None:
    said = (
        Message("assistant", calls=(CALL, ToolCall("call_1_1", "look", {}))),
        Message("tool", "x" * 100, call_id="call_1_0"),
        Message("tool", "y" * 300, call_id="call_1_1"),
        Message("assistant", "Done."),
    )

    tokens = weighed(said, [Counted(100, 10), Counted(310, 5)])

    assert tokens[1] + tokens[2] == 200
    assert tokens[2] > tokens[1] * 2
