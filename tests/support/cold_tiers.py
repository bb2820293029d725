"""Open the cold tier over any object store, and put into it what a crash leaves."""

import os
import time

from turnstate.storage.cold.cold_tier import ColdTier
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.cold.s3 import S3Objects
from turnstate.storage.cold.store import PackStore
from turnstate.storage.session_image import decode_image, encode_image
from turnstate.storage.tier import SessionChange


def cold_tier(objects: ObjectStore) -> ColdTier:
    """Return a tier over objects, with the system's clock and chance."""
    store = PackStore(objects, clock=now_ms, chance=os.urandom)
    return ColdTier(store, log_name="log")


def now_ms() -> int:
    """Return the time by the system's clock."""
    return time.time_ns() // 1_000_000


def close_cold(tier: ColdTier) -> None:
    """Close what a tier is over, where that holds something open."""
    if isinstance(tier.store.objects, S3Objects):
        tier.store.objects.close()


def put_frame(tier: ColdTier, change: SessionChange) -> None:
    """Put the frame of a change over the one that led to the same version."""
    pointer = tier.store.find(change.key)
    assert pointer is not None
    assert change.frame is not None
    image = decode_image(tier.store.read(pointer))
    frames = list(image.frames)
    frames[change.after.head.version - 1] = change.frame
    tier.store.write([encode_image(image._replace(frames=frames))])
