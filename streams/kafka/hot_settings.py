"""How the hot tier of a cluster is reached: by its workers and by their readers."""

from typing import TYPE_CHECKING, Final

from turnstate.streams.kafka.cluster_settings import ClusterSettings

if TYPE_CHECKING:
    from turnstate.storage.hot.redis_connection import RedisSettings

_REST_MS: Final = 2_000
_FAILURES_MAX: Final = 2


def redis_settings(cluster: ClusterSettings, changelog_id: bytes) -> "RedisSettings":
    """Return the settings of the hot tier.

    All keys begin with the id of the changelog: epochs count within it, so a
    group with another one, or one that was made anew, has other keys.

    Args:
        cluster: Says where Redis is, and what it may take.
        changelog_id: The topic id of the changelog.

    Raises:
        UnavailableError: redis-py is not installed.
        InvalidInputError: the URL is none.
    """
    from turnstate.storage.hot.redis_connection import RedisSettings

    # One try: to connect and to be answered are bounded together.
    timeout_ms = max(1, cluster.hot_timeout_ms // 2)
    return RedisSettings(
        cluster.redis,
        connections_max=8,
        timeout_ms=timeout_ms,
        connect_timeout_ms=timeout_ms,
        retries=0,
        failures_max=_FAILURES_MAX,
        rest_ms=_REST_MS,
        ttl_s=cluster.hot_ttl_s,
        frames_kept=cluster.hot_frames_kept,
        prefix=f"ts.{changelog_id.hex()}",
    )
