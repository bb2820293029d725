"""The id of a topic, which names the log: another topic of that name is another log."""

import asyncio
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from turnstate.schemas.errors import NotFoundError, UnavailableError
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.connections import unavailable

ID_BYTES: Final = 16

_PAUSE_S: Final = 0.1
_TRY_S: Final = 2.0
"""One question to one broker; the next may answer."""


class _Uuid(AbstractType[bytes]):  # type: ignore[misc]
    """Sixteen bytes, of no type that aiokafka has."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        assert len(value) == ID_BYTES, "a UUID has 16 bytes"
        return value

    @classmethod
    def decode(cls, data: Any) -> bytes:
        value: bytes = data.read(ID_BYTES)
        if len(value) != ID_BYTES:
            raise ValueError("a UUID is cut")
        return value


class _MetadataResponse(Response):  # type: ignore[misc]
    """Metadata, version 10: the first whose topics have ids."""

    # aiokafka declares properties and sets them so itself.
    API_KEY = 3  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    API_VERSION = 10  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _MetadataRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", _Uuid),
                ("topic", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Metadata(Request[_MetadataRequest]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: type[_MetadataRequest]) -> _MetadataRequest:
        tags: dict[int, bytes] = {}
        asked = (bytes(ID_BYTES), self._topic, tags)
        return request_struct_class([asked], False, False, False, tags)


async def topic_id(
    settings: ClusterSettings, topic: str, *, timeout_s: float = 30.0
) -> bytes:
    """Return the 16 bytes by which the brokers know a topic.

    It changes when a topic is deleted and made again, and so tells a
    redelivery from another log whose offsets begin anew.

    Args:
        settings: Where the brokers are.
        topic: Its full name.
        timeout_s: How long to ask before giving up.

    Raises:
        NotFoundError: the brokers answer that there is no such topic.
        UnavailableError: no broker answers in time, or only one so old that
            its topics have no ids.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    client: Any = AIOKafkaClient(
        request_timeout_ms=int(_TRY_S * 1000), **settings.client_options()
    )
    try:
        return await _asked(client, topic, deadline)
    except (KafkaError, OSError, TimeoutError) as error:
        raise unavailable(settings, error, f"the id of the topic {topic!r}") from error
    finally:
        await client.close()


async def _asked(client: Any, topic: str, deadline: float) -> bytes:
    """Ask until a broker answers; right after its making it may not know it."""
    loop = asyncio.get_running_loop()
    connected = False
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                if not connected:
                    await client.bootstrap()
                    connected = True
                node = client.get_random_node()
                response: Any = await client.send(node, _Metadata(topic))
            return _id_in(response, topic)
        except UnknownTopicOrPartitionError:
            raise NotFoundError(
                f"there is no topic {topic!r}",
                field="topic",
                hint="turnstate topics create",
            ) from None
        except IncompatibleBrokerVersion as error:
            raise _too_old(error) from error
        except (KafkaError, OSError):
            if loop.time() + _PAUSE_S >= deadline:
                raise
            await asyncio.sleep(_PAUSE_S)
        except RuntimeError as error:  # of aiokafka: none of its versions fits
            raise _too_old(error) from error


def _id_in(response: Any, topic: str) -> bytes:
    for error_code, name, identity, *_ in response.topics:
        if name == topic:
            if error_code:
                raise for_code(error_code)(topic)
            return bytes(identity)
    raise UnknownTopicOrPartitionError(topic)


def _too_old(error: Exception) -> UnavailableError:
    return UnavailableError(
        f"the broker does not tell topic ids: {error}",
        field="kafka",
        hint="Kafka 2.8 or newer",
    )
