"""One run of a tier job: sweep what an earlier one left, plan, copy, flip, report."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from turnstate.agents.tiering.budget import Fill, Item, RunBudget, plan_run
from turnstate.agents.tiering.budget import Plan as RunPlan
from turnstate.agents.tiering.facts import SessionFacts, TierName
from turnstate.agents.tiering.policy import Decision, Kind, PolicyTable
from turnstate.schemas.errors import FencedError, NotFoundError, UnavailableError
from turnstate.storage.cold.store import PackStore
from turnstate.storage.moves.journal import COLD, HOT, WARM, Plan
from turnstate.storage.moves.owner import Copied
from turnstate.storage.session_image import EncodedImage, decode_front
from turnstate.streams.tiers.leasing import TierLease
from turnstate.streams.tiers.report import Report

SWEEP_AFTER_MS: Final = 3_600_000
"""A move that is not done an hour after it was planned is a dead job's."""

FLIP_BYTES: Final = 256 << 20
"""Copied before pointers are flipped: what a crash makes garbage of at most."""

EXPIRED_AT_ONCE: Final = 500
"""Sessions that have expired and go together."""

LADDER: Final[tuple[TierName, ...]] = ("hot", "warm", "cold")
"""The tiers from the top down."""


class Store(Protocol):
    """Whoever answers for a store by the names of its methods."""

    def call(self, method: str, **arguments: Any) -> Any:
        """Perform a method by name."""
        ...


class TierJob:
    """Move sessions as the policy says; safe to run beside another of its kind.

    A job never opens the store: it asks the owner, who alone changes where a
    session is. It writes the packs, under a lease.

    Args:
        store: Answers for the store.
        packs: The cold tier.
        lease: Its lease.
        table: The policy.
        now_ms: Tells the time.
        progress: Told how many of how many sessions are done.
    """

    def __init__(
        self,
        store: Store,
        packs: PackStore,
        lease: TierLease,
        *,
        table: PolicyTable,
        now_ms: Callable[[], int],
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.store = store
        self.packs = packs
        self._lease = lease
        self._table = table
        self._now_ms = now_ms
        self._progress = progress or _untold
        self._done = 0

    # -- runs -----------------------------------------------------------------

    def run(
        self,
        budget: RunBudget,
        *,
        at_ms: int | None = None,
        dry_run: bool = False,
    ) -> Report:
        """Do what the policy says of every session, within budgets.

        Args:
            budget: What the run may use.
            at_ms: Take this as the present for the policy; the clock's if None.
            dry_run: Plan and report only.

        Raises:
            UnavailableError: the store or the cold tier is away, or another
                job holds the lease (code `leased`).
        """
        report = Report(dry_run=dry_run)
        over = _deadline(budget.seconds_max)
        with _told(report):
            if not dry_run:
                self._sweep(report, self._now_ms())
            present_ms = self._now_ms() if at_ms is None else at_ms
            facts: Iterator[SessionFacts] = self.store.call("tier_facts")
            full: dict[TierName, list[int]] = self.store.call("tier_fills")
            planned = plan_run(
                facts,
                present_ms,
                self._table,
                budget=budget,
                fills={tier: Fill(*each) for tier, each in full.items()},
            )
            report.skipped.update(planned.skipped_by_reason())
            self._carry_out(planned, report, over)
        return report

    def move(self, key: bytes, to: TierName, *, dry_run: bool = False) -> Report:
        """Move one session to a tier, whatever the policy says of it.

        Raises:
            NotFoundError: there is no such session.
        """
        report = Report(dry_run=dry_run)
        facts: SessionFacts | None = self.store.call("tier_facts_of", key=key)
        if facts is None or facts.tombstone:
            raise NotFoundError("there is no such session", field="session")
        if facts.tier != to:
            item = Item(facts, _asked_for(facts, to), facts.bytes_in(facts.tier))
            with _told(report):
                self._carry_out(RunPlan([item], [], 0, 0.0), report, _deadline(None))
        return report

    def sweep(self, *, at_ms: int | None = None, dry_run: bool = False) -> Report:
        """Finish, or give up, what dead jobs have left in the journal.

        Args:
            at_ms: Take this as the present; the clock's if None.
            dry_run: Only count what is left.
        """
        report = Report(dry_run=dry_run)
        with _told(report):
            self._sweep(report, self._now_ms() if at_ms is None else at_ms)
        return report

    # -- inside -----------------------------------------------------------------

    def _sweep(self, report: Report, present_ms: int) -> None:
        before_ms = present_ms - SWEEP_AFTER_MS
        left: list[Plan] = self.store.call("tier_unfinished", before_ms=before_ms)
        report.swept = len(left)
        if report.dry_run:
            return
        cooling = [plan for plan in left if plan.path == f"{WARM}>{COLD}"]
        others = [plan for plan in left if plan.path != f"{WARM}>{COLD}"]
        if cooling:
            with self._lease.held():
                self._cool(cooling, report)
        if others:
            self.store.call("tier_give_up", plans=others)

    def _carry_out(
        self, planned: RunPlan, report: Report, over: Callable[[], bool]
    ) -> None:
        plans = [plan for item in planned.items for plan in self._plans(item)]
        if report.dry_run:
            for plan in plans:
                report.note(plan, plan.size)
            for item in _expiring(planned.items):
                report.note(self._gone(item), item.size)
            return
        self._all_of(plans, HOT, WARM, "tier_release", report)
        waking = [plan for plan in plans if plan.path == f"{COLD}>{WARM}"]
        if waking:
            came = set(self.store.call("tier_warm", keys=[plan.key for plan in waking]))
            for plan in waking:
                if plan.key in came:
                    report.note(plan, plan.size)
            self._step(len(waking))
        self._all_of(plans, WARM, HOT, "tier_fill", report)
        cooling = [plan for plan in plans if plan.path == f"{WARM}>{COLD}"]
        if cooling:
            with self._lease.held():
                for part in _parts(cooling):
                    if over():
                        report.skipped["the time of this run is up"] += len(part)
                        continue
                    self.store.call("tier_plan", plans=part)
                    self._cool(part, report)
        self._expire(planned.items, report)

    def _plans(self, item: Item) -> list[Plan]:
        """Return the moves, one tier at a time, that a decision comes to."""
        facts, decision = item.facts, item.decision
        if decision.to is None:
            return []
        begin, end = LADDER.index(facts.tier), LADDER.index(decision.to)
        step = 1 if end > begin else -1
        now_ms = self._now_ms()
        return [
            Plan(
                facts.key,
                facts.incarnation,
                facts.version,
                LADDER[at],
                LADDER[at + step],
                now_ms,
                decision.reason,
                item.size,
            )
            for at in range(begin, end, step)
        ]

    def _all_of(
        self,
        plans: Sequence[Plan],
        source: str,
        target: str,
        method: str,
        report: Report,
    ) -> None:
        path = f"{source}>{target}"
        mine = [plan for plan in plans if plan.path == path]
        if not mine:
            return
        made = set(self.store.call(method, plans=mine))
        for plan in mine:
            if plan.id in made:
                # Hot is a copy: nothing is written when it lets go.
                report.note(plan, 0)
        self._step(len(mine))

    def _cool(self, plans: Sequence[Plan], report: Report) -> None:
        """Copy sessions into packs, then have the owner point there."""
        by_id = {plan.id: plan for plan in plans}
        taken: list[tuple[Plan, bytes, int]] = []
        stayed: list[Plan] = []

        def going() -> Iterator[EncodedImage]:
            images: Iterable[tuple[bytes, EncodedImage | None]] = self.store.call(
                "tier_images", plans=list(plans)
            )
            for plan_id, image in images:
                plan = by_id[plan_id]
                if image is None:
                    stayed.append(plan)
                    report.skipped["it has changed since it was planned"] += 1
                    continue
                self._lease.keep()
                front, _ = decode_front(image.data)
                taken.append((plan, front.row, len(image.data)))
                yield image

        pointers = self.packs.write(going())
        copied = [
            Copied(plan, row, pointer)
            for (plan, row, _), pointer in zip(taken, pointers, strict=True)
        ]
        made = set(self.store.call("tier_flip", copied=copied, token=self._lease.token))
        if stayed:
            self.store.call("tier_give_up", plans=stayed)
        for plan, _, size in taken:
            if plan.id in made:
                report.note(plan, size)
            else:
                report.skipped["it has changed while it was copied"] += 1
        self._step(len(plans))

    def _expire(self, items: Sequence[Item], report: Report) -> None:
        """Have the owner let go of what has expired, archived before if it is to be.

        A part at a time: what went before a failure has gone, and is told.
        """
        over = _expiring(items)
        for begin in range(0, len(over), EXPIRED_AT_ONCE):
            part = over[begin : begin + EXPIRED_AT_ONCE]
            try:
                made = self.store.call(
                    "tier_expire",
                    keys=[item.facts.key for item in part],
                    versions=[item.facts.version for item in part],
                )
            except UnavailableError as error:
                report.skipped[str(error)] += len(over) - begin
                return
            report.archived += made["archived"]
            for place, item in enumerate(part):
                if place in made["gone_on"]:
                    report.skipped["it has changed since it was planned"] += 1
                else:
                    report.note(self._gone(item), item.size)
            self._step(len(part))

    def _gone(self, item: Item) -> Plan:
        """Return what reports say of a session that goes for good."""
        facts, why = item.facts, item.decision.reason
        stood = (facts.key, facts.incarnation, facts.version, facts.tier)
        return Plan(*stood, "nowhere", self._now_ms(), why)

    def _step(self, count: int) -> None:
        self._done += count
        self._progress(self._done)


def _expiring(items: Sequence[Item]) -> list[Item]:
    kinds = (Kind.EXPIRE, Kind.DESTROY)
    return [item for item in items if item.decision.kind in kinds]


def _asked_for(facts: SessionFacts, to: TierName) -> Decision:
    down = LADDER.index(to) > LADDER.index(facts.tier)
    return Decision(Kind.DEMOTE if down else Kind.PROMOTE, "somebody asked for it", to)


def _parts(plans: Sequence[Plan]) -> Iterator[list[Plan]]:
    """Yield plans in parts of which a crash makes little garbage."""
    part: list[Plan] = []
    size = 0
    for plan in plans:
        part.append(plan)
        size += plan.size
        if size >= FLIP_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


@contextmanager
def _told(report: Report) -> Generator[None]:
    """Note how long a run takes, and that another job took over in its middle."""
    began = time.monotonic()
    try:
        yield
    except FencedError:
        report.fenced = True
    finally:
        report.seconds = time.monotonic() - began


def _deadline(seconds_max: float | None) -> Callable[[], bool]:
    began = time.monotonic()

    def over() -> bool:
        return seconds_max is not None and time.monotonic() - began >= seconds_max

    return over


def _untold(done: int) -> None:
    del done
