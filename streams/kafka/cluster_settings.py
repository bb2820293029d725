"""Cluster settings: where the services are, what names and sizes they are given."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, cast

from turnstate.schemas.errors import InvalidInputError

FILE_NAME: Final = "cluster.toml"
"""In the data folder; written by `turnstate cluster up`, or by hand."""

VARIABLE_PREFIX: Final = "TURNSTATE_"

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What a worker, a producer and the commands know of their cluster.

    Each value comes from the environment, else from the file, else from here.
    Names are what a topic may be called; passwords are named by the variable
    that holds them, so that no file does.

    Attributes:
        bootstrap: Brokers to ask first, `host:port` with commas between.
        group: Consumer group of the workers; also Faust's application id, so
            it stands in the name of the changelog. One group, one state.
        prefix: Put before every topic name but the changelog's.
        output_prefix: Put, behind the prefix, before the names of what workers
            write: a second group of one topic of turns has outputs of its own.
        partitions: Of turns, deltas, changelog and dead letters, all alike.
        replication: Copies of each partition.
        security_protocol: How brokers are spoken to.
        sasl_mechanism: Where the protocol asks who we are.
        sasl_username_env: Name of the variable with the user name.
        sasl_password_env: Name of the variable with the password.
        tls_ca_file: Certificates to trust; the system's where empty.
        redis: URL of the hot tier; none where empty.
        hot_ttl_s: How long a session stays there after its last write.
        hot_frames_kept: How many of its last frames.
        hot_timeout_ms: What Redis may take of a round, or of a read, at most.
        cold: Where cold sessions go: a folder that all workers share, or
            `s3://BUCKET/PREFIX`; where empty, `s3_bucket` if there is an `s3`.
        tiers_every_s: How often workers move sessions between tiers by
            themselves; 0 = never.
        backups: Where backups of partitions go, likewise; none where empty. A
            worker with an empty disk begins with the latest one.
        encryption: Who has the master key of what workers store, `keyfile:PATH`;
            where empty, nothing is encrypted.
        s3: Endpoint of the cold tier; none where empty.
        s3_bucket: Its bucket.
        s3_access_key: Key of the endpoint; the AWS chain's where empty.
        s3_secret_key: Its secret.
        fetch_max_wait_ms: How long a broker may hold a fetch that finds nothing.
        chunk_turns_max: Records that a worker takes as one event.
        linger_ms: How long a producer waits for company.
        commit_interval_ms: Between checkpoints, which end in a commit.
        session_timeout_ms: A worker silent for so long loses its partitions.
        broker_away_s: A worker that the brokers leave alone for so long ends, with
            an exit code that asks for a restart.
        lost_turns: What a worker does where turns were deleted from the log before
            they were folded: `refuse` to start, or `accept` that they are gone.
        hot_bytes: Budget of the head cache, of a worker's partitions together.
        block_cache_bytes: RocksDB's block cache, likewise.
        write_buffer_bytes: All memtables of RocksDB, likewise.
        query_host: Where a worker answers questions.
        query_port: Its port; 0 takes a free one.
        metrics_port: Where it answers /metrics and /health by HTTP, at the
            same host; 0 = nowhere.

    Example:
        >>> ClusterSettings(partitions=0)
        Traceback (most recent call last):
        ...
        turnstate.schemas.errors.InvalidInputError: the cluster setting partitions \
is 0 (it has to be 1 to 100000)
    """

    bootstrap: str = "127.0.0.1:9092"
    group: str = "turnstate"
    prefix: str = ""
    output_prefix: str = ""
    partitions: int = 8
    replication: int = 1
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username_env: str = "TURNSTATE_KAFKA_USERNAME"
    sasl_password_env: str = "TURNSTATE_KAFKA_PASSWORD"  # noqa: S105 - a name
    tls_ca_file: str = ""
    redis: str = ""
    encryption: str = ""
    hot_ttl_s: int = 3600
    hot_frames_kept: int = 16
    hot_timeout_ms: int = 100
    cold: str = ""
    tiers_every_s: int = 0
    backups: str = ""
    s3: str = ""
    s3_bucket: str = "turnstate"
    s3_access_key: str = field(default="", repr=False)
    s3_secret_key: str = field(default="", repr=False)
    fetch_max_wait_ms: int = 10
    chunk_turns_max: int = 4096
    linger_ms: int = 5
    commit_interval_ms: int = 100
    session_timeout_ms: int = 10_000
    broker_away_s: int = 120
    lost_turns: str = "refuse"
    hot_bytes: int = 384 << 20
    block_cache_bytes: int = 64 << 20
    write_buffer_bytes: int = 64 << 20
    query_host: str = "127.0.0.1"
    query_port: int = 0
    metrics_port: int = 0
    sources: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)

    def __post_init__(self) -> None:
        """Check kinds, ranges and names.

        Raises:
            InvalidInputError: the setting is named, with what it may be.
        """
        for each in fields(self):
            wanted = _KINDS.get(each.name)
            if wanted and type(getattr(self, each.name)) is not wanted:
                kind = "a whole number" if wanted is int else "text"
                raise _wrong(each.name, getattr(self, each.name), kind)
        for name, (least, most) in _RANGES.items():
            if not least <= getattr(self, name) <= most:
                wanted_range = f"{least} to {most}"
                raise _wrong(name, getattr(self, name), wanted_range)
        if not all(map(_BROKER.fullmatch, self.brokers())):
            raise _wrong("bootstrap", self.bootstrap, "host:port, commas between")
        for name, pattern in _PATTERNS.items():
            if not pattern.fullmatch(getattr(self, name)):
                letters = "at most 100 of letters, digits, dot, _ and -"
                raise _wrong(name, getattr(self, name), letters)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise _wrong(name, getattr(self, name), " or ".join(choices))

    @classmethod
    def load(
        cls, data: Path, environment: Mapping[str, str] = os.environ
    ) -> "ClusterSettings":
        """Return the settings of a data folder and an environment.

        `TURNSTATE_KAFKA` sets `bootstrap`; any other field is set by its own
        name, as `TURNSTATE_GROUP` or `TURNSTATE_LINGER_MS`. A folder without
        the file has the defaults.

        Raises:
            InvalidInputError: the file is no TOML, has a key that is not
                known, or a value is out of range. The field is named.
        """
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for name, value in _of_file(data / FILE_NAME).items():
            values[name] = value
            sources[name] = FILE_NAME
        for name in _KINDS:
            variable = _VARIABLES.get(name, VARIABLE_PREFIX + name.upper())
            text = environment.get(variable, "")
            if text:
                values[name] = _parsed(name, text)
                sources[name] = variable
        return cls(**values, sources=sources)

    def beside(self, group: str) -> "ClusterSettings":
        """Return the settings of another group that folds the same turns.

        Its state, its deltas and its dead letters are its own. The group of
        these settings is itself.

        Raises:
            InvalidInputError: a group cannot be called so.

        Example:
            >>> ClusterSettings().beside("next").output_prefix
            'next.'
            >>> ClusterSettings().beside("turnstate").output_prefix
            ''
        """
        if group == self.group:
            return self
        return replace(self, group=group, output_prefix=f"{group}.")

    def brokers(self) -> list[str]:
        """Return the brokers to ask first.

        Example:
            >>> ClusterSettings(bootstrap="a:1, b:2").brokers()
            ['a:1', 'b:2']
        """
        return [broker.strip() for broker in self.bootstrap.split(",")]

    def client_options(
        self, environment: Mapping[str, str] = os.environ
    ) -> dict[str, Any]:
        """Return what every client of aiokafka takes to reach the brokers.

        Raises:
            InvalidInputError: the variable of a user name or password is not
                set, or the certificates cannot be read.
        """
        options: dict[str, Any] = {
            "bootstrap_servers": self.brokers(),
            "security_protocol": self.security_protocol,
        }
        if self.security_protocol.endswith("SSL"):
            options["ssl_context"] = self._tls()
        if self.security_protocol.startswith("SASL"):
            options["sasl_mechanism"] = self.sasl_mechanism
            for option, name in (
                ("sasl_plain_username", "sasl_username_env"),
                ("sasl_plain_password", "sasl_password_env"),
            ):
                variable = getattr(self, name)
                if not environment.get(variable):
                    raise InvalidInputError(
                        f"the variable {variable} is not set",
                        field=name,
                        hint=f"{self.security_protocol} asks who we are",
                    )
                options[option] = environment[variable]
        return options

    def rows(self) -> list[dict[str, Any]]:
        """Return each setting with its value and where it came from."""
        return [
            {
                "name": name,
                "value": "(set)" if name in _SECRET and value else value,
                "source": self.sources.get(name, "default"),
            }
            for name in _KINDS
            for value in [getattr(self, name)]
        ]

    def _tls(self) -> Any:
        import ssl

        try:
            return ssl.create_default_context(cafile=self.tls_ca_file or None)
        except OSError as error:
            raise InvalidInputError(
                f"the certificates in {self.tls_ca_file} cannot be read: {error}",
                field="tls_ca_file",
                hint="name a PEM file",
            ) from error


_KINDS: Final[dict[str, type]] = {
    each.name: type(each.default)
    for each in fields(ClusterSettings)
    if each.name != "sources"
}

_RANGES: Final = {
    "partitions": (1, 100_000),
    "replication": (1, 100),
    "fetch_max_wait_ms": (1, 60_000),
    "chunk_turns_max": (1, 1 << 20),
    "linger_ms": (0, 60_000),
    "commit_interval_ms": (1, 3_600_000),
    "session_timeout_ms": (1_000, 1_800_000),
    "broker_away_s": (1, 86_400),
    "hot_ttl_s": (1, 366 * 86_400),
    "hot_frames_kept": (1, 1_000),
    "hot_timeout_ms": (10, 60_000),
    "tiers_every_s": (0, 86_400),
    "hot_bytes": (1, 1 << 50),
    "block_cache_bytes": (1, 1 << 50),
    "write_buffer_bytes": (1, 1 << 50),
    "query_port": (0, 65_535),
    "metrics_port": (0, 65_535),
}

_CHOICES: Final = {
    "security_protocol": SECURITY_PROTOCOLS,
    "sasl_mechanism": SASL_MECHANISMS,
    "lost_turns": ("refuse", "accept"),
}

_SECRET: Final = frozenset({"s3_access_key", "s3_secret_key"})

# As Kafka bounds the names of topics; the changelog's holds the group.
_GROUP: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{0,100}")
_OUTPUT: Final = re.compile(r"[A-Za-z0-9._-]{0,101}")
_BROKER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:,/]+):\d{1,5}")

_PATTERNS: Final = {"group": _GROUP, "prefix": _PREFIX, "output_prefix": _OUTPUT}

_VARIABLES: Final = {"bootstrap": "TURNSTATE_KAFKA"}

_SECTIONS: Final = {
    "kafka": (
        "bootstrap",
        "group",
        "prefix",
        "output_prefix",
        "partitions",
        "replication",
        "security_protocol",
        "sasl_mechanism",
        "sasl_username_env",
        "sasl_password_env",
        "tls_ca_file",
        "linger_ms",
        "fetch_max_wait_ms",
        "session_timeout_ms",
        "broker_away_s",
    ),
    "worker": (
        "lost_turns",
        "chunk_turns_max",
        "commit_interval_ms",
        "hot_bytes",
        "block_cache_bytes",
        "write_buffer_bytes",
        "encryption",
    ),
}

_FIELDS: Final[dict[str, str]] = {
    f"{section}.{name}": name for section, names in _SECTIONS.items() for name in names
} | {
    "redis.url": "redis",
    "redis.ttl_s": "hot_ttl_s",
    "redis.frames_kept": "hot_frames_kept",
    "redis.timeout_ms": "hot_timeout_ms",
    "cold.place": "cold",
    "cold.tiers_every_s": "tiers_every_s",
    "backup.place": "backups",
    "s3.endpoint": "s3",
    "s3.bucket": "s3_bucket",
    "s3.access_key": "s3_access_key",
    "s3.secret_key": "s3_secret_key",
    "query.host": "query_host",
    "query.port": "query_port",
    "metrics.port": "metrics_port",
}
"""What a key of the file, with its section, sets."""


def _of_file(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error}",
            field=FILE_NAME,
            hint="write it anew by `turnstate cluster up`, or mend it",
        ) from error
    values: dict[str, Any] = {}
    for section, content in document.items():
        if not isinstance(content, dict):
            raise _unknown(section)
        for key, value in cast("dict[str, Any]", content).items():
            name = _FIELDS.get(f"{section}.{key}")
            if name is None:
                raise _unknown(f"{section}.{key}")
            values[name] = value
    return values


def _parsed(name: str, text: str) -> str | int:
    if _KINDS[name] is not int:
        return text
    try:
        return int(text)
    except ValueError:
        raise _wrong(name, text, "a whole number") from None


def _unknown(key: str) -> InvalidInputError:
    return InvalidInputError(
        f"{FILE_NAME} has {key!r}, which is no setting",
        field=key,
        hint=f"one of {', '.join(sorted(_FIELDS))}",
    )


def _wrong(name: str, value: object, wanted: str) -> InvalidInputError:
    return InvalidInputError(
        f"the cluster setting {name} is {value!r}",
        field=name,
        hint=f"it has to be {wanted}",
    )
