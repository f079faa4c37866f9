"""One line for the person who decides."""

from milepost.tools import preview


def test_a_call_is_shown_as_python_would_write_it() -> None:
    assert preview("send_email", {"to": "a@b.com", "subject": "hi"}) == (
        "send_email(to='a@b.com', subject='hi')"
    )
    assert preview("now", {}) == "now()"
    assert preview("set", {"on": True, "to": None, "ids": [1]}) == (
        "set(on=True, to=None, ids=[1])"
    )


def test_a_long_call_is_cut_at_200_characters() -> None:
    text = preview("send_email", {"body": "x" * 1000})

    assert len(text) == 200
    assert text.endswith("x…")
