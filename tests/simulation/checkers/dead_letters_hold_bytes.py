"""Whatever was refused lies in the dead letters: reason, place and original bytes."""

from support.world import World
from turnstate.agents.dead_letters import decode_dead_letter
from turnstate.storage.warm.tables import DEAD


def check(world: World) -> None:
    """Compare the letters with the refusals that were answered."""
    for region in world.regions:
        letters = [decode_dead_letter(row) for _, row in region.store.rows(DEAD)]
        held = {(each.raw, each.offset, each.reason) for each in letters}
        for refused in region.refused:
            assert tuple(refused) in held, f"{region.name} lost {refused}"
        for each in letters:
            assert each.raw_bytes == len(each.raw)
