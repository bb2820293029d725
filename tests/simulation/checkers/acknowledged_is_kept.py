"""What somebody was told to be kept is there, at the version that was told."""

from support.world import World


def check(world: World) -> None:
    """Look for each acknowledged turn, unless its life was erased since."""
    for region in world.regions:
        for kept in world.kept:
            key, life = kept.life
            stored = region.stored(key).head
            if life < stored.incarnation:
                assert life <= world.erased.get(key, 0), f"{kept}: nobody erased it"
                continue
            ops = region.ops(key)
            found = [
                version
                for version, op in enumerate(ops, start=1)
                if op.address() == kept.turn or op.dot.address() == kept.turn
                if op.content_hash == kept.content_hash
            ]
            assert found, f"{kept} is not in {region.name}"
            if kept.is_first and region.name == kept.region:
                assert kept.version in found, f"{kept} is at {found}"
