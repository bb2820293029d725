"""Every version of a long session reads as the definition folds that prefix."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from support.dialogues import sample_sessions
from support.soak import SoakSeeds
from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.fold_set import fold_set
from turnstate.schemas.dialogue.folded import Folded
from turnstate.schemas.dialogue.head import Head, digest
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import Op
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import turn_to_json
from turnstate.storage.session_reader import fold_at, operations
from turnstate.storage.stored_head import StoredHead
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

TURNS: Final = 2_000
NAME: Final = SessionName("t", "long")
GRAPH: Final = default_graph()

OPERATIONS: Final[dict[int, tuple[dict[str, Any], ...]]] = {
    300: ({"op": "edit", "target": "12", "content": "another text"},),
    500: ({"op": "fork", "branch": "b", "target": "400"},),
    900: ({"op": "rollback", "to": {"log": 700}},),
    1300: ({"parent": "1200", "content": "once more"},),
    1500: (
        {"op": "redact", "target": "1490"},
        {"parent": "to come", "content": "parked"},
    ),
    1520: ({"turn_id": "to come", "content": "it has come"},),
    1700: (
        {"op": "fork", "branch": "c", "to": {"log": 1600}},
        {"op": "rollback", "to": {"log": 1650}, "branch": "c"},
    ),
    1900: ({"op": "end", "branch": "b", "to": "elsewhere"},),
}
"""After so many turns: a fork, a rollback, a regeneration, edits, and others."""

SEALS: Final = (333, 700, 1301, 1502, 1950)
BATCHES: Final = (1, 7, 3, 40, 12)
EACH: Final = 50


class Long(NamedTuple):
    """A session, where it is stored, and the versions that are of interest."""

    store: EmbeddedStore
    stored: StoredHead
    ops: list[Op]
    events: list[int]


def texts() -> Iterator[dict[str, Any]]:
    """Yield what real people said, again and again."""
    for turns in cycle(sample_sessions()[name] for name in sorted(sample_sessions())):
        yield from turns


def spoken() -> Iterator[tuple[int, bytes]]:
    """Yield (number of the turn, record); an operation has its turn's number."""
    said = texts()
    for number in range(TURNS):
        fields = {
            name: value
            for name, value in next(said).items()
            if name in {"role", "content", "slots", "tool_calls", "tool_call_id"}
        }
        # One of 40 on the other branch, once there is one.
        branch = "b" if number > 500 and number % 40 == 0 else None
        named = {"tenant": NAME.tenant, "session": NAME.session, "branch": branch}
        yield number, msgspec.json.encode({**fields, **named, "turn_id": str(number)})
        for more in OPERATIONS.get(number, ()):
            kind = "system" if "op" in more else "assistant"
            given: dict[str, Any] = {"role": kind, **more}
            yield number, turn_to_json(Turn(*NAME, **given))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Long]:
    data: Path = tmp_path_factory.mktemp("long")
    sizes = cycle(BATCHES)
    events: list[int] = []
    with EmbeddedStore(Settings(data=data, fsync="never")) as store:
        batch: list[bytes] = []
        version = before = 0
        for number, raw in spoken():
            batch.append(raw)
            version += 1
            if b'"op"' in raw or b"parent" in raw or b"to come" in raw:
                events.append(version)
            sealing = number in SEALS and number != before
            before = number
            if len(batch) >= next(sizes) or sealing:
                for answer in store.publish(batch):
                    assert answer.error is None, answer
                batch = []
            if sealing:
                seal = store.engine.call(lambda: store.engine.seal([NAME.key()]))
                assert seal.result() == 1
                events.append(version)
        store.publish(batch)
        stored = store.engine.head(NAME.key())
        assert stored is not None
        ops = [op for _, op in operations(store.warm, NAME.key(), stored)]
        assert len(ops) == version
        assert 0 < stored.sealed_version < version
        yield Long(store, stored, ops, events)


def read(long: Long, version: int) -> Head:
    """Return the head at a version as any reader gets it."""
    return fold_at(long.store.warm, NAME.key(), long.stored, version, GRAPH).head()


@cache
def slot_values(value: bytes) -> Any:
    return msgspec.json.decode(value)


def as_shown(long: Long, version: int, branch: str) -> dict[str, Any]:
    """Return of a state document what the definition says, too."""
    document = long.store.state(*NAME, version=version, branch=branch)
    shown: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return shown


def check_by_definition(long: Long, version: int) -> None:
    """Compare a version with the definition: the state folded, and as shown."""
    prefix = long.ops[:version]
    wanted = fold_set(prefix, GRAPH)
    head = read(long, version)
    assert head.version == wanted["version"]
    assert head.clock.sorted_spans() == wanted["clock"]
    assert head.total == wanted["sum"]
    assert head.turn_count == wanted["turn_count"]
    assert [Op.decode(record).dot for _, record in head.parked] == wanted["parked"]
    for branch, shown in wanted["branches"].items():
        found = head.branches.get(branch)
        assert list(found.heads if found else ()) == shown["heads"]
        document = as_shown(long, version, branch)
        assert document["version"] == version
        assert document["phase"] == shown["phase"]
        assert document["tags"] == shown["tags"]
        assert {
            name: [slot["value"], *slot["siblings"]]
            for name, slot in document["slots"].items()
        } == {
            name: [slot_values(entry[3]) for entry in entries]
            for name, entries in shown["slots"].items()
        }
        check_turns(long, version, branch, wanted)


def check_turns(long: Long, version: int, branch: str, wanted: Folded) -> None:
    """Compare the listing, edited and redacted texts included."""
    by_dot = {op.dot: op for op in long.ops}
    listed = long.store.turns(*NAME, version=version, branch=branch, limit=5_000)
    turns = msgspec.json.decode(msgspec.json.encode(listed))["turns"]
    dots: Sequence[Dot] = wanted["branches"][branch]["turns"]
    assert len(turns) == len(dots)
    for turn, dot in zip(turns, dots, strict=True):
        op = by_dot[dot]
        assert turn["turn_id"] == op.address()
        if dot in wanted["redacted"]:
            assert turn["redacted"]
            assert turn["content"] is None
        else:
            text = wanted["texts"].get(dot, op.body.content)
            assert turn["content"] == text


def test_every_version_has_the_digest_of_its_prefix(long: Long) -> None:
    """All of them, by the incremental fold, which other laws compare."""
    state = DialogueState.empty(GRAPH)
    step = 5
    for version, op in enumerate(long.ops, start=1):
        state = state.apply([op])
        near = any(abs(version - event) <= step for event in long.events)
        if version % step == 0 or near:
            assert digest(read(long, version)) == state.digest(), version
    assert digest(long.stored.head) == state.digest()


def test_versions_near_operations_are_what_the_definition_says(long: Long) -> None:
    events = {event + by for event in long.events for by in (-1, 0)}
    chosen = events | set(range(0, len(long.ops), 10 * EACH))
    for version in sorted(chosen):
        if 0 < version <= len(long.ops):
            check_by_definition(long, version)


def test_version_0_is_empty_and_above_the_top_is_none(long: Long) -> None:
    assert digest(read(long, 0)) == DialogueState.empty(GRAPH).digest()


@pytest.mark.soak
def test_every_version_is_what_the_definition_says(
    long: Long, soak_seeds: SoakSeeds
) -> None:
    """All of them; while there is time, one of fifty at a time."""
    for seed in soak_seeds.take(EACH):
        for version in range(1 + (seed - 1) % EACH, len(long.ops) + 1, EACH):
            check_by_definition(long, version)
