"""Look at every key of a store in Redis: each has a TTL, each head its body."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from turnstate.storage.hot.redis_connection import RedisSettings
from turnstate.storage.hot.redis_keys import (
    BODY,
    HEAD,
    TOMBSTONE,
    NamedKey,
    keys_of,
    named_by,
    scan_pattern,
)
from turnstate.storage.hot.redis_link import Call, Link
from turnstate.storage.hot.redis_script import INSPECT

# The answers of INSPECT are sums of these.
_THERE: Final = 1
_NO_TTL: Final = 2
_MALFORMED: Final = 4
_NO_BODY: Final = 8
_NO_HEAD: Final = 16
_EXPIRED: Final = 32


class SweepReport(NamedTuple):
    """What a sweep saw. A key that is wrong in two ways counts in both.

    What is there counts about: SCAN may show a key twice while Redis grows.

    Attributes:
        heads: Sessions with a head.
        bodies: Sessions with frames.
        tombstones: Sessions of which a life was erased.
        strange: Keys under our prefix that are none of ours; left alone.
        without_ttl: Keys that would never go.
        malformed: Heads that are none.
        without_body: Heads without frames.
        without_head: Frames without a head.
        expired: Heads past their time by our clock, not gone by that of Redis.
        mended: Keys with a fault that were deleted, or given a TTL.
    """

    heads: int = 0
    bodies: int = 0
    tombstones: int = 0
    strange: int = 0
    without_ttl: int = 0
    malformed: int = 0
    without_body: int = 0
    without_head: int = 0
    expired: int = 0
    mended: int = 0

    @property
    def is_sound(self) -> bool:
        """Say whether every key has a TTL and every head a body.

        Example:
            >>> SweepReport(heads=2, bodies=2).is_sound
            True
        """
        return not (
            self.without_ttl + self.malformed + self.without_body + self.without_head
        )


async def sweep(
    link: Link, settings: RedisSettings, now_ms: int, *, mend: bool
) -> SweepReport:
    """Walk over all keys, a page a round trip; what is looked at is whole.

    Each session is looked at, and mended, in one step, so a sweep may run
    while owners write. A key is deleted where a rule is broken, which costs
    one read of warm; a tombstone is given a TTL.

    Args:
        link: The Redis.
        settings: Of the tier.
        now_ms: Epoch milliseconds.
        mend: Otherwise faults are only counted.

    Raises:
        UnavailableError: Redis is away.
    """
    report = SweepReport()
    async for page in link.pages(scan_pattern(settings.prefix)):
        named = [named_by(settings.prefix, name) for name in page]
        strange = named.count(None)
        ours = [each for each in dict.fromkeys(named) if each is not None]
        answers = await link.evaluate(
            INSPECT, [_look(settings, each, now_ms, mend=mend) for each in ours]
        )
        report = _counted(
            report._replace(strange=report.strange + strange), ours, answers
        )
    return report if mend else report._replace(mended=0)


def _look(settings: RedisSettings, key: NamedKey, now_ms: int, *, mend: bool) -> Call:
    return Call(
        keys_of(settings.prefix, key.session),
        (
            key.part.encode(),
            now_ms.to_bytes(8, "big"),
            int(mend),
            settings.tombstone_ttl_s * 1000,
        ),
    )


def _counted(
    report: SweepReport, keys: Sequence[NamedKey], answers: Sequence[int]
) -> SweepReport:
    def count(bit: int, part: str | None = None) -> int:
        return sum(
            bool(answer & bit)
            for key, answer in zip(keys, answers, strict=True)
            if part in {None, key.part}
        )

    return SweepReport(
        report.heads + count(_THERE, HEAD),
        report.bodies + count(_THERE, BODY),
        report.tombstones + count(_THERE, TOMBSTONE),
        report.strange,
        report.without_ttl + count(_NO_TTL),
        report.malformed + count(_MALFORMED),
        report.without_body + count(_NO_BODY),
        report.without_head + count(_NO_HEAD),
        report.expired + count(_EXPIRED),
        report.mended + count(~_THERE),
    )
