"""Who may enter a session: the ordered table of design §3, as one pure function."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from msgspec import UNSET

from turnstate.schemas.clocks import Dot, DotSet
from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.draft import Draft
from turnstate.schemas.errors import ConflictError, InvalidInputError, TurnstateError
from turnstate.schemas.limits import GAP_INTERVALS_MAX, LIVE_BRANCHES_MAX
from turnstate.schemas.operation import MAIN, dot_reused, reference_of


class Verdict(Enum):
    """What becomes of an operation that came."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REDELIVERED = "redelivered"
    DROPPED = "dropped"
    REFUSED = "refused"


class Ruling(NamedTuple):
    """A verdict that keeps an operation out, and why.

    Attributes:
        verdict: DUPLICATE, DROPPED or REFUSED.
        version: The version that the first copy came with, where there is one.
        error: What to answer and to write on the dead letter.
    """

    verdict: Verdict
    version: int | None = None
    error: TurnstateError | None = None


class HashNeeded(Exception):
    """A stamped dot is folded already: fetch the hash of the stored operation."""

    def __init__(self, dot: Dot) -> None:
        super().__init__(dot)
        self.dot = dot


def _known_id(draft: Draft, fold: Fold) -> Ruling | None:
    entry = fold.entry(draft.turn_id) if draft.turn_id is not None else None
    if entry is None:
        return None
    if entry.content_hash == draft.content_hash:
        return Ruling(Verdict.DUPLICATE, entry.version)
    twins = fold.twins.get(draft.turn_id or "", ())
    if any(twin.content_hash == draft.content_hash for twin in twins):
        return Ruling(Verdict.DUPLICATE, entry.version)
    return Ruling(
        Verdict.REFUSED,
        entry.version,
        ConflictError(
            f"turn {draft.turn_id!r} is there with other content; the first stands",
            field="turn_id",
            hint="send a new turn_id, or op=edit to change the text",
        ),
    )


def expected_version(draft: Draft, fold: Fold) -> Ruling | None:
    """Return what keeps an operation out whose sender had read another version."""
    if draft.if_version is None or draft.if_version == fold.version:
        return None
    return Ruling(
        Verdict.REFUSED,
        fold.version,
        ConflictError(
            f"if_version is {draft.if_version}, the session is at {fold.version}",
            field="if_version",
            hint="read the state again, then decide",
            code="version_conflict",
        ),
    )


def _branch_limit(draft: Draft, fold: Fold) -> Ruling | None:
    branch = draft.branch or MAIN
    if branch in fold.branches or len(fold.branches) < LIVE_BRANCHES_MAX:
        return None
    return Ruling(
        Verdict.REFUSED,
        error=InvalidInputError(
            f"the session has {len(fold.branches)} live branches",
            field="branch",
            hint=f"at most {LIVE_BRANCHES_MAX}",
            code="branch_limit",
        ),
    )


def _fork_is_new(draft: Draft, fold: Fold) -> Ruling | None:
    if draft.body.op != "fork" or (draft.branch or MAIN) not in fold.branches:
        return None
    return Ruling(
        Verdict.REFUSED,
        error=ConflictError(
            f"branch {draft.branch or MAIN!r} exists",
            field="branch",
            hint="fork to a new name",
            code="branch_exists",
        ),
    )


def _named_turns_are_turns(draft: Draft, fold: Fold) -> Ruling | None:
    """Refuse a parent or target that is known and is no turn."""
    named = [("parent", parent) for parent in draft.parents or ()]
    if draft.body.target is not None:
        named.append(("target", reference_of(draft.body.target)))
    for field, reference in named:
        entry = fold.entry(reference) if isinstance(reference, str) else None
        dot = entry.dot if entry is not None else None
        if isinstance(reference, Dot):
            dot = reference
        if dot is not None and dot in fold.asides:
            return Ruling(
                Verdict.REFUSED,
                error=InvalidInputError(
                    f"{field} {reference!r} is an operation, not a turn",
                    field=field,
                    hint="name a turn",
                ),
            )
    return None


def _constraints(draft: Draft, fold: Fold) -> Ruling | None:
    """Refuse an action whose edge asks for other slots than the branch has.

    Checked here, where the owner decides once, and not in the fold: slots can
    be redacted later, phases cannot (docs/decisions/0003).
    """
    action = draft.body.action
    state = fold.branch_state(draft.branch or MAIN) if action is not None else None
    phase = state.phase if state else fold.graph.start
    if action is None or fold.graph.transition(phase, action) is None:
        return None
    names = {**(state.slots if state else {}), **(draft.body.slot_set or {})}
    for name in draft.body.slot_delete or ():
        names.pop(name, None)
    if fold.graph.transition(phase, action, names) is not None:
        return None
    return Ruling(
        Verdict.REFUSED,
        error=ConflictError(
            f"action {action!r} in phase {phase!r} asks for other slots",
            field="action",
            hint="the dialogue graph says which must be set, and which not",
            code="phase_constraint",
        ),
    )


UNSTAMPED_RULES: Final[tuple[Callable[[Draft, Fold], Ruling | None], ...]] = (
    _known_id,
    expected_version,
    _branch_limit,
    _fork_is_new,
    _named_turns_are_turns,
    _constraints,
)
"""In the order of design §3; the log position is checked before all of them."""


def admit_unstamped(draft: Draft, fold: Fold) -> Ruling | None:
    """Return what keeps an unstamped operation out, None if it may be stamped."""
    if (
        draft.body.op is None
        and draft.body.action is None
        and draft.if_version is None
        and draft.parents is UNSET
        and (draft.branch or MAIN) in fold.branches
        and (draft.turn_id is None or fold.entry(draft.turn_id) is None)
    ):
        return None  # The usual turn: no rule has anything to say about it.
    for rule in UNSTAMPED_RULES:
        ruling = rule(draft, fold)
        if ruling is not None:
            return ruling
    return None


def admit_stamped(
    draft: Draft,
    fold: Fold,
    *,
    log_name: str,
    trusted: bool,
    operation_hash: bytes,
    hashes: Mapping[Dot, bytes],
) -> Ruling | None:
    """Return what keeps a stamped operation out, None if it enters.

    Depends on the operation alone, but for what is there under its dot, so
    that any order of arrival converges.

    Args:
        draft: The operation.
        fold: The session.
        log_name: The name under which this log stamps.
        trusted: Whether it comes from a recording of ours, which may hold it.
        operation_hash: The hash that it would be folded with.
        hashes: Hashes of operations that are folded already.

    Raises:
        HashNeeded: its dot is folded and `hashes` does not know it.
    """
    stamp = draft.stamp
    assert stamp is not None
    if stamp.incarnation < fold.incarnation:
        return Ruling(Verdict.DROPPED)
    if stamp.incarnation > fold.incarnation:
        return Ruling(
            Verdict.REFUSED,
            error=InvalidInputError(
                f"incarnation {stamp.incarnation} has not begun here: "
                f"the session is in {fold.incarnation}",
                field="stamp.incarnation",
                hint="redrive it after the erase",
                code="incarnation_ahead",
            ),
        )
    if stamp.dot in fold.clock:
        known = hashes.get(stamp.dot)
        if known is None:
            raise HashNeeded(stamp.dot)
        if known == operation_hash:
            return Ruling(Verdict.DUPLICATE)
        return Ruling(Verdict.REFUSED, error=dot_reused(stamp.dot))
    if stamp.dot.replica == log_name and not trusted:
        return Ruling(
            Verdict.REFUSED,
            error=InvalidInputError(
                f"replica {log_name!r} is this log's own name",
                field="stamp.dot",
                hint="stamp under a name of your own",
                code="reserved_replica",
            ),
        )
    if fold.clock.beyond_gaps() >= GAP_INTERVALS_MAX:
        grown = fold.clock.added(*stamp.dot)
        if grown.beyond_gaps() > GAP_INTERVALS_MAX:
            return Ruling(
                Verdict.REFUSED,
                error=InvalidInputError(
                    f"more than {GAP_INTERVALS_MAX} intervals lie beyond a gap",
                    field="stamp.dot",
                    hint="redrive it once the gap has closed",
                    code="gap_limit",
                ),
            )
    return None


def next_counter(clock: DotSet, replica: str) -> int:
    """Return the counter of a replica's next operation."""
    spans = clock.spans.get(replica)
    return spans[-1] + 1 if spans else 1
