"""Settings: plain numbers and names, each with its source, read once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import checked_id

PREFIX: Final = "TURNSTATE_"

FSYNC_CHOICES: Final = ("batch", "never")
PRELOAD_CHOICES: Final = ("on", "off")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user tunes; components such as clocks are arguments, never here.

    Attributes:
        data: The folder of the store.
        profile: `embedded`; `cluster` comes with Kafka.
        log_name: The name under which the log stamps; two regions have two.
        fsync: `batch` = every group commit survives a power cut; `never` =
            only a crash of the process.
        batch_turns_max: Turns in one group commit.
        batch_bytes_max: Bytes in one group commit.
        inbox_turns_max: Turns that wait before publishers are held back.
        hot_bytes: Budget of the hot tier, which is the head cache.
        block_cache_bytes: RocksDB's block cache.
        write_buffer_bytes: All memtables of RocksDB together.
        preload: `on` = the last turns of a session that comes back into use are
            read ahead; `off` = when they are asked for.
        seal_after_s: A session idle for so long is sealed.
        graph: A file with the dialogue graph; the default one where empty.
        cold: Where cold sessions go: a folder, or `s3://bucket/prefix`; `cold`
            in the data folder where empty.
        cold_pack_bytes: About how large the objects there are.
        cold_min_age_s: Younger objects there are never collected or rewritten:
            longer than any job, or reader, may take.
        cold_wait_s: How long a read, or a turn that wakes a session, waits for the
            cold tier in all; then it is told that the tier is away.
        active_s: A session without a turn for so long leaves the hot tier.
        cooling_s: One without a turn for so long goes to the cold tier.
        ttl_s: One without a turn for so long has expired: it is not served any
            more, and the next tier job erases it; 0 = never.
        archive: Where summaries go of what has expired, before it is erased: a
            folder, or `s3://bucket/prefix`; none are made where empty.
        archive_keep_days: How long they are kept; 0 = for ever.
        encryption: Who has the master key, as `keyfile:PATH`; nothing is
            encrypted where empty.
    """

    data: Path = Path(".turnstate")
    profile: str = "embedded"
    log_name: str = "log"
    fsync: str = "batch"
    batch_turns_max: int = 16_384
    batch_bytes_max: int = 8 << 20
    inbox_turns_max: int = 65_536
    hot_bytes: int = 384 << 20
    block_cache_bytes: int = 64 << 20
    write_buffer_bytes: int = 64 << 20
    preload: str = "on"
    seal_after_s: int = 300
    graph: str = ""
    cold: str = ""
    cold_pack_bytes: int = 32 << 20
    cold_min_age_s: int = 3600
    cold_wait_s: int = 5
    active_s: int = 15 * 60
    cooling_s: int = 24 * 3600
    ttl_s: int = 0
    archive: str = ""
    archive_keep_days: int = 0
    encryption: str = ""
    sources: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)

    def __post_init__(self) -> None:
        """Check ranges and relations.

        Raises:
            InvalidInputError: the setting is named, with what it may be.
        """
        checked_id(self.log_name, "log_name")
        if self.profile not in ("embedded", "cluster"):
            raise _wrong("profile", self.profile, "embedded or cluster")
        if self.fsync not in FSYNC_CHOICES:
            raise _wrong("fsync", self.fsync, " or ".join(FSYNC_CHOICES))
        if self.preload not in PRELOAD_CHOICES:
            raise _wrong("preload", self.preload, " or ".join(PRELOAD_CHOICES))
        scheme, colon, rest = self.encryption.partition(":")
        if self.encryption and not (scheme and colon and rest):
            raise _wrong("encryption", self.encryption, "keyfile:PATH, or empty")
        for name in _NUMBERS:
            if getattr(self, name) < 1:
                raise _wrong(name, getattr(self, name), "at least 1")
        for name in _OR_NEVER:
            if getattr(self, name) < 0:
                raise _wrong(name, getattr(self, name), "at least 1, or 0 for never")
        if self.active_s > self.cooling_s:
            raise _wrong("active_s", self.active_s, "≤ cooling_s")
        if self.batch_turns_max > self.inbox_turns_max:
            raise _wrong("batch_turns_max", self.batch_turns_max, "≤ inbox_turns_max")

    @classmethod
    def from_env(
        cls, environment: Mapping[str, str], **overrides: object
    ) -> "Settings":
        """Return the settings of an environment; arguments win over it.

        `TURNSTATE_FSYNC=never` sets `fsync`, and so on; a variable of that
        form which is no setting is left to whoever else reads it.

        Raises:
            InvalidInputError: a value is of the wrong kind or out of range.
        """
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for each in fields(cls):
            variable = PREFIX + each.name.upper()
            if each.name != "sources" and environment.get(variable, "") != "":
                values[each.name] = _parsed(each.name, environment[variable])
                sources[each.name] = variable
        for name, value in overrides.items():
            if value is not None:
                values[name] = value
                sources[name] = "argument"
        return cls(**values, sources=sources)

    def rows(self) -> list[dict[str, Any]]:
        """Return each setting with its value and where it came from."""
        return [
            {
                "name": each.name,
                "value": str(value) if isinstance(value, Path) else value,
                "source": self.sources.get(each.name, "default"),
            }
            for each in fields(self)
            if each.name != "sources"
            for value in [getattr(self, each.name)]
        ]


_NUMBERS: Final = (
    "batch_turns_max",
    "batch_bytes_max",
    "inbox_turns_max",
    "hot_bytes",
    "block_cache_bytes",
    "write_buffer_bytes",
    "seal_after_s",
    "cold_pack_bytes",
    "cold_min_age_s",
    "cold_wait_s",
    "active_s",
    "cooling_s",
)


_OR_NEVER: Final = ("ttl_s", "archive_keep_days")
"""Numbers of which 0 means never."""


def _parsed(name: str, text: str) -> str | int | Path:
    if name == "data":
        return Path(text)
    if name not in (*_NUMBERS, *_OR_NEVER):
        return text
    try:
        return int(text)
    except ValueError:
        raise _wrong(name, text, "a whole number") from None


def _wrong(name: str, value: object, wanted: str) -> InvalidInputError:
    return InvalidInputError(
        f"the setting {name} is {value!r}", field=name, hint=f"it has to be {wanted}"
    )
