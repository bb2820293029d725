"""A summary holds counts, names and proofs; no text gets in, whatever it says."""

import json
import re
from typing import Any

import msgspec
import pytest

from support.archived import NOW_MS, folded
from turnstate.agents.archive.languages import language_of
from turnstate.agents.archive.phones import default_deidentifier
from turnstate.agents.archive.summary import (
    OTHER,
    SessionSummary,
    SummaryRules,
    decode_summary,
    encode_summary,
    pseudonym,
    summarise,
)
from turnstate.schemas.ids import SessionName

KEY = b"a secret of more than 16 bytes"
NAME = SessionName("acme", "chat-of-alice")
DEIDENTIFIER = default_deidentifier()


def _summary(turns: list[dict[str, Any]], **rules: Any) -> SessionSummary:
    session = folded(NAME, turns)
    return summarise(
        session.name,
        session.stored,
        session.ops,
        session.phases,
        rules=SummaryRules(KEY, **rules),
        deidentifier=DEIDENTIFIER,
        now_ms=NOW_MS,
    )


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": "c1",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


DIALOGUE: list[dict[str, Any]] = [
    {
        "role": "user",
        "turn_id": "t1",
        "user": "alice@example.com",
        "content": "Wonderful evening, please book Ristorante Zanzibar for two",
        "intent": "ask_seat",
        "action": "inform",
        "slots": {"set": {"people": 2, "restaurant": "Zanzibar"}},
        "time": "2024-05-01T10:00:00Z",
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [_call("reserve", '{"guest": "Quentin Thornbury"}')],
        "usage": {"tokens": 12},
        "time": 1_714_557_660_000,
    },
    {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "confirmed under reference XZ-7781-QQ",
        "time": "2024-05-01T10:05:00Z",
    },
    {"role": "user", "content": "谢谢你", "action": "thank", "tags": {"add": ["vip"]}},
]


def test_it_counts_and_names() -> None:
    summary = _summary(DIALOGUE)
    assert summary.turn_count == 4
    assert summary.roles == {"assistant": 1, "tool": 1, "user": 2}
    assert summary.languages == {"latin": 2, "none": 1, "zh": 1}
    assert summary.intents == {"ask_seat": 1}
    assert summary.tools == {"reserve": 1}
    assert summary.actions == {"inform": 1, "thank": 1}
    assert summary.phases == ["collecting"]
    assert summary.slots == ["people", "restaurant"]
    assert summary.slot_values == {}
    assert summary.tags == ["vip"]
    assert summary.usage == {"tokens": 12}
    assert summary.first_day == "2024-05-01"
    assert summary.duration_ms == 300_000
    assert summary.longest_pause_ms == 239_000 + 1_000
    assert summary.position == 3


def test_no_word_of_the_text_is_in_it() -> None:
    """Every word of four letters and more, of text, arguments and values."""
    data = encode_summary(_summary(DIALOGUE)).decode()
    said = json.dumps([[turn.get("content"), turn.get("slots")] for turn in DIALOGUE])
    said += "Quentin Thornbury guest alice@example.com chat-of-alice 谢谢你"
    names = {"people", "restaurant", "content", "slots"}
    words = set(re.findall(r"\w{4,}", said)) - names
    assert len(words) > 12
    assert [word for word in words if word in data] == []


def test_a_session_and_a_user_are_found_only_with_the_key() -> None:
    summary = _summary(DIALOGUE)
    assert summary.session == pseudonym(KEY, "acme", "chat-of-alice")
    assert summary.owner == pseudonym(KEY, "acme", "user", "alice@example.com")
    assert summary.session != pseudonym(b"x" * 16, "acme", "chat-of-alice")


def test_values_of_slots_that_are_kept_are_cleaned() -> None:
    turns = [
        {
            "role": "user",
            "slots": {
                "set": {
                    "area": "near 12 Maple Street",
                    "people": 4,
                    "contact": "a.b@example.com",
                }
            },
        }
    ]
    summary = _summary(turns, slots_kept=frozenset({"area", "people", "gone"}))
    assert summary.slot_values == {"area": ["near [address]"], "people": ["4"]}
    assert summary.slots == ["area", "contact", "people"]
    assert summary.removed["address"] == 1


@pytest.mark.parametrize(
    "label",
    [
        "please call me back later",
        "alice@example.com",
        "我想在明天晚上预订一张桌子",
        "4111111111111111",
        "x" * 65,
        "",
    ],
)
def test_a_label_that_may_be_text_is_left_out(label: str) -> None:
    summary = _summary([{"role": "user", "intent": label or " "}])
    assert summary.intents == {OTHER: 1}


@pytest.mark.parametrize(
    "label", ["Hotel-Inform", "Request-餐馆", "search_flight", "a.b"]
)
def test_a_label_that_a_program_gave_stays(label: str) -> None:
    assert _summary([{"role": "user", "intent": label}]).intents == {label: 1}


def test_operations_redactions_and_ends_are_counted() -> None:
    turns = [
        {"role": "user", "turn_id": "t1", "content": "hello"},
        {"role": "user", "turn_id": "t2", "content": "there"},
        {"role": "system", "op": "redact", "target": "t1"},
        {"role": "system", "op": "end"},
    ]
    summary = _summary(turns)
    assert summary.operations == {"end": 1, "redact": 1}
    assert (summary.redacted, summary.ended) == (1, True)


def test_it_reads_back() -> None:
    summary = _summary(DIALOGUE)
    data = encode_summary(summary)
    assert decode_summary(data) == summary
    assert data.count(b"\n") == 1
    assert msgspec.json.decode(data)["digest"] == summary.digest


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("请帮我订票", "zh"),
        ("予約をお願いします", "ja"),
        ("예약해 주세요", "ko"),
        ("Здравствуйте", "cyrillic"),
        ("a table, please", "latin"),
        ("42 !", "none"),
        ("", "none"),
    ],
)
def test_a_language_shows_in_its_script(text: str, language: str) -> None:
    assert language_of(text) == language
