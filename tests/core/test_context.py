"""What stands before a run's own messages, and in which order."""

from milepost.core.context import (
    CONTEXT_CHARS_MAX,
    NOTHING_EARLIER,
    SUMMARY_CHARS_MAX,
    Earlier,
    block,
    shown,
    summary_block,
)
from milepost.core.messages import Message

EARLIER = (Message("user", "Hi"), Message("assistant", "Hello."))


def test_me9_sections_stand_in_their_order_and_only_those_with_something_in_them() -> None:
    told = block(
        {
            "general": ["It is autumn."],
            "relationships": ["Ann works at Acme."],
            "entities": ["Ann, a clerk", "Acme, a firm"],
            "important": [],
        }
    )

    assert told == (
        "[Known Entities]\nAnn, a clerk\nAcme, a firm\n\n"
        "[Known Relationships]\nAnn works at Acme.\n\n"
        "[General Knowledge]\nIt is autumn."
    )


def test_nothing_remembered_is_no_block() -> None:
    assert block({}) == block({"entities": []}) == ""


def test_the_block_is_bounded_and_the_first_sections_have_the_room() -> None:
    told = block({"general": ["g" * 500] * 10, "entities": ["e" * 500] * 12})

    assert len(told) <= CONTEXT_CHARS_MAX
    assert told.count("e" * 500) == 12
    assert 0 < told.count("g" * 500) < 10


def test_c18_summary_then_pinned_then_the_session_then_what_is_remembered() -> None:
    earlier = Earlier(
        EARLIER,
        summaries=("They met.", "They talked."),
        pinned=(Message("user", "Never forget."),),
        context="[Known Entities]\nAnn",
    )

    assert shown(earlier, "They parted.") == (
        Message("system", "[Conversation Summary]\nThey met.\nThey talked.\nThey parted."),
        Message("user", "Never forget."),
        *EARLIER,
        Message("system", "[Known Entities]\nAnn"),
    )


def test_what_is_remembered_is_no_instruction_where_it_begins_the_conversation() -> None:
    """All that the system says first stands in one place on some wires."""
    earlier = Earlier(summaries=("They met.",), context="[Known Entities]\nAnn")

    assert [message.role for message in shown(earlier)] == ["system", "user"]


def test_nothing_earlier_is_nothing_shown() -> None:
    assert shown(NOTHING_EARLIER) == ()


def test_of_too_many_summaries_the_newest_are_told() -> None:
    told = summary_block([f"{number} " + "x" * 1_000 for number in range(20)])

    assert len(told) <= SUMMARY_CHARS_MAX + len("[Conversation Summary]\n")
    assert "\n19 " in told
    assert "\n0 " not in told
