"""What the world itself noticed: redeliveries, torn frames, rebuilds."""

from support.world import World


def check(world: World) -> None:
    """Fail on any fault that was noted while the world was played."""
    assert not world.faults, world.faults
