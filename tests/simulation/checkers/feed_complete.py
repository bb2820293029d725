"""A subscriber hears of every version, once, in order."""

from support.world import World


def check(world: World) -> None:
    """Compare what was told with what is stored."""
    for region, name in world.sessions():
        key = name.key()
        life = region.stored(key).head.incarnation
        told = region.fed.get((key, life), [])
        kept = [(at, op.record) for at, op in enumerate(region.ops(key), start=1)]
        assert told == kept, f"{name} in {region.name}"
    for region in world.regions:
        for (key, life), told in region.fed.items():
            versions = [version for version, _ in told]
            assert versions == list(range(1, len(versions) + 1)), f"{key!r} {life}"
