"""An erased life is in no table of state, and nothing late brings it back."""

from support.world import World
from turnstate.storage.warm.tables import FRAMES, INDEX, SEGMENTS, life_prefix


def check(world: World) -> None:
    """Look for rows and operations of lives that were erased."""
    for region in world.regions:
        for key, last in world.erased.items():
            assert region.stored(key).head.incarnation > last, f"{key!r} is back"
            for op in region.ops(key):
                assert op.incarnation > last
            for life in range(1, last + 1):
                prefix = life_prefix(key, life)
                for table in (FRAMES, SEGMENTS, INDEX):
                    rows = list(region.store.rows(table, prefix))
                    assert not rows, f"{key!r}: life {life} is in {table}"
