"""A replay folds to the digests that the live store has, whatever way it goes."""

import json
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.kept import digests
from support.strategies import GRAPH, Drawn, worlds
from turnstate.replay import engine
from turnstate.replay.engine import fold_file, fold_recording, states_of
from turnstate.replay.readers import read_file
from turnstate.replay.recording import (
    RecordedErasure,
    RecordedOperation,
    write_recording,
)
from turnstate.replay.recording_json import write_json_lines
from turnstate.replay.recording_lines import replay_items
from turnstate.replay.samples import sample_paths
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.schemas.errors import CorruptDataError
from turnstate.schemas.ids import SessionName
from turnstate.streams.embedded.exchange import export_items
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

NAME = SessionName("t", "s")


def shown(folded: engine.FoldedRecording) -> dict[tuple[str, str], str]:
    return {
        tuple(SessionName.from_key(key)): session.digest.hex()  # type: ignore[misc]
        for key, session in folded.sessions.items()
    }


def published(folder: Path, lines: list[bytes]) -> EmbeddedStore:
    store = EmbeddedStore(Settings(data=folder))
    for at in range(0, len(lines), 50):
        store.publish(lines[at : at + 50])
    return store


def recorded(store: EmbeddedStore) -> bytes:
    file = BytesIO()
    write_recording(file, export_items(store))
    return file.getvalue()


def line(turn: int | None, text: str = "hi", **more: Any) -> bytes:
    fields: dict[str, Any] = {"tenant": "t", "session": "s", "role": "user"}
    fields |= {} if turn is None else {"turn_id": f"t{turn}"}
    return json.dumps(fields | {"content": text} | more).encode()


LOG = [
    line(1, slots={"set": {"a": 1}}),
    line(2, slots={"set": {"a": 2}}, action="nonsense"),
    line(2, slots={"set": {"a": 2}}, action="nonsense"),  # a duplicate
    line(2, "in conflict"),
    line(None, "without id", usage={"tokens": 3}),
    line(4, parent="late"),
    line(5, if_version=99),
    line(None, op="rollback", to={"log": 2}, content=None),
    line(6),
    line(None, op="fork", branch="b", to={"log": 3}, content=None),
    line(7, branch="b", tags={"add": ["x"]}),
    line("late"),  # type: ignore[arg-type]
    line(8, op="edit", target="t1"),
    line(None, op="redact", target="t6", content=None),
    line(9, parent="t2"),
    line(None, op="end", to="next", content=None),
    b"no turn at all",
]
ERASED = [
    *LOG,
    line(None, op="erase", content=None),
    line(1, "another life"),
    line(2, parent=None),
]


@pytest.mark.parametrize("log", [LOG, ERASED], ids=["life", "erased"])
def test_unstamped_turns_fold_to_what_the_live_log_folds_to(
    tmp_path: Path, log: list[bytes]
) -> None:
    with published(tmp_path, log) as store:
        live = digests(store)
        recording = recorded(store)
    lines = BytesIO(b"\n".join(log))

    folded = fold_recording(replay_items(lines), default_graph(), "log")

    assert shown(folded) == live
    assert folded.refused >= 3
    again = fold_recording(replay_items(BytesIO(recording)), default_graph(), "log")
    assert shown(again) == live


def test_other_log_names_stamp_otherwise(tmp_path: Path) -> None:
    with published(tmp_path, LOG) as store:
        live = digests(store)

    folded = fold_recording(replay_items(BytesIO(b"\n".join(LOG))), GRAPH, "other")

    assert shown(folded) != live


@given(drawn=worlds(steps_max=25), seed=st.integers(0, 1 << 30))
@settings(max_examples=40)
def test_stamped_operations_fold_to_the_definition_in_any_order(
    drawn: Drawn, seed: int
) -> None:
    ops = list(drawn.ops)
    wanted = DialogueState.empty(GRAPH).apply(ops).digest() if ops else None
    Random(seed).shuffle(ops)
    items = [RecordedOperation.of(NAME, op) for op in ops + ops[:3]]

    for shuffle in (None, seed):
        folded = fold_recording(items, GRAPH, "log", shuffle=shuffle)
        found = folded.sessions.get(NAME.key())
        assert (found and found.digest) == wanted
        assert folded.operations == len(ops)


def test_an_erased_life_is_left_out_wherever_its_turns_lie(tmp_path: Path) -> None:
    with published(tmp_path, ERASED) as store:
        live = digests(store)
        items = list(export_items(store))
    assert RecordedErasure(NAME, 1) in items
    with published(tmp_path / "before", LOG) as store:
        old = list(export_items(store))

    for mixed in ([*old, *items], [*items, *old]):
        assert shown(fold_recording(mixed, GRAPH, "log")) == live
    gone = [*items, RecordedErasure(NAME, 2)]
    assert fold_recording(gone, GRAPH, "log").sessions == {}


def test_any_number_of_processes_gives_the_same_digests(tmp_path: Path) -> None:
    lines = [
        item
        for path in sample_paths()[:3]
        for item in read_file(path, "corpus")
        if isinstance(item, bytes)
    ]
    with published(tmp_path / "data", lines) as store:
        live = digests(store)
        (tmp_path / "all.tsrec").write_bytes(recorded(store))
        with (tmp_path / "all.jsonl").open("wb") as file:
            write_json_lines(file, export_items(store))
    (tmp_path / "turns.jsonl").write_bytes(b"\n".join([*lines, b"oh"]))

    for name, counts in (("all.tsrec", (2, 4)), ("turns.jsonl", (3,))):
        alone = fold_file(tmp_path / name, GRAPH, "log", processes=1)
        assert shown(alone) == live
        assert alone.refused == (name == "turns.jsonl")
        for count in counts:
            assert alone == fold_file(tmp_path / name, GRAPH, "log", processes=count)
    stamped = tmp_path / "all.jsonl"
    assert shown(fold_file(stamped, GRAPH, "log", shuffle=7)) == live


def test_a_reused_dot_is_refused_and_counted() -> None:
    with_id = line(1)
    store_lines = fold_recording(
        replay_items(BytesIO(with_id + b"\n" + line(2))), GRAPH, "log"
    )
    assert store_lines.operations == 2
    states = states_of(
        replay_items(BytesIO(with_id + b"\n" + line(2))), {NAME}, GRAPH, "log"
    )
    first, second = states[NAME].ops.values()
    other = states_of(replay_items(BytesIO(line(3))), {NAME}, GRAPH, "log")
    (reused,) = other[NAME].ops.values()
    assert reused.dot == first.dot

    items = [RecordedOperation.of(NAME, op) for op in (first, second, reused, first)]
    folded = fold_recording(items, GRAPH, "log")

    assert (folded.operations, folded.refused) == (2, 1)


def test_a_record_that_is_none_is_named_with_its_session() -> None:
    items = [RecordedOperation(NAME, 1, b"oh")]

    with pytest.raises(CorruptDataError, match="session 's'"):
        fold_recording(items, GRAPH, "log")
