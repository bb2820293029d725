"""Erase a session or a user on a cluster: at each owner, in packs, in topics."""

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from dataclasses import replace as with_settings
from typing import Final

from turnstate.agents.ports import Clock
from turnstate.schemas.errors import (
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from turnstate.schemas.ids import SessionName, checked_id
from turnstate.storage.cold.lease import Leases
from turnstate.storage.warm.erase_marks import JOB_BYTES, Mark, who_of
from turnstate.streams.documents import Document
from turnstate.streams.embedded.erase_plan import ErasePlan
from turnstate.streams.embedded.recordings import scrub_recordings
from turnstate.streams.embedded.scrub import Gone
from turnstate.streams.kafka.cluster_backups import replace_backups
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.cluster_tiers import ClusterTiers
from turnstate.streams.kafka.cold_place import cold_place, open_cold
from turnstate.streams.kafka.erase_changelog import (
    ChangelogRecords,
    unburied_records,
)
from turnstate.streams.kafka.erase_letters import Letters, letters_about, settle
from turnstate.streams.kafka.erase_owners import ErasingOwners
from turnstate.streams.kafka.erase_trim import trim
from turnstate.streams.kafka.erase_turns import erases, publish_and_wait, redactions
from turnstate.streams.kafka.member_reader import MemberReader
from turnstate.streams.kafka.not_covered import not_covered
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.erase_packs import Owner, scrub_packs
from turnstate.streams.tiers.leasing import TierLease

_ROUNDS: Final = 8
"""How often turns that come while a user is erased are looked for again."""


def erase_on_cluster(
    settings: Settings,
    cluster: ClusterSettings,
    clock: Clock,
    tenant: str,
    *,
    session: str | None = None,
    user: str | None = None,
    dry_run: bool = False,
    trim_log: bool = False,
    wait_s: float | None = None,
) -> Document:
    """Erase a session, or a user: what they own, and what they said elsewhere.

    Lives end, and turns are hidden, by turns of the log; once all are folded
    each owner takes the bytes out of its store, out of Redis and, by tombstones,
    out of the changelog; then packs are rewritten. Repeating it finishes what a
    crash has left, and changes nothing else.

    Args:
        settings: Whose folder of recordings is cleaned, too.
        cluster: Where everything is.
        clock: Tells the time.
        tenant: The tenant.
        session: The session; or else
        user: the user.
        dry_run: Say what would go; change nothing.
        trim_log: Delete turns, frames and letters from their topics, everybody's,
            up to what is folded, in the partitions that it is about.
        wait_s: How long an owner is asked; None = as readers do.

    Returns:
        As embedded; and `unreached`, how many places could not be cleaned, each
        of them named in `not_covered`, and what was `trimmed` of which topic.

    Raises:
        InvalidInputError: a name is empty, or not one of the two is given.
        NotFoundError: nothing of that session was ever here.
        CorruptDataError: a session or a pack cannot be read: repair it first.
        UnavailableError: no broker answers, or no worker folds.
    """
    checked_id(tenant, "tenant")
    if (session is None) == (user is None):
        raise InvalidInputError(
            "name either a session or a user", field="session", hint="one of the two"
        )
    if user is not None:
        checked_id(user, "user")
    keys = [] if session is None else [SessionName(tenant, session).key()]
    if session is not None:
        checked_id(session, "session")
    # The owners are asked, never a copy of what they have.
    with MemberReader(with_settings(cluster, redis=""), wait_s=wait_s) as reader:
        job = _Job(settings, cluster, clock, reader, ErasePlan(tenant, user), keys)
        job.look()
        if dry_run:
            job.count()
            return job.report(is_trimmed=trim_log)
        job.end_lives()
        job.clean()
        return job.report(is_trimmed=trim_log, trimmed=job.trim() if trim_log else {})


@dataclass
class _Job:
    settings: Settings
    cluster: ClusterSettings
    clock: Clock
    reader: MemberReader
    plan: ErasePlan
    keys: list[bytes]
    id: bytes = field(default_factory=lambda: os.urandom(JOB_BYTES))
    scanned: dict[str, int] = field(default_factory=dict[str, int])
    found: int = 0
    keys_destroyed: int = 0
    letters: Letters = field(default_factory=lambda: Letters(0, []))

    def __post_init__(self) -> None:
        self.owners = ErasingOwners(self.reader)

    # -- the plan ---------------------------------------------------------------------

    def look(self) -> None:
        """Find what it is about.

        Raises:
            NotFoundError: nothing of a session that was named was ever here.
        """
        plan = self.plan
        plan.ending, plan.spoken = [], {}
        self.owners.look(plan, self.keys)
        if self.keys and not plan.lives:
            if self.owners.unreached:
                raise UnavailableError(
                    next(iter(self.owners.unreached.values())), field="partition"
                )
            # Never folded; but refused turns may lie in the dead letters.
            plan.lives = dict.fromkeys(self.keys, 0)
            self.letters = asyncio.run(letters_about(self.cluster, self._gone()))
            if not self.letters.about:
                name = SessionName.from_key(self.keys[0])
                raise NotFoundError(
                    f"there is no session {name.session!r} of tenant {name.tenant!r}",
                    field="session",
                )

    def end_lives(self) -> None:
        """End lives and hide turns by the log, until nothing more comes.

        Raises:
            UnavailableError: turns keep on coming, or no worker folds.
        """
        plan = self.plan
        for _ in range(_ROUNDS):
            # Noted first: whoever erases the same user again finds the rest.
            self.owners.mark(plan, self._mark(is_done=False))
            ending = [(key, plan.lives[key]) for key in plan.ending]
            turns = [*erases(ending), *redactions(plan.spoken)]
            if not turns:
                return
            refused = asyncio.run(publish_and_wait(self.cluster, turns))
            if not self.keys:
                self.look()
            elif refused:
                raise UnavailableError(
                    "the turn that erases the session was refused",
                    hint="turnstate dead-letters list --profile cluster says why",
                    code="erase_refused",
                )
            else:
                return
        raise UnavailableError(
            f"{plan.user!r} keeps on talking while being erased, or turns that erase"
            " are refused",
            hint="turnstate dead-letters list; stop publishing their turns, then erase"
            " again",
        )

    # -- cleaning ---------------------------------------------------------------------

    def clean(self) -> None:
        """Take the bytes out of every place that can be cleaned."""
        owners, plan = self.owners, self.plan
        stubs = owners.rewrite(plan)
        gone = self._gone()._replace(stubs=stubs)
        redis, alive = owners.clear_hot(plan)
        records = self._records()
        owners.bury(records.unburied)
        packs = self._packs(dry_run=False)
        numbers = owners.homes({*plan.lives, *plan.rewritten})
        # Nothing of these lives is read any more, wherever a copy of it lies.
        self.keys_destroyed = owners.destroy_keys(plan, self.id)
        owners.purge(numbers, self.id)
        owners.remove_folders(numbers)
        backups = self._backups(numbers)
        self.letters = asyncio.run(letters_about(self.cluster, gone))
        asyncio.run(settle(self.cluster, self.letters.about))
        recordings = self._recordings(gone, dry_run=False)
        rows, found = owners.scan(plan)
        self.found = found + alive + packs[1]
        self.scanned = {
            **rows,
            "redis": redis,
            "changelog": records.seen,
            "dead_letters": self.letters.seen,
            "packs": packs[0],
            "backups": backups,
            "recordings": recordings[0],
        }
        if not self._unreached() and not self.found:
            owners.mark(plan, self._mark(is_done=True))

    def count(self) -> None:
        """Count what would go; change nothing."""
        gone = self._gone()
        records = self._records()
        packs = self._packs(dry_run=True)
        self.letters = asyncio.run(letters_about(self.cluster, gone))
        recordings = self._recordings(gone, dry_run=True)
        rows, found = self.owners.scan(self.plan)
        unburied = sum(map(len, records.unburied.values()))
        letters = len(self.letters.about)
        self.found = found + unburied + packs[1] + letters + recordings[1]
        self.scanned = {
            **rows,
            "changelog": records.seen,
            "dead_letters": self.letters.seen,
            "packs": packs[0],
            "recordings": recordings[0],
        }

    def trim(self) -> Document:
        """Delete from topics what is folded."""
        homes = self.owners.homes({*self.plan.lives, *self.plan.rewritten})
        numbers = {*homes, *(each.partition for each in self.letters.about)}
        return asyncio.run(trim(self.cluster, numbers, self.letters.about))

    def _records(self) -> ChangelogRecords:
        plan = self.plan
        numbers = self.owners.homes({*plan.lives, *plan.rewritten})
        rewritten = plan.rewritten.difference(plan.lives)
        return asyncio.run(
            unburied_records(self.cluster, numbers, plan.lives, rewritten)
        )

    def _packs(self, *, dry_run: bool) -> tuple[int, int]:
        """Clean the cold tier; return entries looked at, and those that are left."""
        if not cold_place(self.cluster):
            return 0, 0
        tiers = ClusterTiers(self.reader)
        owner = Owner(tiers.pointers, tiers.repoint, tiers.warm)
        now_ms = self.clock.now_ms
        try:
            size = self.settings.cold_pack_bytes
            packs = open_cold(self.cluster, self.clock, pack_bytes=size)
            holder = f"erase:{os.uname().nodename}:{os.getpid()}"
            lease = TierLease(Leases(packs.objects, os.urandom), packs, holder, now_ms)
            keys = {*self.plan.lives, *self.plan.rewritten}
            done = scrub_packs(packs, lease, keys, owner, dry_run=dry_run)
        except UnavailableError as error:
            self.owners.troubles[f"packs at {cold_place(self.cluster)}: {error}"] = None
            return 0, 0
        return done.seen, done.still

    def _backups(self, numbers: Iterable[int]) -> int:
        """Have the backups of partitions replaced, whose files held it; say how many.

        Those at the place of the settings; others are unknown.
        """
        reached = [at for at in numbers if at not in self.owners.unreached]
        where = self.cluster.backups
        report = replace_backups(self.reader, reached, where=where)
        for row in report["partitions"]:
            if row["status"] == "failed":
                why = row["error"]["message"]
                self.owners.troubles[
                    f"backups of partition {row['partition']}: {why}"
                ] = None
        return sum(row["status"] == "made" for row in report["partitions"])

    def _recordings(self, gone: Gone, *, dry_run: bool) -> tuple[int, int]:
        folder = self.settings.data / "recordings"
        seen, found, unread = scrub_recordings(folder, gone, dry_run=dry_run)
        self.owners.troubles |= dict.fromkeys(unread)
        return seen, found

    # -- the report -------------------------------------------------------------------

    def report(self, *, is_trimmed: bool, trimmed: Document | None = None) -> Document:
        """Return what was done, and what was not."""
        unreached = self._unreached()
        rest = not_covered(
            self.cluster,
            self.clock.now_ms(),
            letters=len(self.letters.about),
            is_trimmed=is_trimmed,
        )
        return {
            "sessions": self.plan.sessions,
            "rewritten": len(self.plan.rewritten),
            "turns": self.plan.turns,
            "scanned": self.scanned,
            "found_after": self.found,
            "keys_destroyed": self.keys_destroyed,
            "trimmed": trimmed or {},
            "unreached": len(unreached),
            "not_covered": [*unreached, *asyncio.run(rest)],
        }

    def _unreached(self) -> list[str]:
        owners = self.owners
        lost = [f"partition {at}: {why}" for at, why in owners.unreached.items()]
        return [*lost, *owners.troubles]

    def _gone(self) -> Gone:
        return Gone(self.plan.tenant, self.plan.lives, self.plan.user)

    def _mark(self, *, is_done: bool) -> Mark:
        who = who_of(self.plan.tenant, self.plan.user)
        return Mark(self.id, who, 0, is_done)
