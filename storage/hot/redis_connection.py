"""Where a Redis is, with which limits it is asked, and the client that does so."""

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from turnstate.schemas.errors import InvalidInputError, UnavailableError

try:
    from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.connection import Connection, SSLConnection
    from redis.asyncio.retry import Retry
    from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
    from redis.backoff import EqualJitterBackoff, NoBackoff
except ImportError as error:
    raise UnavailableError(
        "redis-py is not installed", hint="pip install 'turnstate[redis]'"
    ) from error

# Behind the question for redis-py, which it needs, too.
from turnstate.storage.hot.redis_failures import FAILURES

REDIS_PORT: Final = 6379
SENTINEL_PORT: Final = 26379

ALONE, SENTINEL, CLUSTER = "alone", "sentinel", "cluster"
"""Kinds of installation."""

_SCHEMES: Final = {
    "redis": ALONE,
    "redis+sentinel": SENTINEL,
    "redis+cluster": CLUSTER,
}
_FORMS: Final = (
    "redis://host:port/0, redis+sentinel://host,host/service,"
    " redis+cluster://host,host; rediss for TLS"
)
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_BACKOFF_S: Final = 0.02
_BACKOFF_MAX_S: Final = 0.2
_SPARE_CONNECTIONS: Final = 4
"""Of each node of a Cluster, for what the client asks about the Cluster."""

_RANGES: Final = {
    "connections_max": (1, 10_000),
    "timeout_ms": (1, 600_000),
    "connect_timeout_ms": (1, 600_000),
    "retries": (0, 10),
    "failures_max": (1, 1_000_000),
    "rest_ms": (1, 3_600_000),
    "ttl_s": (1, 366 * 86_400),
    "tombstone_ttl_s": (1, 366 * 86_400),
    "frames_kept": (1, 1_000),
    "epoch": (0, (1 << 63) - 1),
}


class Address(NamedTuple):
    """A server's address."""

    host: str
    port: int


class Place(NamedTuple):
    """What a URL says.

    Attributes:
        kind: `ALONE`, `SENTINEL` or `CLUSTER`.
        addresses: Of the server, of the Sentinels, or of some nodes.
        service: The name of the master that the Sentinels watch.
        database: The number of the database; 0 in a Cluster.
        tls: Whether the connections are encrypted.
        username: Of the servers; None where there is none.
        password: Likewise.
    """

    kind: str
    addresses: tuple[Address, ...]
    service: str
    database: int
    tls: bool
    username: str | None
    password: str | None


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Where the hot tier is, what it keeps and how long, and what bounds it.

    Attributes:
        url: `redis://host:port/0`, `redis+sentinel://host,host/service`,
            `redis+cluster://host,host`; with `rediss` in front for TLS, with
            `user:password@` before the first host.
        connections_max: Calls at once, and so connections (to each node of a
            Cluster); more wait.
        timeout_ms: For one answer.
        connect_timeout_ms: To reach a server.
        retries: How often a call is sent again after no answer.
        failures_max: Failed calls in a row until Redis is left alone.
        rest_ms: For how long.
        ttl_s: How long a session stays after its last write.
        tombstone_ttl_s: How long writes of an erased life are refused here;
            the warm tier refuses them for ever.
        frames_kept: How many of the last frames of a session.
        epoch: Of the owner; a greater one may write over what a lesser wrote,
            never the other way.
        prefix: What all keys begin with: one for each store.

    Raises:
        InvalidInputError: a value is out of range; it is named.

    Example:
        >>> RedisSettings("redis://127.0.0.1").place.addresses
        (Address(host='127.0.0.1', port=6379),)
    """

    url: str
    connections_max: int = 32
    timeout_ms: int = 250
    connect_timeout_ms: int = 500
    retries: int = 2
    failures_max: int = 5
    rest_ms: int = 2_000
    ttl_s: int = 3_600
    tombstone_ttl_s: int = 7 * 86_400
    frames_kept: int = 8
    epoch: int = 0
    prefix: str = "ts"

    def __post_init__(self) -> None:
        for name, (lowest, highest) in _RANGES.items():
            value = getattr(self, name)
            if not lowest <= value <= highest:
                raise InvalidInputError(
                    f"{name} is {value}",
                    field=name,
                    hint=f"{lowest} to {highest}",
                )
        if not _PREFIX.fullmatch(self.prefix):
            raise InvalidInputError(
                f"the prefix of keys is {self.prefix!r}",
                field="prefix",
                hint="1 to 64 of A-Z a-z 0-9 _ . -",
            )
        place_of(self.url)

    @property
    def place(self) -> Place:
        """Return what the URL says."""
        return place_of(self.url)

    @property
    def longest_s(self) -> float:
        """Return how long a call takes at most, every retry in it."""
        once = (self.timeout_ms + self.connect_timeout_ms) / 1000
        return once + self.retries * (self.timeout_ms / 1000 + _BACKOFF_MAX_S)


class Client(NamedTuple):
    """A client of redis-py, and what has to be closed with it.

    Attributes:
        commands: A `Redis` or a `RedisCluster`.
        is_cluster: Which of them.
        retry: When a call is sent again. The client itself sends none, else
            the two would multiply.
        others: Clients of the Sentinels.
    """

    commands: Any
    is_cluster: bool
    retry: Any
    others: tuple[Any, ...] = ()

    async def close(self) -> None:
        """Close every connection, whether or not Redis says good-bye in time.

        redis-py closes a socket, waits for its end, and raises where that
        takes as long as a connection may: the socket is closed all the same.
        """
        for each in (self.commands, *self.others):
            await _hung_up(each.aclose)
        if not self.is_cluster:
            await _hung_up(self.commands.connection_pool.aclose)
            return
        # The client closes once only, even if it connected again since, as it
        # does while it follows a slot on the move.
        for nodes in ("nodes_cache", "startup_nodes"):
            await _hung_up(partial(self.commands.nodes_manager.aclose, nodes))


async def _hung_up(close: Callable[[], Awaitable[None]]) -> None:
    with suppress(*FAILURES):
        await close()


class _SentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """Wait for a free connection, as elsewhere, and go where the master is."""


def place_of(url: str) -> Place:
    """Return what a URL says.

    Raises:
        InvalidInputError: it has another form; no password is repeated.

    Example:
        >>> place_of("redis+sentinel://a,b:5000/main").service
        'main'
        >>> place_of("http://a")
        Traceback (most recent call last):
        ...
        turnstate.schemas.errors.InvalidInputError: no URL of a Redis: scheme 'http' \
(redis://host:port/0, redis+sentinel://host,host/service, redis+cluster://host,host; \
rediss for TLS)
    """
    try:
        parts = urlsplit(url)
        user, _, hosts = parts.netloc.rpartition("@")
        scheme = parts.scheme
        tls = scheme.startswith("rediss")
        kind = _SCHEMES.get(scheme.replace("rediss", "redis", 1))
        if kind is None:
            raise _wrong(f"scheme {scheme!r}")
        port = SENTINEL_PORT if kind == SENTINEL else REDIS_PORT
        addresses = tuple(_address(each, port) for each in hosts.split(","))
        if kind == ALONE and len(addresses) > 1:
            raise _wrong("more than one host")
        service, database = _path(parts, kind)
    except ValueError:
        raise _wrong("it cannot be read") from None
    name, _, password = user.partition(":")
    return Place(
        kind,
        addresses,
        service,
        database,
        tls,
        unquote(name) or None,
        unquote(password) or None,
    )


def connect(settings: RedisSettings) -> Client:
    """Return a client; it connects when it is first used.

    Many connections are made one by one as they are needed, never more than
    the settings say.
    """
    place = settings.place
    retry = Retry(
        EqualJitterBackoff(cap=_BACKOFF_MAX_S, base=_BACKOFF_S), settings.retries
    )
    limits: dict[str, Any] = {
        "socket_timeout": settings.timeout_ms / 1000,
        "socket_connect_timeout": settings.connect_timeout_ms / 1000,
        "socket_keepalive": True,
        "health_check_interval": 30,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
    }
    login = {"username": place.username, "password": place.password}
    if place.kind == CLUSTER:
        return _cluster(place, {**limits, **login}, settings, retry)
    pool: dict[str, Any] = {
        **limits,
        **login,
        "db": place.database,
        "max_connections": settings.connections_max,
        "timeout": settings.longest_s,
    }
    if place.kind == SENTINEL:
        return _behind_sentinels(place, pool, limits, retry)
    address = place.addresses[0]
    found = BlockingConnectionPool(
        host=address.host,
        port=address.port,
        connection_class=SSLConnection if place.tls else Connection,
        **pool,
    )
    return Client(Redis(connection_pool=found), is_cluster=False, retry=retry)


def _behind_sentinels(
    place: Place, pool: dict[str, Any], limits: dict[str, Any], retry: Any
) -> Client:
    # redis-py leaves both without types.
    sentinels_of: Any = Sentinel
    pool_of: Any = _SentinelPool
    asking = sentinels_of(
        [tuple(each) for each in place.addresses],
        sentinel_kwargs={**limits, "ssl": place.tls},
    )
    found = pool_of(place.service, asking, ssl=place.tls, **pool)
    commands = Redis(connection_pool=found)
    return Client(commands, False, retry, tuple(asking.sentinels))


def _cluster(
    place: Place, limits: dict[str, Any], settings: RedisSettings, retry: Any
) -> Client:
    commands: Any = RedisCluster(
        startup_nodes=[ClusterNode(*each) for each in place.addresses],
        # A slot without a node is away by itself; the others go on.
        require_full_coverage=False,
        max_connections=settings.connections_max + _SPARE_CONNECTIONS,
        ssl=place.tls,
        **limits,
    )
    return Client(commands, is_cluster=True, retry=retry)


def _address(text: str, port: int) -> Address:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise _wrong("a host has no name")
    return Address(parts.hostname, parts.port or port)


def _path(parts: SplitResult, kind: str) -> tuple[str, int]:
    path = parts.path.strip("/")
    if kind == SENTINEL:
        service, _, number = path.partition("/")
        if not service:
            raise _wrong("it names no service")
        return unquote(service), int(number or 0)
    database = int(path or 0)
    if kind == CLUSTER and database:
        raise _wrong("a Cluster has database 0 only")
    return "", database


def _wrong(why: str) -> InvalidInputError:
    return InvalidInputError(f"no URL of a Redis: {why}", field="url", hint=_FORMS)
