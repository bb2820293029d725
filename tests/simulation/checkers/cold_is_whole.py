"""Every pointer leads to a whole image of the state that it tells, in a known pack."""

from support.world import World
from turnstate.schemas.dialogue.head import digest
from turnstate.storage.stored_head import decode_stored_head
from turnstate.storage.warm.cold_rows import ColdHead


def check(world: World) -> None:
    """Follow each pointer, and compare the state there with what lists say."""
    for region in world.regions:
        known = region.packs.manifests.latest().packs
        for key, pointer in region.pointers().items():
            assert pointer.pack in known, f"{pointer.pack} is in no manifest"
            (cold,) = region.store.located([key])
            assert isinstance(cold, ColdHead)
            found, failed = region.store.images([key])
            assert not failed, failed
            head = decode_stored_head(found[key].row).head
            assert digest(head) == cold.digest
            assert head.version == cold.version
