"""Ids of calls as vendors see them."""

from milepost.core.messages import ToolCall
from milepost.providers.wire_ids import WireIds


def call(call_id: str, provider_id: str = "") -> ToolCall:
    return ToolCall(call_id, "add", {}, provider_id)


def test_a_call_goes_by_its_vendors_id_or_else_by_ours() -> None:
    ids = WireIds()

    assert ids.of_call(call("call_1_0", "vendor_7")) == "vendor_7"
    assert ids.of_call(call("call_1_1")) == "call_1_1"
    assert [ids.of_result(f"call_1_{n}") for n in range(2)] == ["vendor_7", "call_1_1"]


def test_no_id_is_given_twice_however_often_it_comes() -> None:
    ids = WireIds()

    given = [ids.of_call(call("call_1_0", "same")) for _ in range(4)]

    assert given == ["same", "call_1_0", "call_1_0_2", "call_1_0_3"]


def test_a_result_answers_the_latest_call_of_its_id() -> None:
    ids = WireIds()

    for provider_id in ("first", "second"):
        ids.of_call(call("call_1_0", provider_id))

    assert ids.of_result("call_1_0") == "second"


def test_a_result_without_a_call_keeps_its_id() -> None:
    assert WireIds().of_result("call_1_0") == "call_1_0"


def test_ids_are_spelt_as_the_vendor_wants_and_stay_apart() -> None:
    ids = WireIds(lambda call_id: call_id.replace(".", "_"))

    given = [ids.of_call(call("a.b", provider_id)) for provider_id in ("x.y", "x_y", "x.y")]

    assert given == ["x_y", "a_b", "a_b_2"]
