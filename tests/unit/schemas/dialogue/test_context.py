"""What a model is shown of a dialogue, within its budget."""

from typing import Any

from msgspec import Raw

from turnstate.schemas.dialogue.context import (
    LOST_RESULT,
    ContextTurn,
    Message,
    context_turns,
    estimated_tokens,
    fit,
)


def said(name: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"turn_id": name, "role": role, "content": f"text of {name}", **fields}


def asks(name: str, *calls: str) -> dict[str, Any]:
    tool_calls = [
        {"id": call, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for call in calls
    ]
    return said(name, "assistant", content=None, tool_calls=tool_calls)


def result(name: str, call: str | None) -> dict[str, Any]:
    return said(name, "tool", tool_call_id=call) if call else said(name, "tool")


def one(_: Message) -> int:
    return 1


def shown(turns: list[dict[str, Any]], budget: int, **options: Any) -> list[Any]:
    found = fit(list(context_turns(turns)), budget, estimate=one, **options)
    return [
        message.get("content") or [call["id"] for call in message.get("tool_calls", ())]
        for message in found.messages
    ]


def test_the_newest_that_fit_are_shown_oldest_first() -> None:
    turns = [said(str(n)) for n in range(5)]
    found = fit(list(context_turns(turns)), 2, estimate=one)
    assert [m["content"] for m in found.messages] == ["text of 3", "text of 4"]
    assert found.left_out == ["0", "1", "2"]
    assert found.tokens == 2


def test_the_system_prompt_is_kept_even_above_the_budget() -> None:
    turns = [said("p", "system"), said("q", "developer"), said("0"), said("1")]
    assert shown(turns, 1) == ["text of p", "text of q"]
    assert shown(turns, 3) == ["text of p", "text of q", "text of 1"]
    later = [said("0"), said("p", "system"), said("1")]
    assert shown(later, 1) == ["text of 1"]


def test_the_cut_moves_so_that_a_call_keeps_its_results() -> None:
    turns = [said("0"), asks("1", "a", "b"), result("2", "a"), result("3", "b")]
    turns.append(said("4"))
    for budget, expected in ((1, 1), (2, 1), (3, 1), (4, 4), (5, 5)):
        assert len(shown(turns, budget)) == expected
    found = fit(list(context_turns(turns)), 3, estimate=one)
    assert found.left_out == ["0", "1", "2", "3"]


def test_pairs_that_overlap_stay_together() -> None:
    turns = [asks("0", "a"), asks("1", "b"), result("2", "a"), result("3", "b")]
    assert [len(shown(turns, budget)) for budget in (1, 2, 3, 4)] == [0, 0, 0, 4]


def test_an_open_call_can_be_given_a_result_that_says_so() -> None:
    turns = [said("0"), asks("1", "a", "b"), result("2", "a"), said("3")]
    assert shown(turns, 9)[1:] == [["a", "b"], "text of 2", "text of 3"]
    completed = shown(turns, 9, complete_open_calls=True)
    assert completed[1:] == [["a", "b"], "text of 2", LOST_RESULT, "text of 3"]
    # The pair counts whole: four messages do not fit in three.
    assert shown(turns, 3, complete_open_calls=True) == ["text of 3"]
    assert "tool_calls" in turns[1]


def test_an_id_that_is_used_again_is_answered_for_each_call() -> None:
    turns = [asks("0", "a"), asks("1", "a"), result("2", "a")]
    found = shown(turns, 9, complete_open_calls=True)
    assert found == [["a"], LOST_RESULT, ["a"], "text of 2"]


def test_a_result_without_its_call_is_left_out() -> None:
    turns = [result("0", "gone"), result("1", None), said("2")]
    found = fit(list(context_turns(turns)), 9, estimate=one)
    assert [m["content"] for m in found.messages] == ["text of 2"]
    assert found.left_out == ["0", "1"]


def test_a_result_that_names_no_call_answers_the_oldest_open_one() -> None:
    turns = [asks("0", "a", "b"), result("1", None), result("2", None)]
    found = fit(list(context_turns(turns)), 9, estimate=one)
    assert [m.get("tool_call_id") for m in found.messages] == [None, "a", "b"]
    assert "tool_call_id" not in turns[1]


def test_what_is_redacted_is_left_out_with_its_results() -> None:
    hidden = {"turn_id": "1", "role": "assistant", "content": None, "redacted": True}
    turns = [said("0"), hidden, result("2", "a"), said("3")]
    found = fit(list(context_turns(turns)), 9, estimate=one)
    assert [m["content"] for m in found.messages] == ["text of 0", "text of 3"]
    assert found.left_out == ["1", "2"]


def test_empty_turns_and_null_are_kept_as_they_are() -> None:
    empty = said("0", "assistant", content="")
    null = asks("1", "a")
    bare = {"turn_id": "2", "role": "assistant"}
    found = fit(list(context_turns([empty, null, bare])), 9, estimate=one)
    assert found.messages[0] == {"role": "assistant", "content": ""}
    assert found.messages[1]["content"] is None
    assert found.messages[2] == {"role": "assistant"}


def test_parts_follow_the_turn_that_they_continue() -> None:
    whole = {**asks("0", "a"), "parts": [result("1", "a"), said("2", "assistant")]}
    assert shown([whole], 9) == [["a"], "text of 1", "text of 2"]


def test_tool_calls_of_any_shape_do_no_harm() -> None:
    odd: list[Any] = [Raw(b"7"), Raw(b'[1, {"id": 2}, {"id": "a"}]'), {}, [None]]
    for calls in odd:
        turns = [said("0", "assistant", tool_calls=calls)]
        assert len(fit(list(context_turns(turns)), 1_000).messages) == 1


def test_the_estimate_is_a_quarter_of_the_bytes_and_four() -> None:
    assert estimated_tokens({"role": "user", "content": "x" * 400}) == 111
    assert estimated_tokens({"content": Raw(b'"\xe4\xbd\xa0"')}) == 9
    assert fit([ContextTurn("0", {"role": "user"})], 7).messages == []
