"""Every version that a session ever had can be read, and is what it was."""

from support.strategies import GRAPH
from support.world import World
from turnstate.schemas.dialogue.fold_set import fold_set
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.storage.session_reader import fold_at

EACH = 7
"""Every so many versions the definition is asked, which is slow."""


def check(world: World) -> None:
    """Read every version and compare it with the fold of that prefix."""
    for region, name in world.sessions():
        stored = region.stored(name.key())
        state = DialogueState.empty(GRAPH, stored.head.incarnation)
        for version, op in enumerate(region.ops(name.key()), start=1):
            state = state.apply([op])
            head = fold_at(region.store, name.key(), stored, version, GRAPH).head()
            assert head.version == version
            assert digest(head) == state.digest(), f"{name} at version {version}"
            if version % EACH == 0:
                assert state.folded() == fold_set(state.ops.values(), GRAPH)
