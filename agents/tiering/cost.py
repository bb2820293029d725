"""What a load costs in each tier: memory, disk, objects, requests, money a month."""

from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

from turnstate.agents.tiering.policy import DEFAULT_TABLE, PolicyTable
from turnstate.schemas.errors import InvalidInputError

DAYS_A_MONTH: Final = 365.25 / 12

_DAY_S: Final = 86_400
_GB: Final = 1e9


@dataclass(frozen=True, kw_only=True)
class Load:
    """What comes in, and how long it is kept.

    Attributes:
        sessions_a_day: Sessions that begin in a day.
        turns_a_session: Turns of one of them.
        bytes_a_turn: UTF-8 of content and tool arguments.
        kept_days: How long a session is kept in all.
        cold_reads_a_day: Sessions a day that are read, or go on, after they
            have cooled.

    Raises:
        InvalidInputError: a number is negative, or there are no turns.
    """

    sessions_a_day: float
    turns_a_session: float
    bytes_a_turn: float
    kept_days: float = 365.0
    cold_reads_a_day: float = 0.0

    def __post_init__(self) -> None:
        for name in ("sessions_a_day", "turns_a_session", "bytes_a_turn", "kept_days"):
            if getattr(self, name) <= 0:
                raise InvalidInputError(f"{name} is not above 0", field=name)
        if self.cold_reads_a_day < 0:
            raise InvalidInputError(
                "cold_reads_a_day is below 0", field="cold_reads_a_day"
            )


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a session takes: so much itself, for each turn, for a byte of text.

    Fitted to nine public corpora, each alone (docs/bench.md says how well). Text
    is a byte's worth as dialogues compress: of what does not, add its length.
    So add what turns carry that is no text (annotations, metadata).

    Attributes:
        hot_session: Bytes of a session in Redis beside its frames: head, keys,
            their structures.
        hot_turn: Bytes of a frame there beside its text.
        hot_frames: Turns whose frames hot holds of a session.
        hot_factor: Bytes in Redis for one byte of text of those turns.
        warm_session: Bytes of a sealed session: head and the front of segments.
        warm_turn: Bytes of a turn there beside its text: its stamp, its row of
            the turn index.
        warm_factor: Bytes of segments for one byte of text.
        log_session: Bytes of the log that go with a session; until it is trimmed.
        log_turn: Bytes of it for a turn, beside its text.
        log_factor: Bytes of it for one byte of text.
        pointer: Bytes that stay in warm of a session that is cold.
        cold_session: Bytes of an image: its front, the head uncompressed.
        cold_turn: Bytes of a turn in it, beside its text.
        cold_factor: Bytes in packs for one byte of text.
        pack: Bytes of a pack.
    """

    hot_session: float = 1_430.0
    hot_turn: float = 124.0
    hot_frames: float = 8.0
    hot_factor: float = 0.19
    warm_session: float = 490.0
    warm_turn: float = 50.0
    warm_factor: float = 0.26
    log_session: float = 130.0
    log_turn: float = 48.0
    log_factor: float = 0.18
    pointer: float = 95.0
    cold_session: float = 785.0
    cold_turn: float = 56.0
    cold_factor: float = 0.25
    pack: float = 32 * 2**20

    def hot(self, turns: float, text: float) -> float:
        """Return the bytes of a session in Redis.

        Args:
            turns: Its turns.
            text: Bytes of text in all of them.
        """
        kept = min(turns, self.hot_frames)
        return (
            self.hot_session
            + kept * self.hot_turn
            + text * kept / turns * self.hot_factor
        )

    def warm(self, turns: float, text: float) -> float:
        """Return the bytes of a sealed session, likewise."""
        return self.warm_session + turns * self.warm_turn + text * self.warm_factor

    def log(self, turns: float, text: float) -> float:
        """Return the bytes of the log for a session, likewise."""
        return self.log_session + turns * self.log_turn + text * self.log_factor

    def cold(self, turns: float, text: float) -> float:
        """Return the bytes of a session in packs, likewise."""
        return self.cold_session + turns * self.cold_turn + text * self.cold_factor


@dataclass(frozen=True, kw_only=True)
class Prices:
    """US dollars; a cloud's list prices, to be replaced by your own.

    Attributes:
        memory_gb_month: A gigabyte of managed Redis for a month.
        disk_gb_month: A gigabyte of fast disk for a month.
        object_gb_month: A gigabyte of object storage for a month.
        puts_1000: A thousand requests that write or list objects.
        gets_1000: A thousand requests that read.
    """

    memory_gb_month: float = 25.0
    disk_gb_month: float = 0.8
    object_gb_month: float = 0.023
    puts_1000: float = 0.005
    gets_1000: float = 0.0004


class TierCost(NamedTuple):
    """What one tier holds and costs.

    Attributes:
        tier: Its name.
        sessions: Held at a time.
        bytes: Taken at a time.
        objects: Of object storage.
        requests_a_month: To object storage.
        usd_a_month: For bytes and requests.
    """

    tier: str
    sessions: float
    bytes: float
    objects: int
    requests_a_month: float
    usd_a_month: float


DEFAULT_SIZES: Final = Sizes()
DEFAULT_PRICES: Final = Prices()


def cost(
    load: Load,
    *,
    table: PolicyTable = DEFAULT_TABLE,
    sizes: Sizes = DEFAULT_SIZES,
    prices: Prices = DEFAULT_PRICES,
) -> list[TierCost]:
    """Return what each tier holds and costs, once as much ends as begins.

    A model, not a promise: sessions are held in a tier for as long as the
    policy says, as if nobody read them again. The log counts as a tier of its
    own, for the days that warm holds a session (trim it below what is folded
    and verified).

    Example:
        >>> load = Load(sessions_a_day=10_000, turns_a_session=20, bytes_a_turn=200)
        >>> [(each.tier, round(each.usd_a_month, 2)) for each in cost(load)]
        [('hot', 0.01), ('warm', 0.3), ('log', 0.02), ('cold', 0.24)]
    """
    turns = load.turns_a_session
    text = turns * load.bytes_a_turn
    hot_days = table.active_s * table.hysteresis / _DAY_S
    warm_days = min(table.cooling_s * table.hysteresis / _DAY_S, load.kept_days)
    cold_days = max(load.kept_days - warm_days, 0.0)
    hot = load.sessions_a_day * hot_days
    warm = load.sessions_a_day * warm_days
    cold = load.sessions_a_day * cold_days
    hot_bytes = hot * sizes.hot(turns, text)
    warm_bytes = warm * sizes.warm(turns, text) + cold * sizes.pointer
    log_bytes = warm * sizes.log(turns, text)
    packed = sizes.cold(turns, text)
    cold_bytes = cold * packed
    # A pack that is written is read back; so is one that is rewritten, at most
    # once for each byte, and the manifest goes with each.
    packs_a_month = ceil(load.sessions_a_day * DAYS_A_MONTH * packed / sizes.pack)
    puts = 2 * 2 * packs_a_month
    gets = 2 * 2 * packs_a_month + 2 * load.cold_reads_a_day * DAYS_A_MONTH
    requests_usd = puts / 1000 * prices.puts_1000 + gets / 1000 * prices.gets_1000
    return [
        _in_place("hot", hot, hot_bytes, prices.memory_gb_month),
        _in_place("warm", warm, warm_bytes, prices.disk_gb_month),
        _in_place("log", warm, log_bytes, prices.disk_gb_month),
        TierCost(
            "cold",
            cold,
            cold_bytes,
            ceil(cold_bytes / sizes.pack),
            puts + gets,
            cold_bytes / _GB * prices.object_gb_month + requests_usd,
        ),
    ]


def _in_place(tier: str, sessions: float, size: float, gb_month: float) -> TierCost:
    return TierCost(tier, sessions, size, 0, 0.0, size / _GB * gb_month)
