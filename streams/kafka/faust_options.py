"""The settings that Faust is given: what of it is used, and what is not."""

from pathlib import Path
from typing import Any, Final

from yarl import URL

from turnstate.streams.kafka import state_store, transport
from turnstate.streams.kafka.assignor import AddressAssignor
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.recovery import BatchTableManager
from turnstate.streams.kafka.topics import MESSAGE_BYTES_MAX

DRAIN_S: Final = 20.0
"""How long a rebalance or a shutdown waits for the round under way."""

_REQUEST_S: Final = 60.0


def faust_options(
    settings: ClusterSettings, *, data: Path, instance: str, url: str
) -> dict[str, Any]:
    """Return the settings of one worker's application.

    Args:
        settings: Of the cluster.
        data: The folder of the worker.
        instance: Its name in the group.
        url: Where it answers queries.
    """
    session_s = settings.session_timeout_ms / 1000
    return {
        "id": settings.group,
        "broker": [URL(f"{transport.SCHEME}://{each}") for each in settings.brokers()],
        "store": f"{state_store.SCHEME}://",
        "datadir": str(data),
        "topic_partitions": settings.partitions,
        "topic_replication_factor": settings.replication,
        # A standby would be read record by record, and is no use to our restore.
        "table_standby_replicas": 0,
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "autodiscover": False,
        "web_enabled": False,
        "web_tables_enabled": False,
        "canonical_url": url,
        "PartitionAssignor": AddressAssignor,
        "TableManager": BatchTableManager,
        "consumer_group_instance_id": instance,
        "consumer_auto_offset_reset": "earliest",
        "consumer_max_fetch_size": 4 << 20,
        "broker_max_poll_records": settings.chunk_turns_max,
        "broker_session_timeout": session_s,
        "broker_heartbeat_interval": max(session_s / 10, 0.1),
        "broker_rebalance_timeout": 2 * DRAIN_S + session_s,
        "broker_max_poll_interval": 600.0,
        "broker_request_timeout": max(_REQUEST_S, session_s + 1),
        "broker_commit_interval": settings.commit_interval_ms / 1000,
        "stream_buffer_maxsize": 16,
        "stream_recovery_delay": 0.0,
        "stream_wait_empty": False,
        "producer_acks": -1,
        "producer_compression_type": "lz4",
        "producer_linger": 0.0,
        "producer_max_batch_size": transport.ONE_BATCH_BYTES,
        "producer_max_request_size": MESSAGE_BYTES_MAX + (1 << 20),
        "producer_request_timeout": _REQUEST_S,
        "loghandlers": [],
        "logging_config": None,
    }
