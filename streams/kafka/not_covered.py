"""What an erase on a cluster does not reach, and until when it is kept."""

from collections.abc import Iterable

from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import admin_client
from turnstate.streams.kafka.kept_until import kept_words, topic_configs
from turnstate.streams.kafka.topics import Topics

_BROKERS_FILES = (
    "files of the brokers: what was trimmed is read by nobody; a segment of a topic"
    " is deleted once it is full, or older than segment.ms"
)
_STORES = (
    "stores of workers that do not run now: they are cleaned once they run and have"
    " the partition; those of workers that never will, and copies of data folders,"
    " have to be deleted by hand"
)
_ELSEWHERE = (
    "backups and recordings that were taken elsewhere, other groups that fold these"
    " turns"
)
_REDIS = (
    "Redis' own files (append-only file, snapshots): until it next rewrites them"
    " (BGREWRITEAOF, BGSAVE)"
)


async def not_covered(
    cluster: ClusterSettings, now_ms: int, *, letters: int, is_trimmed: bool
) -> list[str]:
    """Return what holds erased bytes still, in words.

    Args:
        cluster: The cluster.
        now_ms: The time.
        letters: How many dead letters hold some; they are settled.
        is_trimmed: Whether turns, frames and letters were deleted.

    Raises:
        UnavailableError: the brokers do not answer.
    """
    topics = Topics.of(cluster)
    kept = [] if is_trimmed else [(topics.turns, "turns"), (topics.deltas, "frames")]
    if letters and not is_trimmed:
        kept.append((topics.dead_letters, f"letters ({letters}), settled"))
    kept += [
        (topics.changelog, "rows that are buried"),
        (topics.entities, "entities that are buried"),
    ]
    async with admin_client(cluster) as admin:
        configs = await topic_configs(admin, [name for name, _ in kept])
    told = [kept_words(at, what, configs.get(at, {}), now_ms) for at, what in kept]
    return [*told, *_places(cluster, is_trimmed=is_trimmed)]


def _places(cluster: ClusterSettings, *, is_trimmed: bool) -> Iterable[str]:
    if is_trimmed:
        yield _BROKERS_FILES
    yield _STORES
    if cluster.redis:
        yield _REDIS
    yield _ELSEWHERE
