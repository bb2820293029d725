"""Laws of the archive: what is said has no part in a summary but for its length."""

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from support.archived import NOW_MS, folded
from turnstate.agents.archive.deidentify import clean
from turnstate.agents.archive.phones import default_deidentifier
from turnstate.agents.archive.summary import (
    SessionSummary,
    SummaryRules,
    encode_summary,
    summarise,
)
from turnstate.schemas.ids import SessionName

NAME = SessionName("acme", "s")
RULES = SummaryRules(b"sixteen bytes and more")
DEIDENTIFIER = default_deidentifier()

WORDS = st.lists(
    st.text("qzxjvkwyQZXJVKWY", min_size=4, max_size=9), min_size=1, max_size=6
).map(" ".join)
"""Text in words that no label and no key of a summary has in it."""


@st.composite
def _dialogues(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Two dialogues of one shape that say different things."""
    sides: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for at in range(draw(st.integers(1, 6))):
        role = draw(st.sampled_from(["user", "assistant", "tool"]))
        turn: dict[str, Any] = {"role": role, "turn_id": f"t{at}"}
        if draw(st.booleans()):
            turn["intent"] = draw(st.sampled_from(["find_bus", "Hotel-Inform"]))
        if draw(st.booleans()):
            turn["action"] = draw(st.sampled_from(["inform", "offer", "nothing"]))
        has_slot, has_call = draw(st.booleans()), draw(st.booleans())
        for side in sides:
            said = dict(turn, content=draw(WORDS))
            if has_slot:
                said["slots"] = {"set": {"area": draw(WORDS)}}
            if has_call and role == "assistant":
                function = {"name": "search", "arguments": draw(WORDS)}
                said["tool_calls"] = [
                    {"id": f"c{at}", "type": "function", "function": function}
                ]
            side.append(said)
    return sides


def _summary(turns: list[dict[str, Any]]) -> SessionSummary:
    session = folded(NAME, turns)
    return summarise(
        session.name,
        session.stored,
        session.ops,
        session.phases,
        rules=RULES,
        deidentifier=DEIDENTIFIER,
        now_ms=NOW_MS,
    )


def _without_proofs(summary: SessionSummary) -> SessionSummary:
    return replace(summary, digest="", link="", text_bytes=0)


@given(_dialogues())
def test_what_is_said_does_not_matter(
    dialogues: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    """Two dialogues of one shape have one summary, but for hashes and length."""
    first, second = map(_summary, dialogues)
    assert _without_proofs(first) == _without_proofs(second)


@given(_dialogues())
def test_no_word_that_was_said_is_in_the_bytes(
    dialogues: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    data = encode_summary(_summary(dialogues[0])).decode()
    words = set(re.findall(r"[qzxjvkwyQZXJVKWY]{4,}", str(dialogues[0])))
    assert words
    assert not [word for word in words if word in data]


@given(st.text(max_size=200))
def test_findings_are_in_order_apart_and_within(text: str) -> None:
    at = 0
    for start, end, kind in DEIDENTIFIER.find(text):
        assert at <= start < end <= len(text)
        assert kind
        at = end


@given(st.text(max_size=200))
def test_cleaning_is_a_function_of_the_text(text: str) -> None:
    assert clean(text, DEIDENTIFIER) == clean(text, DEIDENTIFIER)
