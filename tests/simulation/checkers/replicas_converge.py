"""Once all is delivered, every replica of a session has one digest."""

from support.world import SESSIONS, World
from turnstate.schemas.dialogue.head import digest


def check(world: World) -> None:
    """Compare regions and clients."""
    assert not world.network, "there is no end to what is sent"
    for name in SESSIONS:
        heads = {
            region.name: region.stored(name.key()).head for region in world.regions
        }
        lives = {head.incarnation for head in heads.values()}
        assert len(lives) == 1, f"{name} is in lives {lives}"
        for client in world.clients:
            head = client.state(name.key()).head
            if head.incarnation in lives:
                heads[client.name] = head
        found = {where: digest(head).hex()[:16] for where, head in heads.items()}
        assert len(set(found.values())) == 1, f"{name} differs: {found}"
