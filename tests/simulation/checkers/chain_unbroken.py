"""Every frame and segment is linked to the one before; the head has the last link."""

from support.strategies import GRAPH
from support.world import World
from turnstate.storage.verify import verify_session


def check(world: World) -> None:
    """Verify all that is stored: checksums, chains, index, the fold."""
    for region, name in world.sessions():
        stored = region.stored(name.key())
        found = verify_session(region.store, name.key(), stored, GRAPH)
        assert not found.faults, f"{name} in {region.name}: {found.faults}"
