"""What one run does: decisions picked within its budgets, and why others wait."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from turnstate.agents.tiering.facts import SessionFacts, TierName
from turnstate.agents.tiering.policy import (
    Decision,
    Kind,
    PolicyTable,
    decide,
    under_pressure,
)


@dataclass(frozen=True, kw_only=True)
class RunBudget:
    """What one run may use; None = without bound.

    Attributes:
        bytes_max: Bytes read from where they are and written to where they go.
        operations_max: Sessions touched.
        seconds_max: Time it is expected to take, by `Pace`.
    """

    bytes_max: int | None = None
    operations_max: int | None = None
    seconds_max: float | None = None


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast moves are; a runner puts in what it measured last time.

    Attributes:
        seconds_an_operation: Of a move, whatever its size.
        bytes_a_second: Of what is moved.
    """

    seconds_an_operation: float = 0.002
    bytes_a_second: float = 50e6

    def seconds(self, size: int) -> float:
        """Return about how long one move of so many bytes takes."""
        return self.seconds_an_operation + size / self.bytes_a_second


DEFAULT_PACE: Final = Pace()
"""A guess that is on the slow side."""


class Fill(NamedTuple):
    """How full a tier is.

    Attributes:
        used_bytes: What it takes now, whoever uses it.
        capacity_bytes: `maxmemory` of Redis, the size of the disk; 0 = unknown.
    """

    used_bytes: int
    capacity_bytes: int

    def share(self, more_bytes: int = 0) -> float:
        """Return which part is used, with so many bytes more."""
        if not self.capacity_bytes:
            return 0.0
        return (self.used_bytes + more_bytes) / self.capacity_bytes


class Item(NamedTuple):
    """A decision about one session.

    Attributes:
        facts: The session.
        decision: What is to be done.
        size: The bytes that this moves.
    """

    facts: SessionFacts
    decision: Decision
    size: int


class Skipped(NamedTuple):
    """A decision that has to wait.

    Attributes:
        item: The decision.
        why: For people; the same words for the same reason.
    """

    item: Item
    why: str


class Plan(NamedTuple):
    """What a run does, in this order.

    Attributes:
        items: The decisions, in the order in which they are carried out.
        skipped: Those that wait, and why.
        bytes: What is moved in all.
        seconds: About how long it takes.
    """

    items: list[Item]
    skipped: list[Skipped]
    bytes: int
    seconds: float

    def skipped_by_reason(self) -> dict[str, int]:
        """Return how many wait for each reason, the most frequent first."""
        return dict(Counter(each.why for each in self.skipped).most_common())


_NO_FILLS: Final[Mapping[TierName, Fill]] = {}

_TOMBSTONE: Final = 0
_ORDER: Final = {
    Kind.JOINT_WRITE: 1,  # has a deadline: hot lets go by itself
    Kind.EXPIRE: 2,
    Kind.DESTROY: 2,
    Kind.DEMOTE: 3,
    Kind.PROMOTE: 4,
}


def plan_run(
    sessions: Iterable[SessionFacts],
    now_ms: int,
    table: PolicyTable,
    *,
    budget: RunBudget,
    fills: Mapping[TierName, Fill] = _NO_FILLS,
    pace: Pace = DEFAULT_PACE,
) -> Plan:
    """Decide about sessions and pick what one run does. Pure.

    Tombstones go first, whatever else waits; then joint writes, expiry, ways
    down and ways up, the coldest first (of ways up the one used last). A tier
    above its high water mark lets go of sessions that would stay, the coldest
    first, until it is at its low one; nothing goes up into a tier that this
    would bring above its high mark. What does not fit any more is skipped and
    said so; smaller ones after it may still fit.

    Args:
        sessions: What is known of each.
        now_ms: The time.
        table: The policy.
        budget: What the run may use; never exceeded.
        fills: How full hot and warm are; one that is missing is not looked at.
        pace: How fast moves are.
    """
    items, staying = _decided(sessions, now_ms, table)
    for tier in ("hot", "warm"):
        items += _pressed(tier, items, staying, fills, now_ms, table)
    items.sort(key=_rank)
    return _picked(items, table, budget, fills, pace)


def moved_bytes(facts: SessionFacts, decision: Decision) -> int:
    """Return the bytes that a decision reads and writes elsewhere; 0 to delete."""
    if decision.kind in (Kind.STAY, Kind.EXPIRE, Kind.DESTROY) or facts.tombstone:
        return 0
    if decision.kind is Kind.DEMOTE and decision.to == "warm":
        # Warm has it already: hot only lets go.
        return 0
    if decision.kind is Kind.DEMOTE:
        return facts.bytes_in("warm") or facts.bytes_in(facts.tier)
    return facts.bytes_in(facts.tier)


def _decided(
    sessions: Iterable[SessionFacts], now_ms: int, table: PolicyTable
) -> tuple[list[Item], list[SessionFacts]]:
    items: list[Item] = []
    staying: list[SessionFacts] = []
    for facts in sessions:
        decision = decide(facts, now_ms, table)
        if decision.kind is not Kind.STAY:
            items.append(Item(facts, decision, moved_bytes(facts, decision)))
        if decision.kind in (Kind.STAY, Kind.PROMOTE) and facts.tier != "cold":
            staying.append(facts)
    return items, staying


def _pressed(
    tier: TierName,
    items: list[Item],
    staying: list[SessionFacts],
    fills: Mapping[TierName, Fill],
    now_ms: int,
    table: PolicyTable,
) -> list[Item]:
    """Return what else goes down because a tier is above its high water mark."""
    fill = fills.get(tier)
    high, low = _marks(tier, table)
    if fill is None or fill.share() <= high:
        return []
    excess = fill.used_bytes - int(low * fill.capacity_bytes)
    excess -= sum(_freed(item, tier) for item in items)
    found: list[Item] = []
    pressed: set[bytes] = set()
    for facts in sorted(staying, key=SessionFacts.used_ms):
        if excess <= 0:
            break
        if facts.tier != tier:
            continue
        decision = under_pressure(facts, now_ms, table)
        if decision.kind not in (Kind.DEMOTE, Kind.JOINT_WRITE):
            continue
        item = Item(facts, decision, moved_bytes(facts, decision))
        found.append(item)
        pressed.add(facts.key)
        excess -= _freed(item, tier)
    # What must go down does not also go up.
    items[:] = [item for item in items if item.facts.key not in pressed]
    return found


def _freed(item: Item, tier: TierName) -> int:
    """Return the bytes of a tier that a decision frees."""
    facts, (kind, _, to) = item.facts, item.decision
    if kind in (Kind.EXPIRE, Kind.DESTROY):
        return facts.bytes_in(tier)
    if kind is Kind.DEMOTE and (tier == "hot" or to == "cold"):
        return facts.bytes_in(tier)
    return 0


def _rank(item: Item) -> tuple[int, int, bytes]:
    kind = item.decision.kind
    order = _TOMBSTONE if item.facts.tombstone else _ORDER[kind]
    used_ms = item.facts.used_ms()
    return (order, -used_ms if kind is Kind.PROMOTE else used_ms, item.facts.key)


def _marks(tier: TierName, table: PolicyTable) -> tuple[float, float]:
    if tier == "hot":
        return table.hot_high, table.hot_low
    return table.warm_high, table.warm_low


def _picked(
    items: list[Item],
    table: PolicyTable,
    budget: RunBudget,
    fills: Mapping[TierName, Fill],
    pace: Pace,
) -> Plan:
    plan = Plan([], [], 0, 0.0)
    grown: Counter[TierName] = Counter()
    for item in items:
        seconds = pace.seconds(item.size)
        why = _does_not_fit(item, seconds, plan, budget) or _is_full(
            item, table, fills, grown
        )
        if why is not None:
            plan.skipped.append(Skipped(item, why))
            continue
        for tier in ("hot", "warm"):
            grown[tier] += _added(item, tier) - _freed(item, tier)
        plan.items.append(item)
        plan = plan._replace(
            bytes=plan.bytes + item.size, seconds=plan.seconds + seconds
        )
    return plan


def _does_not_fit(
    item: Item, seconds: float, plan: Plan, budget: RunBudget
) -> str | None:
    bytes_max, seconds_max = budget.bytes_max, budget.seconds_max
    if budget.operations_max is not None and len(plan.items) >= budget.operations_max:
        return "the run's operations are used up"
    if bytes_max is not None and plan.bytes + item.size > bytes_max:
        if item.size > bytes_max:
            return "it is larger than all bytes of a run"
        return "the run's bytes are used up"
    if seconds_max is not None and plan.seconds + seconds > seconds_max:
        return "the run's seconds are used up"
    return None


def _is_full(
    item: Item,
    table: PolicyTable,
    fills: Mapping[TierName, Fill],
    grown: Mapping[TierName, int],
) -> str | None:
    if item.decision.kind is not Kind.PROMOTE:
        return None
    for tier in ("hot", "warm"):
        fill, more = fills.get(tier), _added(item, tier)
        if fill is None or not more:
            continue
        if fill.share(grown.get(tier, 0) + more) > _marks(tier, table)[0]:
            return f"{tier} would be above its high water mark"
    return None


def _added(item: Item, tier: TierName) -> int:
    """Return the bytes that a way up adds to a tier; warm has all that hot has."""
    kind, _, to = item.decision
    if kind is not Kind.PROMOTE or (tier == "hot" and to != "hot"):
        return 0
    if tier == "warm" and item.facts.tier == "warm":
        return 0
    return item.size
