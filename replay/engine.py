"""Fold a recording again, without a store: every session's state and digest."""

import gc
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple
from zlib import crc32

from turnstate.agents.session.plain import plain_head
from turnstate.agents.session.step import Arrival, Facts, Need, Outcome, session_step
from turnstate.replay.readers import Format, Refusal
from turnstate.replay.recording import RecordedErasure, RecordedOperation
from turnstate.replay.recording_lines import ReplayItem, replay_items
from turnstate.schemas.admission import Verdict
from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.dialogue.head import EMPTY_HEAD, Head, digest
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.schemas.dialogue.turn_index import IdEntry, RefoldNeeded
from turnstate.schemas.draft import Draft
from turnstate.schemas.errors import CorruptDataError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import Op
from turnstate.schemas.position import Position

PROCESSES_MAX: Final = 4
"""Each process reads the whole file: beyond four that costs more than it brings."""

SMALL_FILE_BYTES: Final = 24 << 20
"""A smaller file is folded before other processes have started."""

_REPLAYED: Final = b"replay"
"""The log identity of unstamped turns; every recording is a log of its own."""


class FoldedSession(NamedTuple):
    """What a session folded to.

    Attributes:
        digest: The 32 bytes that name its state.
        incarnation: The life that it is in.
        operations: How many are in its state.
    """

    digest: bytes
    incarnation: int
    operations: int


class FoldedRecording(NamedTuple):
    """What a recording folded to.

    Attributes:
        sessions: Session key → what it folded to; erased ones are left out.
        operations: Operations folded; of erased lives, copies and refusals none.
        refused: Lines and operations that were refused.
    """

    sessions: dict[bytes, FoldedSession]
    operations: int
    refused: int


class _Gathered:
    """One session's part of a recording, in its order."""

    __slots__ = ("ended", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes | Draft] = []
        self.ended: list[tuple[int, int]] = []  # place, incarnation


def fold_recording(
    items: Iterable[ReplayItem],
    graph: DialogueGraph,
    log_name: str,
    *,
    shuffle: int | None = None,
) -> FoldedRecording:
    """Fold items session by session, in memory.

    Operations gather by session first, so that each session is folded in one
    go: what is held is every record of the recording, about 100 bytes each
    beside its own, so 1 GB takes some 3 000 000 turns of real dialogues; and of
    one session at a time its states. `--processes` divides what each holds.

    Stamped operations fold to one state in any order. Unstamped ones are
    stamped in their order, under the log's name, by the step that live turns
    go through.

    Args:
        items: As `replay_items` reads them.
        graph: The dialogue graph.
        log_name: The name under which unstamped turns are stamped.
        shuffle: Fold each session's operations once more, in an order that
            this seed decides; what comes of that is what is returned.

    Raises:
        CorruptDataError: the recording is damaged.
    """
    gathered, refused = _gather(items)
    sessions: dict[bytes, FoldedSession] = {}
    operations = 0
    for key in list(gathered):
        head, ops, bad = _fold_session(key, gathered.pop(key), graph, log_name)
        refused += bad
        operations += len(ops)
        if shuffle is not None and ops:
            mixed = list(ops)
            random.Random(f"{shuffle}:{key.hex()}").shuffle(mixed)
            head = _fold_ops(mixed, head.incarnation, graph)[0]
        if ops:
            sessions[key] = FoldedSession(digest(head), head.incarnation, len(ops))
    return FoldedRecording(sessions, operations, refused)


def fold_file(
    source: str | Path | BinaryIO,
    graph: DialogueGraph,
    log_name: str,
    *,
    format_name: Format = "turns",
    shuffle: int | None = None,
    processes: int | None = None,
) -> FoldedRecording:
    """Fold a file, its sessions divided over processes; equal for any number.

    Args:
        source: A path; standard input (`-`) and open files fold in this process.
        graph: The dialogue graph.
        log_name: The name under which unstamped turns are stamped.
        format_name: What the lines are, where it is no binary recording.
        shuffle: As for `fold_recording`.
        processes: How many; None = one a core, at most four, and one for a
            small file.

    Raises:
        CorruptDataError: the recording is damaged.
        InvalidInputError: the file cannot be read at all.
    """
    path = Path(source) if isinstance(source, str | Path) and source != "-" else None
    if path is None or not path.is_file():
        count = 1
    elif processes is not None:
        count = processes
    else:
        small = path.stat().st_size < SMALL_FILE_BYTES
        count = 1 if small else min(os.cpu_count() or 1, PROCESSES_MAX)
    if path is None or count <= 1:
        items = replay_items(source, format_name)
        return fold_recording(items, graph, log_name, shuffle=shuffle)
    jobs = [
        _Job(path, graph, log_name, format_name, shuffle, share, count)
        for share in range(count)
    ]
    # A forked copy of a process with threads may hang: each starts anew.
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(_fold_share, jobs))
    sessions: dict[bytes, FoldedSession] = {}
    for result in results:
        sessions |= result.sessions
    return FoldedRecording(
        sessions,
        sum(result.operations for result in results),
        sum(result.refused for result in results),
    )


class _Job(NamedTuple):
    path: Path
    graph: DialogueGraph
    log_name: str
    format_name: Format
    shuffle: int | None
    share: int
    shares: int


def _fold_share(job: _Job) -> FoldedRecording:
    """Fold the sessions that fall to one process, which then ends."""
    # Nothing here refers back to itself, so there is nothing to look for.
    gc.disable()

    def is_mine(key: bytes) -> bool:
        return crc32(key) % job.shares == job.share

    items = replay_items(job.path, job.format_name, is_mine, first=job.share == 0)
    return fold_recording(items, job.graph, job.log_name, shuffle=job.shuffle)


def states_of(
    items: Iterable[ReplayItem],
    names: set[SessionName],
    graph: DialogueGraph,
    log_name: str,
) -> dict[SessionName, DialogueState]:
    """Return the whole states of some sessions, to look for what differs."""
    wanted = (
        item for item in items if not isinstance(item, Refusal) and item.name in names
    )
    gathered, _ = _gather(wanted)
    states: dict[SessionName, DialogueState] = {}
    for key, session in gathered.items():
        head, ops, _ = _fold_session(key, session, graph, log_name)
        if ops:
            empty = DialogueState.empty(graph, head.incarnation)
            states[SessionName.from_key(key)] = empty.apply(ops)
    return states


def _gather(items: Iterable[ReplayItem]) -> tuple[dict[bytes, _Gathered], int]:
    gathered: dict[bytes, _Gathered] = {}
    refused = 0
    last: SessionName | None = None
    into = _Gathered()
    for item in items:
        if isinstance(item, Refusal):
            refused += 1
            continue
        name = item.name
        if name is not last:
            last = name
            key = name.key()
            found = gathered.get(key)
            if found is None:
                found = gathered[key] = _Gathered()
            into = found
        if isinstance(item, RecordedOperation):
            into.pieces.append(item.record)
        elif isinstance(item, RecordedErasure):
            into.ended.append((len(into.pieces), item.incarnation))
        else:
            into.pieces.append(item)
    return gathered, refused


def _fold_session(
    key: bytes, session: _Gathered, graph: DialogueGraph, log_name: str
) -> tuple[Head, Sequence[Op], int]:
    """Return a session's head, the operations in it, and how many were refused."""
    records = [piece for piece in session.pieces if isinstance(piece, bytes)]
    if len(records) == len(session.pieces):
        return _fold_records(key, records, session.ended, graph)
    return _Steps(key, graph, log_name).run(session)


def _fold_records(
    key: bytes,
    records: Sequence[bytes],
    ended: Sequence[tuple[int, int]],
    graph: DialogueGraph,
) -> tuple[Head, Sequence[Op], int]:
    """Fold stamped operations: those of the newest life, whatever the order."""
    try:
        ops = list(map(Op.decode, records))
    except (ValueError, TypeError, RecursionError) as error:
        name = SessionName.from_key(key)
        raise CorruptDataError(
            f"a record of session {name.session!r} is no operation: {error}"
        ) from error
    life = max((ended_life + 1 for _, ended_life in ended), default=1)
    newest = max((op.incarnation for op in ops), default=1)
    life = max(newest, life)
    if newest > 1 or ended:
        ops = [op for op in ops if op.incarnation == life]
    head, folded = _fold_ops(ops, life, graph)
    if len(folded) == len(ops):
        return head, folded, 0
    known = {op.dot: op.operation_hash for op in folded}
    reused = sum(known[op.dot] != op.operation_hash for op in ops)
    return head, folded, reused


def _fold_ops(
    ops: Sequence[Op], incarnation: int, graph: DialogueGraph
) -> tuple[Head, Sequence[Op]]:
    """Return the head that operations fold to, and those that were no copies."""
    head = plain_head(ops, graph)
    if head is not None and head.incarnation == incarnation:
        return head, ops
    start = EMPTY_HEAD if incarnation == 1 else Head(incarnation=incarnation)
    fold = Fold(start, graph, {}, {})
    add = fold.add
    try:
        folded = [op for op in ops if add(op)]
    except RefoldNeeded:
        # In the total order no id changes its owner.
        first: dict[Dot, Op] = {}
        for op in ops:
            first.setdefault(op.dot, op)
        folded = sorted(first.values(), key=lambda op: op.order)
        fold = Fold(start, graph, {}, {})
        for op in folded:
            fold.add(op)
    return fold.head(), folded


class _Steps:
    """Fold one session's turns in log order through the step of the live agent."""

    def __init__(self, key: bytes, graph: DialogueGraph, log_name: str) -> None:
        self.key = key
        self.graph = graph
        self.log_name = log_name
        self.head = EMPTY_HEAD
        self.position: Position | None = None
        self.ids: dict[str, IdEntry] = {}
        self.ops: list[Op] = []
        self.refused = 0

    def run(self, session: _Gathered) -> tuple[Head, Sequence[Op], int]:
        for arrivals in _parts(self._arrivals(session)):
            self._step(arrivals)
        return self.head, self.ops, self.refused

    def _arrivals(self, session: _Gathered) -> Iterator[Arrival]:
        from turnstate.agents.session.recorded import draft_of_op, erase_draft

        name = SessionName.from_key(self.key)
        ended = list(reversed(session.ended))
        offset = 0
        for place in range(len(session.pieces) + 1):
            while ended and ended[-1][0] == place:
                _, incarnation = ended.pop()
                draft = erase_draft(name, incarnation)
                yield Arrival(draft, Position(_REPLAYED, 0, offset), trusted=True)
                offset += 1
            if place == len(session.pieces):
                return
            piece = session.pieces[place]
            position = Position(_REPLAYED, 0, offset)
            offset += 1
            if isinstance(piece, bytes):
                op = Op.decode(piece)
                yield Arrival(draft_of_op(name, op), position, trusted=True, op=op)
            else:
                yield Arrival(piece, position, trusted=True)

    def _step(self, arrivals: Sequence[Arrival]) -> None:
        facts = Facts(ids=self.ids)
        outcome = self._decide(arrivals, facts)
        while isinstance(outcome, Need):
            facts = self._provided(facts, outcome)
            outcome = self._decide(arrivals, facts)
        if outcome.erased:
            self.ops, self.ids = [], {}
        self.head = outcome.head
        self.ops += outcome.ops
        self.ids |= outcome.ids_changed
        self.position = arrivals[-1].position
        self.refused += sum(
            answer.verdict is Verdict.REFUSED for answer in outcome.answers
        )

    def _decide(self, arrivals: Sequence[Arrival], facts: Facts) -> Outcome | Need:
        return session_step(
            self.head, self.position, arrivals, facts, self.graph, self.log_name
        )

    def _provided(self, facts: Facts, need: Need) -> Facts:
        if need.history:
            return facts._replace(history=list(enumerate(self.ops, 1)))
        state = DialogueState.empty(self.graph, self.head.incarnation).apply(self.ops)
        if need.state is not None:
            states = {**facts.states, need.state: state.states[need.state]}
            return facts._replace(states=states)
        if need.operation_hash is not None:
            dot = need.operation_hash
            hashes = {**facts.hashes, dot: state.ops[dot].operation_hash}
            return facts._replace(hashes=hashes)
        assert need.moment is not None
        heads = state.heads_at(need.moment.branch, dict(need.moment.clock))
        return facts._replace(heads_at={**facts.heads_at, need.moment: heads})


def _parts(arrivals: Iterable[Arrival]) -> Iterator[list[Arrival]]:
    """Divide arrivals before each that goes back to a moment of the past.

    What it goes back to is looked up among what was folded before it.
    """
    part: list[Arrival] = []
    for arrival in arrivals:
        if part and arrival.draft.body.op in ("rollback", "fork"):
            yield part
            part = []
        part.append(arrival)
    if part:
        yield part
