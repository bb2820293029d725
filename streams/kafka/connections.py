"""Connect to brokers within a time limit, and say so where they are away."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.kafka.cluster_settings import ClusterSettings

CONNECT_S: Final = 15.0
"""How long a command waits for brokers that do not answer."""

_PAUSE_S: Final = 0.2


def unavailable(
    settings: ClusterSettings, error: BaseException, what: str
) -> UnavailableError:
    """Return the error that says which brokers were asked, and for what."""
    said = str(error) or type(error).__name__
    return UnavailableError(
        f"Kafka at {settings.bootstrap} does not answer ({what}): {said}",
        field="kafka",
        hint="turnstate cluster status, or name the brokers in TURNSTATE_KAFKA",
    )


async def started(
    client: Any,
    settings: ClusterSettings,
    what: str,
    *,
    timeout_s: float = CONNECT_S,
) -> None:
    """Start a client of aiokafka; try again until a time limit.

    Raises:
        UnavailableError: no broker answers in time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                await client.start()
            # A consumer that is stopped before its tasks have begun cancels
            # them so that its caller ends, too, and leaves its connections.
            await asyncio.sleep(0)
            return
        except (KafkaError, OSError, TimeoutError) as error:
            if loop.time() + _PAUSE_S >= deadline:
                raise unavailable(settings, error, what) from error
            await asyncio.sleep(_PAUSE_S)


@asynccontextmanager
async def admin_client(
    settings: ClusterSettings, *, timeout_s: float = CONNECT_S
) -> AsyncGenerator[AIOKafkaAdminClient]:
    """Give an admin client that is connected.

    Raises:
        UnavailableError: no broker answers in time, or answers fail.
    """
    client = AIOKafkaAdminClient(
        request_timeout_ms=int(timeout_s * 1000), **settings.client_options()
    )
    try:
        await started(client, settings, "to connect", timeout_s=timeout_s)
        yield client
    except (KafkaError, OSError, TimeoutError) as error:
        raise unavailable(settings, error, "an answer") from error
    finally:
        await client.close()
