"""The state is what the definition makes of the set of operations."""

from support.strategies import GRAPH
from support.world import World
from turnstate.schemas.dialogue.fold_set import fold_set
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.dialogue.state import DialogueState


def check(world: World) -> None:
    """Compare each stored head with the fold of a set that shows all of it."""
    for region, name in world.sessions():
        head = region.stored(name.key()).head
        ops = region.ops(name.key())
        state = DialogueState.empty(GRAPH, head.incarnation).apply(ops)
        assert state.folded() == fold_set(ops, GRAPH), f"{name} is folded wrong"
        assert digest(head) == state.digest(), f"{name} in {region.name}"
