"""Which backup a partition may be restored from: a pure function of what is known."""

from typing import Final, NamedTuple

from turnstate.storage.backup.manifest import Manifest

MARGIN: Final = 10
"""One part in so many of the time for which tombstones are kept is left for
clocks that differ, and for the restore itself."""


class Changelog(NamedTuple):
    """What a changelog is now, as far as it decides about backups.

    Attributes:
        topic_id: The 16 bytes of the topic.
        partitions: How many it has.
        begin: Offset at which the partition begins: what was below was deleted.
        end: Offset behind its last record.
        keeps_tombstones_ms: `delete.retention.ms` of the topic.
    """

    topic_id: bytes
    partitions: int
    begin: int
    end: int
    keeps_tombstones_ms: int


def why_not(
    manifest: Manifest,
    number: int,
    changelog: Changelog,
    *,
    log_name: str,
    now_ms: int,
) -> str | None:
    """Say why a partition must not be restored from a backup; None = it may.

    What was written since is read from the changelog, behind the backup's
    offset. So it has to be of this very changelog, and whatever was deleted
    since has to be known there still: a tombstone is kept for
    `delete.retention.ms`, and after it nobody can tell that a record was.

    Args:
        manifest: Of the backup.
        number: Of the partition.
        changelog: As it is now.
        log_name: Rows of the turn index leave it out.
        now_ms: The present.
    """
    facts = manifest.partition
    if facts is None or facts.number != number:
        return f"it is no backup of partition {number}"
    if facts.changelog != changelog.topic_id.hex():
        return "it is of another changelog: the topic was made anew since"
    if facts.partitions != changelog.partitions:
        return f"it is of {facts.partitions} partitions, not {changelog.partitions}"
    if manifest.facts.log_name != log_name:
        return f"its log_name is {manifest.facts.log_name!r}, not {log_name!r}"
    if facts.offset >= changelog.end:
        return (
            f"it is ahead of the changelog: {facts.offset} of {changelog.end} records"
        )
    if facts.offset + 1 < changelog.begin:
        return (
            f"the changelog begins at {changelog.begin}, it ends at {facts.offset}:"
            " what lay between was deleted"
        )
    margin_ms = changelog.keeps_tombstones_ms // MARGIN
    age_ms = now_ms - manifest.time_ms
    if not -margin_ms <= age_ms <= changelog.keeps_tombstones_ms - margin_ms:
        return (
            f"it is {age_ms // 1000} s old, and deletions are known for"
            f" {changelog.keeps_tombstones_ms // 1000} s (delete.retention.ms)"
        )
    return None
