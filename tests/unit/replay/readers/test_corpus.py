"""Corpus lines become turns whose slots fold to the corpus's own final state."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.corpora import (
    corpus_lines,
    corpus_name,
    corpus_paths,
    expected_slots,
    latest_changes,
    snapshot_paths,
)
from turnstate.replay.readers import Refusal, read, read_file
from turnstate.schemas.wire.json import draft_from_json


def line(turn: int = 0, role: str = "user", **fields: Any) -> bytes:
    whole = {"tenant": "sgd", "session": "s", "turn": turn, "role": role, "text": "x"}
    return json.dumps({**whole, **fields}, ensure_ascii=False).encode()


def turns(*lines: bytes) -> list[dict[str, Any]]:
    found = list(read(lines, "corpus"))
    assert not [each for each in found if isinstance(each, Refusal)], found
    return [json.loads(each) for each in found if isinstance(each, bytes)]


def slots(*lines: bytes) -> list[dict[str, Any] | None]:
    return [turn.get("slots") for turn in turns(*lines)]


def folded(path: Path) -> dict[str, dict[str, Any]]:
    state: dict[str, dict[str, Any]] = {}
    for raw in read_file(path, "corpus"):
        assert isinstance(raw, bytes), raw
        turn = json.loads(raw)
        session = state.setdefault(turn["session"], {})
        change = turn.get("slots", {})
        for name in change.get("delete", []):
            session.pop(name, None)
        session.update(change.get("set", {}))
    return state


@pytest.mark.parametrize("path", snapshot_paths(), ids=corpus_name)
def test_final_slots_are_the_corpus_s_own(path: Path) -> None:
    assert folded(path) == expected_slots(path)


def test_the_two_writers_of_crosswoz_agree_on_the_end() -> None:
    (path,) = (path for path in snapshot_paths() if corpus_name(path) == "crosswoz")

    assert latest_changes(path) == expected_slots(path)


@pytest.mark.parametrize("path", corpus_paths(), ids=corpus_name)
def test_every_line_is_a_turn_that_the_door_takes(path: Path) -> None:
    for raw, given in zip(read_file(path, "corpus"), corpus_lines(path), strict=True):
        assert isinstance(raw, bytes), raw
        draft = draft_from_json(raw)
        assert draft.name == (given["tenant"], given["session"])
        assert draft.turn_id == str(given["turn"])
        assert draft.time == given["ts_ms"]
        assert draft.body.role == given["role"]
        assert draft.body.content == given["text"]
        assert draft.body.intent == given["intent"]
        metadata = json.loads(draft.body.metadata or b"{}")
        assert metadata.get("services") == given["services"]
        assert metadata.get("topic_switch") == given["topic_switch"]


def test_sgd_knows_only_of_the_services_that_a_turn_names() -> None:
    assert slots(
        line(0, slots={"A_1.x": "1", "B_1.y": "2"}, services=["A_1", "B_1"]),
        line(1, role="assistant", slots=None, services=["A_1"]),
        line(2, slots={"A_1.x": "1", "A_1.z": ["p", "q"]}, services=["A_1"]),
        line(4, slots={"A_1.z": ["p", "q"]}, services=["A_1"]),
        line(6, slots={}, services=["B_1"]),
        line(8, slots={}, services=[]),
    ) == [
        {"set": {"A_1.x": "1", "B_1.y": "2"}},
        None,
        {"set": {"A_1.z": ["p", "q"]}},
        {"delete": ["A_1.x"]},
        {"delete": ["B_1.y"]},
        None,
    ]


def test_multiwoz_sets_and_deletes() -> None:
    assert slots(
        line(0, tenant="multiwoz21", slots={"a.x": "1", "a.y": "2"}),
        line(2, tenant="multiwoz21", slots={"a.x": "3"}),
        line(4, tenant="multiwoz21", slots=None),
        line(6, tenant="multiwoz21", slots={}),
    ) == [
        {"set": {"a.x": "1", "a.y": "2"}},
        {"set": {"a.x": "3"}, "delete": ["a.y"]},
        None,
        {"delete": ["a.x"]},
    ]


def test_crosswoz_compares_each_writer_with_itself() -> None:
    assert slots(
        line(0, tenant="crosswoz", slots={"a.x": "1"}),
        line(1, "assistant", tenant="crosswoz", slots={"a.x": "2", "a.r": ["n"]}),
        line(2, tenant="crosswoz", slots={"a.x": "1", "a.y": "3"}),
        line(3, "assistant", tenant="crosswoz", slots={"a.x": "2", "a.y": "3"}),
    ) == [
        {"set": {"a.x": "1"}},
        {"set": {"a.x": "2", "a.r": ["n"]}},
        {"set": {"a.y": "3"}},
        {"set": {"a.y": "3"}, "delete": ["a.r"]},
    ]


def test_other_corpora_only_set() -> None:
    assert slots(
        line(0, tenant="kdconv", slots={"a.x": "1", "a.y": "2"}),
        line(1, "assistant", tenant="kdconv", slots={"a.x": "1"}),
        line(2, tenant="kdconv", slots={"a.y": "2", "a.z": "3"}),
        line(4, tenant="kdconv", slots={"a.x": "1"}),
    ) == [
        {"set": {"a.x": "1", "a.y": "2"}},
        {"set": {"a.x": "1"}},
        {"set": {"a.z": "3"}},
        {"set": {"a.x": "1"}},
    ]


def test_sessions_and_tenants_are_compared_apart_though_lines_interleave() -> None:
    assert slots(
        line(0, slots={"A_1.x": "1"}, services=["A_1"]),
        line(0, session="other", slots={"A_1.x": "1"}, services=["A_1"]),
        line(2, slots={"A_1.x": "2"}, services=["A_1"]),
        line(2, session="other", slots={"A_1.x": "1"}, services=["A_1"]),
    ) == [
        {"set": {"A_1.x": "1"}},
        {"set": {"A_1.x": "1"}},
        {"set": {"A_1.x": "2"}},
        None,
    ]


def test_lines_sent_again_give_the_same_bytes() -> None:
    first = line(0, slots={"A_1.x": "1"}, services=["A_1"])
    second = line(2, slots={"A_1.x": "2", "A_1.y": "3"}, services=["A_1"])
    once = list(read([first, second], "corpus"))

    assert list(read([first, first, second, second, first, second], "corpus")) == [
        once[0],
        once[0],
        once[1],
        once[1],
        once[0],
        once[1],
    ]


def test_a_null_value_is_absent() -> None:
    assert slots(
        line(0, slots={"A_1.x": "1"}, services=["A_1"]),
        line(2, slots={"A_1.x": None, "A_1.y": None}, services=["A_1"]),
    ) == [{"set": {"A_1.x": "1"}}, {"delete": ["A_1.x"]}]


def test_values_and_text_are_exact() -> None:
    text = 'e\u0301 \u00e9 👨‍👩‍👧 "“{\uff1a}”" \\\\\\ \u0000 \u2028'
    raw = (
        line(0, text=text, slots={}, services=[])
        .decode()
        .replace('"slots": {}', '"slots": {"A_1.n": 18446744073709551617}')
    )

    (found,) = read([raw.encode()], "corpus")

    assert isinstance(found, bytes)
    assert json.loads(found)["content"] == text
    assert b'"A_1.n":18446744073709551617' in found


def test_unknown_keys_go_into_metadata_and_cannot_act() -> None:
    (turn,) = turns(line(0, services=["A"], op="erase", stamp={"dot": ["log", 1]}))

    assert turn["metadata"] == {
        "services": ["A"],
        "op": "erase",
        "stamp": {"dot": ["log", 1]},
    }
    assert "op" not in turn
    assert "stamp" not in turn


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (b'{"tenant":"t","session":"s","role":"user","text":"x"}', "turn"),
        (line(text=None), "text"),
        (line(turn=True), "turn"),
        (line(slots=[]), "slots"),
        (line(services="A"), "services"),
        (line(ts_ms="now"), "ts_ms"),
        (line(tenant=5, more=1), "tenant"),
        (line()[:-1] + b',"text":"again"}', "text"),
        (line(slots={"a": 1})[:-2] + b',"a":2}}', "slots.a"),
        (line()[:-1] + b',"intent":"\\ud83d"}', "intent"),
    ],
)
def test_a_bad_line_is_refused_by_field(bad: bytes, field: str) -> None:
    refusal, turn = read([bad, line(1)], "corpus")

    assert isinstance(refusal, Refusal)
    assert (refusal.line, refusal.field, refusal.raw) == (1, field, bad)
    assert isinstance(turn, bytes)
