"""Which backup a partition may be restored from, and what it is refused for."""

from typing import Any

import pytest
from msgspec.structs import replace

from turnstate.storage.backup.manifest import (
    FORMAT,
    Manifest,
    PartitionFacts,
    StoreFacts,
    decode_manifest,
    encode_manifest,
)
from turnstate.streams.kafka.backup_rules import Changelog, why_not

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000

FACTS = PartitionFacts(3, 6, bytes(16).hex(), 99, (2, 7))
MANIFEST = Manifest(
    FORMAT, 5, StoreFacts("x", "log", ["log"], 40), NOW_MS - HOUR_MS, [], [], FACTS
)
CHANGELOG = Changelog(bytes(16), 6, 0, 200, 24 * HOUR_MS)


def _why(manifest: Manifest, number: int = 3, **changed: Any) -> str | None:
    changelog = CHANGELOG._replace(**changed)
    return why_not(manifest, number, changelog, log_name="log", now_ms=NOW_MS)


def test_a_young_backup_of_this_very_changelog_will_do() -> None:
    assert _why(MANIFEST) is None
    # The changelog may begin right behind it, and end with it.
    assert _why(MANIFEST, begin=100, end=100) is None


@pytest.mark.parametrize(
    ("number", "changed", "told"),
    [
        (2, {}, "no backup of partition 2"),
        (3, {"topic_id": b"\1" * 16}, "another changelog"),
        (3, {"partitions": 8}, "6 partitions, not 8"),
        (3, {"end": 99}, "ahead of the changelog"),
        (3, {"begin": 101}, "begins at 101"),
        (3, {"keeps_tombstones_ms": HOUR_MS}, "3600 s old"),
    ],
)
def test_what_it_is_refused_for(
    number: int, changed: dict[str, Any], told: str
) -> None:
    why = _why(MANIFEST, number, **changed)
    assert why is not None
    assert told in why


def test_age_counts_with_a_margin_for_clocks_and_for_the_restore() -> None:
    def aged(hours: float) -> str | None:
        return _why(replace(MANIFEST, time_ms=NOW_MS - int(hours * HOUR_MS)))

    assert aged(21.5) is None
    assert "deletions are known" in (aged(21.7) or "")
    # Of a worker whose clock goes before ours; more than that is no age.
    assert aged(-2.3) is None
    assert aged(-2.5) is not None


def test_another_log_name_and_an_embedded_store_are_refused() -> None:
    other = replace(MANIFEST, facts=StoreFacts("x", "eu", ["eu"], 40))
    assert "log_name" in (_why(other) or "")
    assert "no backup of partition" in (_why(replace(MANIFEST, partition=None)) or "")


def test_a_manifest_tells_of_its_partition() -> None:
    read = decode_manifest(encode_manifest(MANIFEST), "m")
    assert read == MANIFEST
    assert read.partition == FACTS
