"""Every frame and segment is linked to the one before; the head has the last link."""

from support.strategies import GRAPH
from support.world import World
from turnstate.storage.verify import verify_session


def check(world: World) -> None:
    """Verify all that is stored: checksums, chains, index, the fold."""
    for region, name in world.sessions():
        key = name.key()
        cold, failed = region.store.images([key])
        assert not failed, failed
        found = verify_session(
            region.store, key, region.stored(key), GRAPH, cold.get(key)
        )
        assert not found.faults, f"{name} in {region.name}: {found.faults}"
