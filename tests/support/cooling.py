"""A store of real dialogues, the packs below it, and one clock that a test turns."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, Self

import msgspec

from support.dialogues import sample_sessions
from turnstate.agents.tiering.budget import RunBudget
from turnstate.agents.tiering.facts import TIERS
from turnstate.agents.tiering.policy import PolicyTable
from turnstate.schemas.ids import SessionName
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.cold.lease import Leases
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.cold.store import PACK_BYTES, PackStore
from turnstate.storage.moves.owner import At, HotTier, Moves
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.streams.clock import VirtualClock
from turnstate.streams.documents import Document
from turnstate.streams.embedded.cold import Tiering
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.job import TierJob
from turnstate.streams.tiers.leasing import TierLease
from turnstate.streams.tiers.opening import COLD_FOLDER
from turnstate.streams.tiers.packs import collect_garbage, compact_packs
from turnstate.streams.tiers.reads import READ_TWICE_MS

DAY_MS: Final = 86_400_000

Told = dict[tuple[str, str], tuple[str, list[Document]]]
"""(tenant, session) → its digest and all its turns."""


def real_lines(sessions: int, *, turns_max: int = 40) -> list[bytes]:
    """Return the turns of some real dialogues, spoken at the same time."""
    chosen = [
        turns
        for _, turns in sorted(sample_sessions().items())
        if 4 <= len(turns) <= turns_max
    ]
    step = max(1, len(chosen) // sessions)
    some = chosen[::step][:sessions]
    assert len(some) == sessions, "there are not so many samples"
    return [
        msgspec.json.encode(turns[at])
        for at in range(turns_max)
        for turns in some
        if at < len(turns)
    ]


def long_lines(turns: int, session: str = "long", size: int = 60) -> list[bytes]:
    """Return the turns of one session that goes on and on."""
    return [
        msgspec.json.encode(
            {
                "tenant": "t",
                "session": session,
                "turn_id": f"{session}-{number}",
                "role": "assistant" if number % 2 else "user",
                "content": f"turn {number} " + Random(number).randbytes(size).hex(),
            }
        )
        for number in range(turns)
    ]


class _Hotter:
    """Say of the sessions that another hot tier holds that they are hot."""

    def __init__(self, store: OwnedStore, hot: HotTier) -> None:
        self.store = store
        self.hot = hot

    def call(self, method: str, **arguments: Any) -> Any:
        answer = self.store.call(method, **arguments)
        if method == "tier_facts_of" and answer is not None and answer.tier == "warm":
            (held,) = self.hot.heads([answer.key])
            if held is not None:
                answer = msgspec.structs.replace(answer, tier="hot")
        return answer


class Cooling:
    """A store that this process owns, and jobs beside it.

    Args:
        folder: The data folder.
        objects: The cold tier; a directory in the data folder if None.
        clock: Of everything; the machine's present, standing still, if None.
        hot: A hot tier in place of the store's own, for moves alone.
        fields: Other settings.
    """

    def __init__(
        self,
        folder: Path,
        objects: ObjectStore | None = None,
        *,
        clock: VirtualClock | None = None,
        hot: HotTier | None = None,
        **fields: Any,
    ) -> None:
        self.clock = clock or VirtualClock(time.time_ns() // 1_000_000)
        fields = {"fsync": "never", "block_cache_bytes": 1 << 20, **fields}
        self.settings = Settings(data=folder, **fields)
        self.objects = objects or DirectoryObjects(folder / COLD_FOLDER)
        self.store = OwnedStore(self.settings, self.clock, serving=False)
        self.hot: HotTier = hot or self.store.engine.hot
        self.asked: Any = self.store if hot is None else _Hotter(self.store, hot)
        self.use(self.packs())

    def use(self, packs: PackStore, at: At | None = None) -> None:
        """Have the store read its cold sessions there; `at` is told each step."""
        store = self.store
        store.tiering.close()
        store.tiering = Tiering(store.engine, lambda: packs, self.clock.now_ms)
        store.tiering.moves = Moves(store.warm, self.hot, at=at)

    @property
    def moves(self) -> Moves:
        """Return the owner's part of every move."""
        return self.store.tiering.moves

    def release(self) -> None:
        """Let hot forget every session."""
        for name in self.names():
            self.hot.drop(name.key())

    def packs(self, objects: ObjectStore | None = None) -> PackStore:
        """Return a store of packs of its own, as another process has one."""
        return PackStore(
            objects or self.objects,
            clock=self.clock.now_ms,
            chance=Random(time.monotonic_ns()).randbytes,
            pack_bytes=self.settings.cold_pack_bytes or PACK_BYTES,
        )

    def lease(self, packs: PackStore, holder: str = "me") -> TierLease:
        """Return the lease, not held yet."""
        leases = Leases(packs.objects, Random(time.monotonic_ns()).randbytes)
        return TierLease(leases, packs, holder, self.clock.now_ms)

    def job(
        self,
        objects: ObjectStore | None = None,
        *,
        holder: str = "me",
        store: Any = None,
        table: PolicyTable | None = None,
        **more: Any,
    ) -> TierJob:
        """Return a job as `turnstate tiers` makes one."""
        packs = self.packs(objects)
        return TierJob(
            store or self.asked,
            packs,
            self.lease(packs, holder),
            table=table or PolicyTable(),
            now_ms=self.clock.now_ms,
            **more,
        )

    def cool(self, **more: Any) -> Document:
        """Run a job ten days from now: all goes to the cold tier."""
        at_ms = self.clock.now_ms() + 10 * DAY_MS
        return self.job(**more).run(RunBudget(), at_ms=at_ms).document()

    def compact(self, objects: ObjectStore | None = None) -> Document:
        """Compact, whatever the age of a pack."""
        packs = self.packs(objects)
        self.clock.advance(DAY_MS)
        return compact_packs(self.store, packs, self.lease(packs), min_age_ms=0)

    def collect(self, objects: ObjectStore | None = None) -> Document:
        """Collect garbage, whatever its age."""
        packs = self.packs(objects)
        self.clock.advance(DAY_MS)
        return collect_garbage(self.store, packs, self.lease(packs), min_age_ms=0)

    def publish(self, lines: Sequence[bytes]) -> None:
        """Publish turns that all have to be let in."""
        for answer in self.store.publish(lines):
            assert answer.error is None

    # -- what is there -----------------------------------------------------

    def names(self) -> list[SessionName]:
        """Return every session."""
        rows = self.store.sessions()
        return [SessionName(row["tenant"], row["session"]) for row in rows]

    def told(self) -> Told:
        """Return what readers are told of every session, and read all of it.

        So slowly that nothing comes back from the cold tier for it.
        """
        found: Told = {}
        for tenant, session in self.names():
            self.clock.advance(2 * READ_TWICE_MS)
            state = self.store.state(tenant, session)
            self.clock.advance(2 * READ_TWICE_MS)
            turns = self.store.turns(tenant, session, limit=100_000)["turns"]
            assert len(turns) == state["turn_count"]
            found[tenant, session] = (state["digest"], turns)
        return found

    def tiers(self) -> dict[str, int]:
        """Return how many sessions lie in each tier."""
        lies = [self.asked.call("tier_facts_of", key=n.key()) for n in self.names()]
        return {tier: sum(each.tier == tier for each in lies) for tier in TIERS}

    def cold(self) -> Mapping[bytes, ColdHead]:
        """Return the pointers."""
        keys = list(self.store.warm.keys())
        located = zip(keys, self.store.warm.located(keys), strict=True)
        return {key: at for key, at in located if isinstance(at, ColdHead)}

    def pack_names(self) -> set[str]:
        """Return the packs that lie there, in the manifest or not."""
        return {info.name for info in self.objects.list("packs/")}

    def unsaid(self) -> Iterator[str]:
        """Yield what is no longer needed and lies there all the same."""
        pointed = {each.pointer.pack for each in self.cold().values()}
        known = set(self.packs().manifests.latest().packs)
        yield from (f"{name} is in no manifest" for name in self.pack_names() - known)
        yield from (f"{name} is lost" for name in known - self.pack_names())
        yield from (f"nobody points to {name}" for name in known - pointed)
        yield from (f"{name} is pointed to, unknown" for name in pointed - known)
        left = self.store.call("tier_unfinished", before_ms=1 << 50)
        yield from (f"{plan.path} is planned" for plan in left)

    # -- the end -----------------------------------------------------------

    def close(self) -> None:
        """Let the store go."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
