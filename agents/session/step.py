"""The pure step of the session agent: one session's arrivals in, decisions out."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import UNSET, Struct

from turnstate.agents.session.moments import Moment, heads_of
from turnstate.schemas.admission import (
    HashNeeded,
    Verdict,
    admit_stamped,
    admit_unstamped,
    expected_version,
    next_counter,
)
from turnstate.schemas.clocks import Dot, DotSet
from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.dialogue.head import Head, NodeState
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.dialogue.turn_index import IdEntry, RefoldNeeded, StateNeeded
from turnstate.schemas.draft import Draft, stamped_op
from turnstate.schemas.errors import InvalidInputError, TurnstateError
from turnstate.schemas.limits import COUNTER_MAX
from turnstate.schemas.operation import MAIN, Op, Reference, reference_of
from turnstate.schemas.position import Position


class Arrival(Struct, frozen=True, gc=False):
    """One operation as it came from the log.

    Attributes:
        draft: What it says.
        position: Where it lay.
        trusted: From a recording of ours: the log's own stamps are let in.
        op: The operation itself, where it was recorded whole.
    """

    draft: Draft
    position: Position
    trusted: bool = False
    op: Op | None = None


class Answer(Struct, frozen=True):
    """What became of one arrival.

    Known to the garbage collector: an error that was raised holds the frame
    that holds the answers, and through it the whole store.

    Attributes:
        verdict: What became of it.
        version: The version that it came with, or that a first copy came with.
        turn: The id or address that it can be read under.
        error: Why it was refused.
        ended: The branch has ended: which session goes on, "" where none was named.
    """

    verdict: Verdict
    version: int
    turn: str | None = None
    error: TurnstateError | None = None
    ended: str | None = None


class Facts(NamedTuple):
    """What the shell has looked up for the step.

    Attributes:
        ids: Entries of the turn index for the ids that the arrivals name.
        states: States at turns that are no live head.
        hashes: Operation hashes of stamped dots that are folded already.
        heads_at: Heads of a branch at a moment.
        history: Every stored operation with its version, where all must be
            folded again.
    """

    ids: Mapping[str, IdEntry] = {}
    states: Mapping[Dot, NodeState] = {}
    hashes: Mapping[Dot, bytes] = {}
    heads_at: Mapping[Moment, tuple[Dot, ...]] = {}
    history: Sequence[tuple[int, Op]] | None = None


class Need(NamedTuple):
    """What the step lacks: look it up and call the step again."""

    state: Dot | None = None
    operation_hash: Dot | None = None
    moment: Moment | None = None
    history: bool = False


class Outcome(Struct, frozen=True):
    """What one session's arrivals lead to.

    Attributes:
        head: The new head.
        ops: The operations folded, in version order.
        answers: One for each arrival, in their order.
        ids_changed: Entries to write to the turn index.
        ids_used: Entries that the fold was decided by; the frame carries them.
        bases: States that the frame must carry, so that it folds by itself.
        erased: The incarnation that an erase ended, 0 where none did;
            everything stored up to it goes.
    """

    head: Head
    ops: list[Op]
    answers: list[Answer]
    ids_changed: Mapping[str, IdEntry]
    ids_used: Mapping[str, IdEntry]
    bases: Mapping[Dot, NodeState]
    erased: int


NO_FACTS: Final = Facts()
"""What is looked up for a session that was never heard of."""


def session_step(
    head: Head,
    position: Position | None,
    arrivals: Sequence[Arrival],
    facts: Facts,
    graph: DialogueGraph,
    log_name: str,
) -> Outcome | Need:
    """Decide about the arrivals of one session, in their order.

    Pure: equal arguments give equal results. Never raises for bad input.

    Args:
        head: The session's head; `EMPTY_HEAD` where there is none.
        position: The last log position folded into it.
        arrivals: What came, in log order.
        facts: What was looked up.
        graph: The dialogue graph.
        log_name: The name under which this log stamps.

    Returns:
        The outcome, or what must be looked up first.
    """
    step = _Step(head, facts, graph, log_name)
    try:
        new = 0
        # Positions rise, so redeliveries come first.
        while new < len(arrivals) and arrivals[new].position.is_redelivery_after(
            position
        ):
            name = arrivals[new].draft.turn_id
            step.answers.append(Answer(Verdict.REDELIVERED, step.fold.version, name))
            new += 1
        for arrival in arrivals[new:] if new else arrivals:
            step.take(arrival)
    except StateNeeded as need:
        return Need(state=need.dot)
    except HashNeeded as need:
        return Need(operation_hash=need.dot)
    except _MomentNeeded as need:
        return Need(moment=need.moment)
    except RefoldNeeded:
        return Need(history=True)
    return Outcome(
        step.fold.head(),
        step.ops,
        step.answers,
        step.fold.ids_changed,
        step.fold.ids_used,
        step.fold.bases,
        step.erased,
    )


class _MomentNeeded(Exception):
    def __init__(self, moment: Moment) -> None:
        super().__init__(moment)
        self.moment = moment


class _Step:
    """The running decision about one session; lives for one call of the step."""

    def __init__(
        self, head: Head, facts: Facts, graph: DialogueGraph, log_name: str
    ) -> None:
        self.facts = facts
        self.graph = graph
        self.log_name = log_name
        self.fold = Fold(head, graph, facts.ids, facts.states)
        self.before = head.version
        self.ops: list[Op] = []
        self.answers: list[Answer] = []
        self.erased = 0

    def take(self, arrival: Arrival) -> None:
        draft = arrival.draft
        if draft.stamp is not None:
            self._take_stamped(arrival)
        elif draft.body.op == "erase":
            self._erase(draft)
        else:
            self._take_unstamped(draft)

    def _take_stamped(self, arrival: Arrival) -> None:
        draft = arrival.draft
        stamp = draft.stamp
        assert stamp is not None
        new_life = stamp.incarnation > self.fold.incarnation
        if new_life and arrival.trusted and self.fold.version == 0:
            # A recording says which life of the session it holds.
            self._restart(stamp.incarnation)
        op = arrival.op or stamped_op(draft)
        hashes = self.facts.hashes
        if stamp.dot in self.fold.clock and stamp.dot not in hashes:
            hashes = _hashes_with(hashes, self.ops, stamp.dot)
        ruling = admit_stamped(
            draft,
            self.fold,
            log_name=self.log_name,
            trusted=arrival.trusted,
            operation_hash=op.operation_hash,
            hashes=hashes,
        )
        if ruling is not None:
            self._answer(ruling.verdict, ruling.version, op.address(), ruling.error)
        else:
            self._add(op)

    def _take_unstamped(self, draft: Draft) -> None:
        fold = self.fold
        ruling = admit_unstamped(draft, fold)
        if ruling is not None:
            self._answer(ruling.verdict, ruling.version, draft.turn_id, ruling.error)
            return
        branch = draft.branch or MAIN
        plain = draft.parents is UNSET and draft.body.op is None
        self._add(
            Op.stamped(
                draft.body,
                draft.body_bytes,
                dot=Dot(self.log_name, next_counter(fold.clock, self.log_name)),
                lamport=min(fold.lamport + 1, COUNTER_MAX),
                seen=fold.seen(),
                incarnation=fold.incarnation,
                parents=fold.branch_heads(branch if branch in fold.branches else MAIN)
                if plain
                else self._parents(draft),
                branch=branch,
                turn_id=draft.turn_id,
                time=draft.time,
                content_hash=draft.content_hash,
            )
        )

    def _parents(self, draft: Draft) -> tuple[Reference, ...]:
        """Return what an unstamped operation follows (design §3, §4)."""
        fold, body = self.fold, draft.body
        if body.op in ("edit", "redact"):
            target = self._as_dot(reference_of(body.target or ""))
            return (target,) if isinstance(target, Dot) else ()
        if body.op == "end":
            return ()
        if draft.parents is not UNSET:
            return tuple(map(self._as_dot, draft.parents))
        branch = draft.branch or MAIN
        if body.op == "fork" and body.target is not None:
            return (self._as_dot(reference_of(body.target)),)
        if body.op in ("rollback", "fork") and isinstance(body.to, dict):
            source = MAIN if body.op == "fork" else branch
            clock = {r: n for r, n in body.to.items() if isinstance(n, int)}
            return self._heads_at(Moment(source, tuple(sorted(clock.items()))))
        if branch not in fold.branches:
            branch = MAIN
        return fold.branch_heads(branch)

    def _as_dot(self, reference: Reference) -> Reference:
        if isinstance(reference, str):
            entry = self.fold.entry(reference)
            return entry.dot if entry else reference
        return reference

    def _heads_at(self, moment: Moment) -> tuple[Dot, ...]:
        past = DotSet({replica: (1, high) for replica, high in moment.clock if high})
        mine = [op for op in self.ops if op.dot in past]
        if not mine and not self.erased:
            found = self.facts.heads_at.get(moment)
            if found is None:
                raise _MomentNeeded(moment)
            return found
        # The store does not have this batch yet.
        if self.facts.history is None:
            raise RefoldNeeded
        if not self.erased:
            mine = [op for _, op in self.facts.history if op.dot in past] + mine
        return heads_of(mine, moment.branch, self.fold.incarnation, self.graph)

    def _add(self, op: Op) -> None:
        try:
            self.fold.add(op)
        except RefoldNeeded:
            self._refold(op)
        self.ops.append(op)
        ended = None
        if self.fold.ended and op.body.op != "end":
            end = self.fold.ended.get(op.branch)
            ended = None if end is None else end[3] or ""
        self.answers.append(
            Answer(
                Verdict.ACCEPTED,
                self.fold.version,
                op.turn_id or op.dot.address(),
                None,
                ended,
            )
        )

    def _refold(self, op: Op) -> None:
        """Fold everything again with `op`, where an id has a new owner."""
        if self.facts.history is None:
            raise RefoldNeeded
        stored = [] if self.erased else list(self.facts.history)
        first = 0 if self.erased else self.before
        stored += enumerate([*self.ops, op], start=first + 1)
        fold = Fold(Head(incarnation=self.fold.incarnation), self.graph, {}, {})
        for version, each in sorted(stored, key=lambda pair: pair[1].order):
            fold.add(each, version=version)
        fold.bases, fold.ids_used = self.fold.bases, self.fold.ids_used
        self.fold = fold

    def _erase(self, draft: Draft) -> None:
        fold = self.fold
        incarnation = draft.incarnation or fold.incarnation
        if incarnation > fold.incarnation:
            self._answer(
                Verdict.REFUSED,
                None,
                draft.turn_id,
                InvalidInputError(
                    f"incarnation {incarnation} has not begun: "
                    f"the session is in {fold.incarnation}",
                    field="incarnation",
                    hint="redrive it after the erase before it",
                    code="incarnation_ahead",
                ),
            )
        elif incarnation < fold.incarnation:
            self._answer(Verdict.DUPLICATE, None, draft.turn_id, None)
        elif (ruling := expected_version(draft, fold)) is not None:
            self._answer(ruling.verdict, ruling.version, draft.turn_id, ruling.error)
        else:
            self._restart(incarnation + 1)
            self.erased = incarnation
            self._answer(Verdict.ACCEPTED, None, draft.turn_id, None)

    def _restart(self, incarnation: int) -> None:
        self.fold = Fold(Head(incarnation=incarnation), self.graph, {}, {})
        self.before = 0
        self.ops = []

    def _answer(
        self,
        verdict: Verdict,
        version: int | None,
        turn: str | None,
        error: TurnstateError | None,
    ) -> None:
        at = self.fold.version if version is None else version
        self.answers.append(Answer(verdict, at, turn, error))


def _hashes_with(
    hashes: Mapping[Dot, bytes], ops: Sequence[Op], dot: Dot
) -> Mapping[Dot, bytes]:
    """Return the hashes, with those of operations of this very batch."""
    for op in ops:
        if op.dot == dot:
            return {**hashes, dot: op.operation_hash}
    return hashes
