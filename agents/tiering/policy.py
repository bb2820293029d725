"""Where a session belongs: a pure function of what is known of it, over one table."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from turnstate.agents.tiering.decay import THIRD_POINT, point_passed
from turnstate.agents.tiering.facts import SessionFacts, TierName
from turnstate.schemas.errors import InvalidInputError
from turnstate.storage.access import K, uses_within


class Stage(Enum):
    """The life of a session, by how long nothing was said in it."""

    ACTIVE = "active"
    COOLING = "cooling"
    ARCHIVED = "archived"
    DESTROYED = "destroyed"


class Kind(Enum):
    """What is to be done with a session."""

    STAY = "stay"
    PROMOTE = "promote"
    DEMOTE = "demote"
    JOINT_WRITE = "joint_write"
    EXPIRE = "expire"
    DESTROY = "destroy"


class Decision(NamedTuple):
    """What is to be done with one session, and why.

    Attributes:
        kind: `EXPIRE` takes it from view in every tier and leaves a mark;
            `DESTROY` then deletes its bytes. `JOINT_WRITE` brings warm up to
            what hot holds.
        reason: For people.
        to: The tier to go to, of `PROMOTE` and `DEMOTE`.
    """

    kind: Kind
    reason: str
    to: TierName | None = None


@dataclass(frozen=True, kw_only=True)
class PolicyTable:
    """All that can be set about tiering. Times in seconds, shares from 0 to 1.

    A session without a new turn for `active_s` cools, for `cooling_s` is
    archived, for `archived_s` is destroyed. Hot holds what is active, warm what
    cools, cold what is archived.

    Attributes:
        active_s: Until then a session is active.
        cooling_s: Until then it cools; from then on it is archived.
        archived_s: From then on it is destroyed; None = never, cold is the
            last stop.
        ttl_s: How long after its last operation a session lives that has no
            TTL of its own; None = for ever.
        k: How many uses are remembered of each session (LRU-K).
        window_s: Uses within it count for going up, and against going down.
        promote_uses: So many of them bring a session up by one tier; `k` of
            them from cold to hot.
        hysteresis: By what idle times and the window are longer on the way
            down than on the way up, so that nothing flaps; at least 1.
        minimum_residency_s: How long after a move a session stays, whatever
            comes, but for erasure and the end of its TTL.
        ended_factor: What `active_s` and `cooling_s` are multiplied by once the
            dialogue was ended.
        third_point: Part of a TTL that is left when hot and warm are written
            together.
        hot_high: Part of Redis' memory above which sessions are let go of.
        hot_low: Down to which they are.
        warm_high: Part of the disk above which sessions go to cold.
        warm_low: Down to which they do.
    """

    active_s: float = 15 * 60
    cooling_s: float = 24 * 3600
    archived_s: float | None = None
    ttl_s: float | None = None
    k: int = K
    window_s: float = 10 * 60
    promote_uses: int = 2
    hysteresis: float = 1.25
    minimum_residency_s: float = 5 * 60
    ended_factor: float = 0.25
    third_point: float = THIRD_POINT
    hot_high: float = 0.90
    hot_low: float = 0.80
    warm_high: float = 0.85
    warm_low: float = 0.75

    def __post_init__(self) -> None:
        end_s = self.cooling_s if self.archived_s is None else self.archived_s
        _check("active_s", self.active_s > 0, "above 0")
        _check("cooling_s", self.active_s <= self.cooling_s, "at least active_s")
        _check("archived_s", self.cooling_s <= end_s, "at least cooling_s, or none")
        _check("ttl_s", self.ttl_s is None or self.ttl_s > 0, "above 0, or none")
        _check("window_s", self.window_s > 0, "above 0")
        _check("promote_uses", 1 <= self.promote_uses <= self.k, "1 to k")
        _check("hysteresis", self.hysteresis >= 1, "at least 1")
        _check("minimum_residency_s", self.minimum_residency_s >= 0, "at least 0")
        _check("ended_factor", 0 < self.ended_factor <= 1, "above 0, at most 1")
        _check("third_point", 0 < self.third_point < 0.25, "above 0, below 0.25")
        _check("hot_low", 0 < self.hot_low <= self.hot_high <= 1, "at most hot_high")
        _check("warm_low", 0 < self.warm_low <= self.warm_high <= 1, "likewise")

    @property
    def hot_ttl_ms(self) -> int:
        """Return the TTL that a copy in hot is written with.

        Such that its third decay point comes when the policy lets it go: a
        copy that nobody looks after is gone a little later by itself.
        """
        return int(1000 * self.active_s * self.hysteresis / (1 - self.third_point))


def _check(name: str, holds: bool, what: str) -> None:
    if not holds:
        raise InvalidInputError(
            f"tiering: {name} does not fit the other settings", field=name, hint=what
        )


DEFAULT_TABLE: Final = PolicyTable()
"""What holds where nothing is set."""

_LONG_MS: Final = 10 * 365 * 86_400_000
"""Above that "for … more" says nothing: a pin without an end."""


def ttl_ms_of(facts: SessionFacts, table: PolicyTable) -> int | None:
    """Return the time to live of a session, None for ever."""
    if facts.ttl_ms is not None:
        return facts.ttl_ms
    return None if table.ttl_s is None else int(1000 * table.ttl_s)


def is_expired(facts: SessionFacts, now_ms: int, table: PolicyTable) -> bool:
    """Say whether a session must not be served any more; asked at every read."""
    ttl_ms = ttl_ms_of(facts, table)
    return facts.expired or (ttl_ms is not None and facts.idle_ms(now_ms) >= ttl_ms)


def stage(facts: SessionFacts, now_ms: int, table: PolicyTable) -> Stage:
    """Return where in its life a session is, by idle time and TTL alone."""
    idle_s = facts.idle_ms(now_ms) / 1000
    if is_expired(facts, now_ms, table) or (
        table.archived_s is not None and idle_s >= table.archived_s
    ):
        return Stage.DESTROYED
    factor = _factor(facts, table)
    if idle_s >= table.cooling_s * factor:
        return Stage.ARCHIVED
    return Stage.COOLING if idle_s >= table.active_s * factor else Stage.ACTIVE


def decide(facts: SessionFacts, now_ms: int, table: PolicyTable) -> Decision:
    """Say what is to be done with a session now. Pure: no clock, no chance.

    In this order: a lease holds it; a tombstone travels down to where bytes
    are left; a TTL that has run out ends it; a pin and the minimum residency
    hold it; then idle time and uses decide. Held by tests/property/test_policy.py:
    the longer idle, the further down; no way down and up again without a use.

    Example:
        >>> facts = SessionFacts(
        ...     key=b"k", incarnation=1, version=9, tier="hot", arrived_ms=0
        ... )
        >>> decide(facts, 3_600_000, DEFAULT_TABLE)
        Decision(kind=<Kind.DEMOTE: 'demote'>, reason='no turn for 1 h 0 min, hot \
holds 18 min 45 s', to='warm')
    """
    if facts.leased_until_ms > now_ms:
        return _stay("somebody reads it", facts.leased_until_ms - now_ms)
    if facts.tombstone:
        return _tombstone(facts)
    ended = _end_of_life(facts, now_ms, table)
    if ended is not None:
        return ended
    if facts.pinned_until_ms > now_ms:
        return _stay("it is pinned", facts.pinned_until_ms - now_ms)
    idle_s = facts.idle_ms(now_ms) / 1000
    if table.archived_s is not None and idle_s >= table.archived_s:
        return Decision(
            Kind.DESTROY,
            f"no turn for {told(idle_s)}, kept for {told(table.archived_s)}",
        )
    resident_ms = now_ms - facts.moved_at_ms
    rest_ms = int(1000 * table.minimum_residency_s) - resident_ms
    if facts.moved_at_ms and rest_ms > 0:
        return _stay("it has only just come here", rest_ms)
    return (
        _joint_write(facts, now_ms, table)
        or _down(facts, now_ms, table)
        or _up(facts, now_ms, table)
        or Decision(Kind.STAY, f"no turn for {told(idle_s)}: it belongs here")
    )


def under_pressure(facts: SessionFacts, now_ms: int, table: PolicyTable) -> Decision:
    """Say where a session goes if its tier must have room, whatever its age.

    What `decide` says where that makes room or takes no more of it; else one
    tier down, unless a lease, a pin, the minimum residency, an open tail or a
    version that only hot holds is in the way.
    """
    usual = decide(facts, now_ms, table)
    if usual.kind not in (Kind.STAY, Kind.PROMOTE) or facts.tier == "cold":
        return usual
    if facts.tombstone or facts.leased_until_ms > now_ms:
        return usual
    if facts.pinned_until_ms > now_ms:
        return usual
    residency_ms = 1000 * table.minimum_residency_s
    if facts.moved_at_ms and now_ms - facts.moved_at_ms < residency_ms:
        return usual
    if facts.tier == "hot":
        if facts.is_ahead_of_warm():
            return Decision(Kind.JOINT_WRITE, "hot must have room, warm is behind it")
        return Decision(Kind.DEMOTE, "hot is above its high water mark", "warm")
    if not facts.sealed:
        return Decision(Kind.STAY, "it is not sealed yet")
    if facts.is_ahead_of_warm():
        return Decision(Kind.STAY, "warm is behind hot: only what it has can cool")
    return Decision(Kind.DEMOTE, "the disk is above its high water mark", "cold")


# -- what decides, one rule each -------------------------------------------------


def _tombstone(facts: SessionFacts) -> Decision:
    """Erasure waits for no pin and no residency, and is the first to go down."""
    if facts.tier == "hot":
        return Decision(Kind.DEMOTE, "it was erased: the tombstone goes down", "warm")
    if facts.tier == "warm" and facts.bytes_in("cold"):
        return Decision(Kind.DEMOTE, "it was erased, and cold still has it", "cold")
    return Decision(Kind.STAY, "it was erased: a tombstone keeps it from coming back")


def _end_of_life(
    facts: SessionFacts, now_ms: int, table: PolicyTable
) -> Decision | None:
    if facts.expired:
        return Decision(Kind.DESTROY, "its time to live has run out: bytes are left")
    ttl_ms = ttl_ms_of(facts, table)
    idle_ms = facts.idle_ms(now_ms)
    if ttl_ms is None or idle_ms < ttl_ms:
        return None
    return Decision(
        Kind.EXPIRE,
        f"no turn for {told(idle_ms / 1000)}, it lives for {told(ttl_ms / 1000)}",
    )


def _joint_write(
    facts: SessionFacts, now_ms: int, table: PolicyTable
) -> Decision | None:
    """Write hot and warm together before hot lets go, where warm is behind."""
    if facts.tier != "hot" or not facts.is_ahead_of_warm():
        return None
    idle_ms = facts.idle_ms(now_ms)
    times = [table.hot_ttl_ms, ttl_ms_of(facts, table)]
    for ttl_ms in times:
        if point_passed(idle_ms, ttl_ms, table.third_point) >= 3:
            return Decision(
                Kind.JOINT_WRITE,
                f"{table.third_point:.0%} of its time is left and warm is behind hot",
            )
    if _leaves_hot(facts, now_ms, table):
        return Decision(Kind.JOINT_WRITE, "hot lets it go and warm is behind hot")
    return None


def _leaves_hot(facts: SessionFacts, now_ms: int, table: PolicyTable) -> bool:
    hot_s = table.active_s * _factor(facts, table) * table.hysteresis
    if facts.idle_ms(now_ms) < 1000 * hot_s:
        return False
    return not _is_in_use(facts, now_ms, table, table.hysteresis)


def _down(facts: SessionFacts, now_ms: int, table: PolicyTable) -> Decision | None:
    if facts.tier == "cold" or _is_in_use(facts, now_ms, table, table.hysteresis):
        return None
    idle_s = facts.idle_ms(now_ms) / 1000
    factor = _factor(facts, table) * table.hysteresis
    warm_s = table.cooling_s * factor
    if idle_s >= warm_s and facts.sealed and not facts.is_ahead_of_warm():
        return Decision(
            Kind.DEMOTE,
            f"no turn for {told(idle_s)}, warm holds {told(warm_s)}",
            "cold",
        )
    hot_s = table.active_s * factor
    if facts.tier == "hot" and idle_s >= hot_s and not facts.is_ahead_of_warm():
        return Decision(
            Kind.DEMOTE, f"no turn for {told(idle_s)}, hot holds {told(hot_s)}", "warm"
        )
    return None


def _up(facts: SessionFacts, now_ms: int, table: PolicyTable) -> Decision | None:
    """Only uses since it came here count: none of those that a move ignored."""
    if facts.tier == "hot":
        return None
    since_ms = min(1000 * table.window_s, now_ms - facts.moved_at_ms)
    uses = uses_within(facts.accesses, now_ms, since_ms)
    if uses < table.promote_uses:
        return None
    reason = f"used {uses} times within {told(table.window_s)}"
    to: TierName = "hot" if facts.tier == "warm" or uses >= table.k else "warm"
    return Decision(Kind.PROMOTE, reason, to)


def _is_in_use(
    facts: SessionFacts, now_ms: int, table: PolicyTable, factor: float
) -> bool:
    uses = uses_within(facts.accesses, now_ms, 1000 * table.window_s * factor)
    return uses >= table.promote_uses


def _factor(facts: SessionFacts, table: PolicyTable) -> float:
    """Return by what idle times are multiplied: a dialogue that ended cools faster."""
    return table.ended_factor if facts.ended else 1.0


def _stay(why: str, rest_ms: float) -> Decision:
    if rest_ms > _LONG_MS:
        return Decision(Kind.STAY, why)
    return Decision(Kind.STAY, f"{why}, for {told(rest_ms / 1000)} more")


def told(seconds: float) -> str:
    """Return a time as people say it.

    Example:
        >>> told(4.2), told(75), told(7_500), told(200_000)
        ('4 s', '1 min 15 s', '2 h 5 min', '2 d 7 h')
    """
    whole = int(seconds)
    for unit, name, part, part_name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // part} {part_name}"
    return f"{whole} s"
