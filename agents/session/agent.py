"""The session agent: fold batches of a log, commit them, then tell who waits."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from turnstate.agents.dead_letters import DeadLetter, dead_letter
from turnstate.agents.ports import Batches, Clock, Colder, Record, Store
from turnstate.agents.session.change import change_of
from turnstate.agents.session.facts import lookups_of, parked_references, provided
from turnstate.agents.session.plain import plain_outcome
from turnstate.agents.session.recorded import FIRST_BYTE, arrival_of_recorded
from turnstate.agents.session.step import (
    NO_FACTS,
    Answer,
    Arrival,
    Facts,
    Need,
    Outcome,
    session_step,
)
from turnstate.agents.session.tails import Tails
from turnstate.schemas.admission import Verdict
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.dialogue.turn_index import IdEntry
from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.schemas.ids import turn_id_hash
from turnstate.schemas.operation import Op
from turnstate.schemas.wire.turn_bytes import draft_from_bytes
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.session_image import SessionImage
from turnstate.storage.stored_head import (
    NO_SESSION,
    StoredHead,
    decode_entry,
    decode_stored_head,
)
from turnstate.storage.tier import SessionChange

LIVE_SESSIONS_MAX = 256
"""Above so many sessions in one group the log is being caught up with: frames
are then written without a dictionary, which saves 6 µs each; sealing makes
them small all the same (docs/bench.md)."""


class Folded(NamedTuple):
    """What a batch leads to; nothing of it is durable yet.

    Attributes:
        changes: One for each session that changed.
        answers: One for each record, in order.
        dead: A letter for each refused record.
        ops: The operations of each change, for subscribers.
    """

    changes: list[SessionChange]
    answers: list[Answer]
    dead: list[DeadLetter]
    ops: list[list[Op]]


class SessionAgent:
    """Fold the turns of each session one at a time, in log order.

    Holds no state of its own but the tails that frames are written against:
    heads come from the hot tier, else the store; what is decided goes back to
    whoever commits it. An agent whose batch was not committed is thrown away.

    Args:
        store: Where heads, index and frames are read.
        hot: The tier above it.
        graph: The dialogue graph.
        log_name: The name under which this log stamps.
        clock: For arrival times, which stand beside the state.
        dictionaries: Whether frames may be written against the records before
            them; without, each can be read by itself (what leaves a store).
        check: Says whether a decoded record belongs where it lies: is given it
            and its session key, raises what is wrong.
        colder: Where cold sessions are; those that change come back with their
            change. Without, there are none.
        stamps_as: The name under which it stamps, where a restore changed it;
            `log_name` stays the one that the turn index leaves out.
    """

    def __init__(
        self,
        *,
        store: Store,
        hot: MemoryTier,
        graph: DialogueGraph,
        log_name: str,
        clock: Clock,
        dictionaries: bool = True,
        check: Callable[[Record, bytes], None] | None = None,
        colder: Colder | None = None,
        stamps_as: str | None = None,
    ) -> None:
        self.store = store
        self.hot = hot
        self.graph = graph
        self.log_name = log_name
        self.stamps_as = stamps_as or log_name
        self.clock = clock
        self.tails = Tails()
        self._live_sessions_max = LIVE_SESSIONS_MAX if dictionaries else 0
        self._check = check
        self._colder = colder

    def fold(self, records: Sequence[Record]) -> Folded:
        """Decide about a batch. Never raises for bad input."""
        now_ms = self.clock.now_ms()
        answers: list[Answer | None] = [None] * len(records)
        by_session: dict[bytes, tuple[list[int], list[Arrival]]] = {}
        for index, record in enumerate(records):
            try:
                arrival = _decoded(record)
                if self._check is not None:
                    self._check(record, arrival.draft.key)
            except TurnstateError as error:
                answers[index] = Answer(Verdict.REFUSED, 0, None, error)
                continue
            key = arrival.draft.key
            mine = by_session.get(key)
            if mine is None:
                by_session[key] = ([index], [arrival])
            else:
                mine[0].append(index)
                mine[1].append(arrival)
        woken, away = self._woken(list(by_session))
        for key, reason in away.items():
            refusal = cannot_be_woken(reason)
            for index in by_session.pop(key)[0]:
                answers[index] = Answer(Verdict.REFUSED, 0, None, refusal)
        keys = list(by_session)
        heads = self._heads(keys, woken)
        grouped = [mine[1] for mine in by_session.values()]
        ids = self._ids(keys, heads, grouped, woken)
        changes: list[SessionChange] = []
        ops: list[list[Op]] = []
        live = len(keys) <= self._live_sessions_max
        for at, (key, (indexes, arrivals)) in enumerate(by_session.items()):
            outcome = self._step(key, heads[at], arrivals, ids.get(key))
            for index, answer in zip(indexes, outcome.answers, strict=True):
                answers[index] = answer
            against = self.tails.dictionary(key) if live else b""
            change = change_of(key, heads[at], outcome, arrivals, now_ms, against)
            if change is not None:
                if not live or change.erased:
                    self.tails.forget(key)
                if live and outcome.ops:
                    self.tails.extend(
                        key,
                        [op.record for op in outcome.ops],
                        is_first=bool(change.erased) or not heads[at].frame_turns,
                    )
                if key in woken:
                    change = change._replace(woken=woken[key])
                changes.append(change)
                ops.append(outcome.ops)
        told = [answer for answer in answers if answer is not None]
        assert len(told) == len(records), "every record has its answer"
        return Folded(changes, told, _letters(records, told, now_ms), ops)

    def committed(self, folded: Folded) -> None:
        """Show a committed batch to readers."""
        self.hot.commit(folded.changes)

    def _woken(
        self, keys: Sequence[bytes]
    ) -> tuple[Mapping[bytes, SessionImage], Mapping[bytes, TurnstateError]]:
        """Fetch the sessions that are cold; they cannot be folded without."""
        if self._colder is None:
            return {}, {}
        missing = [key for key in keys if self.hot.peek(key) is None]
        return self._colder.images(missing) if missing else ({}, {})

    def _heads(
        self, keys: Sequence[bytes], woken: Mapping[bytes, SessionImage]
    ) -> list[StoredHead]:
        found = self.hot.heads(keys)
        for at, key in enumerate(keys):
            if key in woken:
                found[at] = decode_stored_head(woken[key].row)
        missing = [key for key, head in zip(keys, found, strict=True) if head is None]
        read = dict(zip(missing, self.store.heads(missing), strict=True))
        return [
            head or read.get(key) or NO_SESSION
            for key, head in zip(keys, found, strict=True)
        ]

    def _ids(
        self,
        keys: Sequence[bytes],
        heads: Sequence[StoredHead],
        grouped: Sequence[Sequence[Arrival]],
        woken: Mapping[bytes, SessionImage],
    ) -> Mapping[bytes, dict[str, IdEntry]]:
        """Look up, once for the batch, every turn id that it names."""
        wanted: list[tuple[bytes, int, str]] = []
        for key, stored, arrivals in zip(keys, heads, grouped, strict=True):
            if stored.head.version:
                incarnation = stored.head.incarnation
                wanted += ((key, incarnation, name) for name in lookups_of(arrivals))
                if stored.head.parked:
                    wanted += (
                        (key, incarnation, name)
                        for name in parked_references(stored.head)
                    )
        found: dict[bytes, dict[str, IdEntry]] = {}
        for (key, _, name), entry in zip(wanted, self.store.ids(wanted), strict=True):
            if entry is not None:
                found.setdefault(key, {})[name] = entry
        for key, image in woken.items():
            rows = dict(image.entries)
            for name in {name for of, _, name in wanted if of == key}:
                row = rows.get(b"i" + turn_id_hash(name))
                if row is not None:
                    entry = decode_entry(row, self.log_name)
                    found.setdefault(key, {})[name] = entry
        return found

    def _step(
        self,
        key: bytes,
        stored: StoredHead,
        arrivals: Sequence[Arrival],
        ids: Mapping[str, IdEntry] | None,
    ) -> Outcome:
        usual = plain_outcome(
            stored.head, stored.position, arrivals, ids, self.graph, self.stamps_as
        )
        if usual is not None:
            return usual
        facts = Facts(ids=ids) if ids else NO_FACTS
        while True:
            outcome = session_step(
                stored.head,
                stored.position,
                arrivals,
                facts,
                self.graph,
                self.stamps_as,
            )
            if not isinstance(outcome, Need):
                return outcome
            facts = provided(self.store, key, stored, facts, outcome, self.graph)


def _decoded(record: Record) -> Arrival:
    """Return what a record says.

    Raises:
        TurnstateError: it is no turn; the field is named.
    """
    if record.refusal is not None:
        raise record.refusal
    if record.trusted and record.raw[:1] == FIRST_BYTE:
        return arrival_of_recorded(record.raw, record.position)
    draft = draft_from_bytes(record.raw, record.content_type)
    return Arrival(draft, record.position)


def _letters(
    records: Sequence[Record], answers: Sequence[Answer], now_ms: int
) -> list[DeadLetter]:
    """Return a letter for each refused record, but for those to be sent again."""
    return [
        dead_letter(
            answer.error,
            record.raw,
            record.position,
            now_ms,
            attempt=record.attempt,
            trusted=record.trusted,
        )
        for record, answer in zip(records, answers, strict=True)
        if answer.error is not None and not isinstance(answer.error, UnavailableError)
    ]


def cannot_be_woken(error: TurnstateError) -> UnavailableError:
    """Return what turns are told whose cold session cannot be had."""
    if isinstance(error, UnavailableError):
        return error
    return UnavailableError(
        f"the session is cold and cannot be read: {error}",
        hint="turnstate verify names what is damaged; then send the turn again",
        code="cold_damaged",
    )


async def run(
    agent: SessionAgent,
    batches: Batches,
    commit: Callable[[Sequence[Record], Folded], Awaitable[None]],
) -> None:
    """Fold batch after batch until the source ends; acknowledge last.

    `commit` makes a batch durable, shows it and answers. A failure there ends
    the run: what was not acknowledged is folded again after a restart.
    """
    async for records in batches:
        await commit(records, agent.fold(records))
