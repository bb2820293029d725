"""Say how long topics keep what was erased elsewhere, by their own settings."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

RETENTION: Final = "retention.ms"
POLICY: Final = "cleanup.policy"
SEGMENT: Final = "segment.ms"
LAG: Final = "max.compaction.lag.ms"

_NEVER_MS: Final = 1 << 62
"""Kafka's own default of the longest lag is the greatest number."""


def kept_words(
    name: str, what: str, configs: Mapping[str, str | None], now_ms: int
) -> str:
    """Return until when a topic keeps what was written to it up to now, in words.

    Args:
        name: Of the topic.
        what: That it keeps.
        configs: Of the topic.
        now_ms: The time.

    Example:
        >>> kept_words("turns", "turns", {"retention.ms": "-1"}, 0)
        'topic turns: turns, for ever (retention.ms is -1)'
        >>> kept_words("deltas", "frames", {"retention.ms": "86400000"}, 0)
        'topic deltas: frames, until about 1970-01-02T00:00Z (retention.ms)'
    """
    where = f"topic {name}: {what}"
    if "compact" in (configs.get(POLICY) or ""):
        lag_ms = _number(configs, LAG, _NEVER_MS)
        if lag_ms < _NEVER_MS:
            segment_ms = _number(configs, SEGMENT, 0)
            until = _time(now_ms + lag_ms + segment_ms)
            return f"{where}, until about {until} ({LAG})"
        return f"{where}, until Kafka compacts it (no {LAG} is set)"
    kept_ms = _number(configs, RETENTION, -1)
    if kept_ms < 0:
        return f"{where}, for ever ({RETENTION} is -1)"
    return f"{where}, until about {_time(now_ms + kept_ms)} ({RETENTION})"


async def topic_configs(
    admin: AIOKafkaAdminClient, names: Iterable[str]
) -> dict[str, dict[str, str | None]]:
    """Return the settings of topics; empty ones where the brokers do not tell.

    Args:
        admin: Connected.
        names: Of the topics.
    """
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    found: dict[str, dict[str, str | None]] = {}
    responses: list[Any] = await admin.describe_configs(resources)
    for response in responses:
        for error_code, _, _, name, entries in response.resources:
            found[name] = {} if error_code else {row[0]: row[1] for row in entries}
    return found


def _number(configs: Mapping[str, str | None], name: str, default: int) -> int:
    try:
        return int(configs.get(name) or default)
    except ValueError:
        return default


def _time(at_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return "the end of time"
    return moment.strftime("%Y-%m-%dT%H:%MZ")
