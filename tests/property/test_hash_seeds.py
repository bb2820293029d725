"""Digests depend on what was said alone: no hash seed, no order, no route matters."""

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path

import pytest

from support.dialogues import endless_turns
from support.kept import digests
from support.offline import Offline
from support.strategies import GRAPH, seeded_world
from turnstate.agents.session.recorded import recorded_bytes
from turnstate.schemas.admission import Verdict
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.schemas.draft import turn_from_op
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import Op
from turnstate.schemas.wire.json import draft_from_json, turn_to_json
from turnstate.storage.session_reader import operations
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

TESTS = Path(__file__).parents[1]

PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from itertools import islice
from support.dialogues import endless_turns
from support.kept import digests
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings
with EmbeddedStore(Settings(data=Path(sys.argv[2]), fsync="never")) as store:
    turns = endless_turns(8)
    while part := list(islice(turns, 500)):
        store.publish(part)
        if len(digests(store)) > 150:
            break
    for name, digest in digests(store).items():
        print(*name, digest)
"""


def test_samples_have_the_same_digests_under_two_hash_seeds(tmp_path: Path) -> None:
    told = [
        subprocess.run(
            [
                *(sys.executable, "-P", "-c", PROGRAM),
                *(str(TESTS), str(tmp_path / seed)),
            ],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert len(told[0].splitlines()) > 150


Written = dict[SessionName, list[Op]]


def written_apart() -> tuple[Written, Written]:
    """Let two replicas write the same dialogues, neither hearing of the other."""
    lines = list(islice(endless_turns(4, open_sessions=8), 240))
    sides: tuple[Written, Written] = ({}, {})
    for replica, written in zip(("east", "west"), sides, strict=True):
        client = Offline(replica)
        for at, line in enumerate(lines):
            # Each hears of two in three; what both hear of is one turn.
            if at % 3 == ("east", "west").index(replica):
                continue
            draft = draft_from_json(line)
            op = client.write(
                draft.key,
                draft.body,
                client.heads(draft.key, "main"),
                turn_id=draft.turn_id,
            )
            written.setdefault(draft.name, []).append(op)
    return sides


def test_replicas_that_wrote_apart_merge_in_either_order() -> None:
    east, west = written_apart()
    assert east.keys() & west.keys()
    for name in east.keys() | west.keys():
        one = DialogueState.empty(GRAPH).apply(east.get(name, []))
        other = DialogueState.empty(GRAPH).apply(west.get(name, []))
        merged = one.merge(other)
        assert merged.digest() == other.merge(one).digest()
        assert one.apply(other.diff(one.head.clock)).digest() == merged.digest()
        assert merged.folded() == other.merge(one).folded()


def records(written: Written) -> list[bytes]:
    return [
        turn_to_json(turn_from_op(name, op))
        for name, ops in written.items()
        for op in ops
    ]


def exported(store: EmbeddedStore) -> list[bytes]:
    """Return every operation of a store as a recording would hold it."""
    return [
        recorded_bytes(SessionName.from_key(key), op.record)
        for key, stored in store.stored_heads()
        for _, op in operations(store.warm, key, stored)
    ]


def received(store: EmbeddedStore, recorded: Sequence[bytes]) -> None:
    """Take in what another store has, in small groups."""
    for begin in range(0, len(recorded), 50):
        part = recorded[begin : begin + 50]
        for answer in store.engine.submit(part, trusted=True).result():
            assert answer.verdict in {Verdict.ACCEPTED, Verdict.DUPLICATE}


def test_two_stores_that_exchange_their_operations_agree(tmp_path: Path) -> None:
    """Stamped turns in one, plain ones in the other too; each hears the rest."""
    east, west = written_apart()
    plain = list(islice(endless_turns(6, open_sessions=4), 60))
    with (
        EmbeddedStore(Settings(data=tmp_path / "a", log_name="a")) as first,
        EmbeddedStore(Settings(data=tmp_path / "b", log_name="b")) as second,
    ):
        first.publish([*records(east), *plain[:40]])
        second.publish(plain[20:])
        upkeep.seal(second)
        second.publish(records(west))
        assert digests(first) != digests(second)
        from_first, from_second = exported(first), exported(second)
        received(first, from_second[::-1])
        received(second, from_first)
        assert digests(first) == digests(second)
        merged = {
            name: DialogueState.empty(GRAPH).apply(
                op
                for key, stored in first.stored_heads()
                if SessionName.from_key(key) == name
                for _, op in operations(first.warm, key, stored)
            )
            for name in map(SessionName._make, digests(first))
        }
        told = {tuple(name): state.digest().hex() for name, state in merged.items()}
        assert told == digests(first)
        for store in (first, second):
            assert upkeep.verify(store)["bad"] == []


@pytest.mark.parametrize("seed", range(5))
def test_any_world_exchanged_between_two_stores_agrees(
    tmp_path: Path, seed: int
) -> None:
    """Forks, edits, odd clocks and all: replicas of drawn worlds, a store each."""
    name = SessionName("t", "world")
    drawn = seeded_world(seed)
    sides = [drawn.replicas[0], drawn.replicas[1], drawn.replicas[2]]
    everything = {op.dot: op for op in chain.from_iterable(sides)}
    with (
        EmbeddedStore(Settings(data=tmp_path / "a", log_name="a")) as first,
        EmbeddedStore(Settings(data=tmp_path / "b", log_name="b")) as second,
    ):
        for store, ops in ((first, sides[0]), (second, [*sides[1], *sides[2]])):
            received(store, [recorded_bytes(name, op.record) for op in ops])
        received(first, exported(second))
        received(second, exported(first))
        wanted = DialogueState.empty(GRAPH).apply(everything.values())
        for store in (first, second):
            assert digests(store)[name] == wanted.digest().hex()
