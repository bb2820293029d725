"""Laws of the context: any cut keeps pairs, and cutting again changes nothing."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnstate.schemas.dialogue.context import (
    Context,
    Message,
    context_turns,
    fit,
)

CALLS = st.sampled_from(["a", "b", "c", "d"])


def text_turn(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def asking_turn(calls: list[str]) -> dict[str, Any]:
    asked = [{"id": call} for call in calls]
    return {"role": "assistant", "content": None, "tool_calls": asked}


def result_turn(call: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call}


ROLES = st.sampled_from(["user", "assistant", "system", "developer"])
WHICH: dict[str, Any] = {"role": "tool", "content": "which?"}
HIDDEN: dict[str, Any] = {"role": "assistant", "content": None, "redacted": True}
TURNS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(text_turn, ROLES, st.text(max_size=12)),
    st.builds(asking_turn, st.lists(CALLS, min_size=1, max_size=3, unique=True)),
    st.builds(result_turn, CALLS),
    st.just(WHICH),
    st.just(HIDDEN),
)


def numbered(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"turn_id": str(at), **turn} for at, turn in enumerate(turns)]


def tokens_of(message: Message) -> int:
    return 1 + len(message.get("content") or "") % 3


def cut(turns: list[dict[str, Any]], budget: int, *, complete: bool) -> Context:
    return fit(
        list(context_turns(numbered(turns))),
        budget,
        estimate=tokens_of,
        complete_open_calls=complete,
    )


@given(st.lists(TURNS, max_size=14), st.integers(1, 30), st.booleans())
def test_a_cut_never_parts_a_call_from_its_result(
    turns: list[dict[str, Any]], budget: int, complete: bool
) -> None:
    whole = cut(turns, 10_000, complete=complete)
    part = cut(turns, budget, complete=complete)
    for found in (whole, part):
        asked: list[str] = []
        for message in found.messages:
            if message["role"] == "tool":
                assert message["tool_call_id"] in asked, "a result without its call"
                asked.remove(message["tool_call_id"])
            for call in message.get("tool_calls", ()):
                asked.append(call["id"])
        if complete:
            assert asked == [], "a call without a result"
    # As many results of each kept call are shown as there are in the whole.
    missing = len(whole.messages) - len(part.messages)
    prompt = 0
    while prompt < len(part.messages) and part.messages[prompt]["role"] in (
        "system",
        "developer",
    ):
        prompt += 1
    newest = part.messages[prompt:]
    assert newest == whole.messages[prompt + missing :]


@given(st.lists(TURNS, max_size=14), st.integers(1, 30), st.booleans())
def test_cutting_three_times_changes_nothing(
    turns: list[dict[str, Any]], budget: int, complete: bool
) -> None:
    once = cut(turns, budget, complete=complete)
    again = once
    for _ in range(3):
        again = cut(again.messages, budget, complete=complete)
        assert again.messages == once.messages
        assert again.tokens == once.tokens
        assert again.left_out == []


@given(st.lists(TURNS, max_size=14), st.integers(1, 30), st.booleans())
def test_the_budget_holds_and_every_turn_is_shown_or_named(
    turns: list[dict[str, Any]], budget: int, complete: bool
) -> None:
    found = cut(turns, budget, complete=complete)
    assert found.tokens == sum(map(tokens_of, found.messages))
    prompts = [m for m in found.messages if m["role"] in ("system", "developer")]
    assert found.tokens <= budget or len(prompts) == len(found.messages)
    own = [m for m in found.messages if "no result" not in (m.get("content") or "")]
    assert len(own) + len(found.left_out) == len(turns)
    assert len(set(found.left_out)) == len(found.left_out)
