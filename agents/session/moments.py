"""Go back to a moment: the heads that a branch had once a clock was folded."""

from collections.abc import Sequence
from typing import NamedTuple

from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.dialogue.head import Head
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.dialogue.turn_index import RefoldNeeded
from turnstate.schemas.operation import Op


class Moment(NamedTuple):
    """A branch as it stood at a clock: what a rollback or fork goes back to."""

    branch: str
    clock: tuple[tuple[str, int], ...]


def heads_of(
    ops: Sequence[Op], branch: str, incarnation: int, graph: DialogueGraph
) -> tuple[Dot, ...]:
    """Return the heads that a branch has once these operations are folded."""
    start = Head(incarnation=incarnation)
    try:
        fold = Fold(start, graph, {}, {})
        for op in ops:
            fold.add(op)
    except RefoldNeeded:
        fold = Fold(start, graph, {}, {})
        for op in sorted(ops, key=lambda each: each.order):
            fold.add(op)
    return fold.branch_heads(branch)
