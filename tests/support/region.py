"""One region of the simulated world: a log, a store, an agent; no threads."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from support.faulty_store import FaultyStore
from support.memory_objects import MemoryObjects
from turnstate.agents.dead_letters import encode_dead_letter
from turnstate.agents.ports import Record
from turnstate.agents.session.agent import Folded, SessionAgent
from turnstate.agents.session.step import Answer
from turnstate.schemas.admission import Verdict
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.operation import Op
from turnstate.schemas.position import Position
from turnstate.storage.cold.collection import collect
from turnstate.storage.cold.compaction import compact, finish, live_bytes, plan
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.cold.sessions import ColdSessions
from turnstate.storage.cold.store import PackStore
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.moves.journal import COLD, WARM
from turnstate.storage.moves.owner import Copied, Moves, plan_of
from turnstate.storage.seal import sealed
from turnstate.storage.session_image import encode_image
from turnstate.storage.session_reader import operations
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.cold_rows import ColdHead
from turnstate.storage.warm.tables import DEAD
from turnstate.streams.clock import VirtualClock
from turnstate.streams.embedded.log import EmbeddedLog

HOT_BYTES = 20_000
"""So small that sessions are evicted by themselves, too."""

PACK_BYTES = 64 << 10
"""So small that there are several packs."""

Life = tuple[bytes, int]
"""A session key and an incarnation."""


class Refused(NamedTuple):
    """A record that was refused, once its refusal was durable."""

    raw: bytes
    offset: int
    code: str


class Region:
    """Do what the engine does, in the caller's thread and in its order.

    Attributes:
        fed: What a subscriber was told: life → (version, record)s in order.
        refused: What it refused, as the answers say.
    """

    def __init__(self, name: str, clock: VirtualClock) -> None:
        self.name = name
        self.clock = clock
        self.fed: dict[Life, list[tuple[int, bytes]]] = {}
        self.refused: list[Refused] = []
        self.store = FaultyStore(name)
        self.objects = MemoryObjects(clock.now_ms)
        self.packs = PackStore(
            self.objects,
            clock=clock.now_ms,
            chance=Random(name).randbytes,
            pack_bytes=PACK_BYTES,
        )
        self.cold = ColdSessions(self.packs)
        self.restarts = -1
        self.start()

    def start(self) -> None:
        """Begin with what is stored; the subscriber asks for what it missed."""
        self.restarts += 1
        store = self.store = FaultyStore(self.name, self.store.rows_by_table)
        store.below = self.cold
        self.log = EmbeddedLog(store)
        self.hot = MemoryTier(HOT_BYTES, frames_kept=0)
        self.agent = SessionAgent(
            store=store,
            hot=self.hot,
            graph=default_graph(),
            log_name=self.name,
            clock=self.clock,
            colder=store,
        )
        self.moves = Moves(store, self.hot)
        for key in self.sessions():
            self.catch_up(key)

    # -- writing -----------------------------------------------------------

    def handle(self, raws: Sequence[bytes]) -> tuple[list[Answer], Folded]:
        """Fold a batch, keep it, tell.

        Raises:
            CrashError: the store was told to fail; nobody got an answer.
        """
        begin, log = self.log.end, self.log
        records = [
            Record(raw, Position(log.identity, 0, begin + at), trusted=True)
            for at, raw in enumerate(raws)
        ]
        folded = self.agent.fold(records)
        self.commit(records, folded)
        refused = [
            Refused(record.raw, record.position.offset, answer.error.code)
            for record, answer in zip(records, folded.answers, strict=True)
            if answer.error is not None
            and not isinstance(answer.error, UnavailableError)
        ]
        self.refused += refused
        return folded.answers, folded

    def commit(self, records: Sequence[Record], folded: Folded) -> None:
        """Write everything in one batch; then show and tell it."""
        store, log = self.store, self.log
        batch = store.batch()
        kept = zip(records, folded.answers, strict=True)
        log.stage(
            batch,
            [
                b""
                if a.verdict is Verdict.DROPPED or isinstance(a.error, UnavailableError)
                else r.raw
                for r, a in kept
            ],
        )
        for change in folded.changes:
            batch.stage(change)
        number = int.from_bytes(store.last_key(DEAD) or b"\0", "big") + 1
        for letter in folded.dead:
            batch.put(DEAD, number.to_bytes(8, "big"), encode_dead_letter(letter))
            number += 1
        store.write(batch, sync=True)
        log.appended(len(records))
        self.agent.committed(folded)
        for change, ops in zip(folded.changes, folded.ops, strict=True):
            self.tell(change, ops)

    def tell(self, change: SessionChange, ops: Sequence[Op]) -> None:
        """Let the subscriber know of one session's change."""
        head = change.after.head
        feed = self.fed.setdefault((change.key, head.incarnation), [])
        first = head.version - len(ops) + 1
        feed += [(first + at, op.record) for at, op in enumerate(ops)]

    def catch_up(self, key: bytes) -> None:
        """Tell the subscriber what it missed of a session."""
        stored = self.stored(key)
        feed = self.fed.setdefault((key, stored.head.incarnation), [])
        have = feed[-1][0] if feed else 0
        feed += [
            (version, op.record)
            for version, op in operations(self.store, key, stored, have)
        ]

    def redeliver(self, from_offset: int) -> Folded:
        """Fold a part of the log again, as a log does that was not acknowledged."""
        records = [
            Record(raw, Position(self.log.identity, 0, offset))
            for offset, raw in self.log.read(from_offset)
        ]
        return self.agent.fold(records)

    def seal(self, key: bytes) -> None:
        """Seal a session, if it has frames."""
        stored = self.head(key)
        done = sealed(self.store, key, stored, default_graph(), self.clock.now_ms())
        if done is not None:
            batch = self.store.batch()
            batch.stage_seal(done)
            self.store.write(batch, sync=False)
            self.hot.replace(key, done.after)
            self.agent.tails.forget(key)

    def evict(self, key: bytes) -> None:
        """Let hot forget a session."""
        self.hot.drop(key)

    def cool(self, key: bytes) -> ColdHead | None:
        """Move a session to the cold tier, as a job and the owner do together.

        Returns:
            Its pointer; None where it stays after all.
        """
        self.seal(key)
        found = self.store.located([key])[0]
        if not isinstance(found, StoredHead) or found.is_tombstone:
            return None
        now_ms = self.clock.now_ms()
        plan = plan_of(key, found, WARM, COLD, now_ms)
        self.moves.plan([plan])
        (image,) = self.moves.images([plan], now_ms)
        if image is not None:
            (pointer,) = self.packs.write([encode_image(image)])
            self.moves.flip([Copied(plan, image.row, pointer)], now_ms)
        cold = self.store.located([key])[0]
        return cold if isinstance(cold, ColdHead) else None

    def wake(self, key: bytes) -> bool:
        """Bring a cold session back; say whether it came."""
        cold = self.store.located([key])[0]
        if not isinstance(cold, ColdHead):
            return False
        found, failed = self.store.images([key])
        assert not failed, failed
        return bool(self.moves.warm({key: (cold, found[key])}, self.clock.now_ms()))

    def pointers(self) -> dict[bytes, Pointer]:
        """Return where each cold session lies."""
        keys = self.sessions()
        located = zip(keys, self.store.located(keys), strict=True)
        return {key: at.pointer for key, at in located if isinstance(at, ColdHead)}

    def tidy(self) -> None:
        """Rewrite packs that are mostly dead, then delete what nobody needs."""
        packs, pointed = self.packs, self.pointers()
        names = plan(
            packs.manifests.latest(),
            live_bytes(iter(pointed.values())),
            now_ms=self.clock.now_ms(),
            min_age_ms=0,
            small_bytes=PACK_BYTES,
        )
        made = compact(packs, names, is_live=set(pointed.values()).__contains__)
        moved = {made.keys[old]: (old, new) for old, new in made.moved.items()}
        self.moves.repoint(moved)
        finish(packs, made)
        used = frozenset(each.pack for each in self.pointers().values())
        collect(packs, referenced=lambda: used, min_age_ms=0)

    def rebuilt(self) -> "Region":
        """Return a region that folded this one's whole log into an empty store."""
        other = Region(self.name, self.clock)
        batch = other.store.batch()
        batch.put("meta", b"log_identity", self.log.identity)
        other.store.write(batch, sync=True)
        other.start()
        raws = [raw for _, raw in self.log.read()]
        for begin in range(0, len(raws), 16):
            other.handle(raws[begin : begin + 16])
        return other

    # -- reading -----------------------------------------------------------

    def sessions(self) -> list[bytes]:
        """Return the keys of its sessions, tombstones too."""
        return list(self.store.keys())

    def head(self, key: bytes) -> StoredHead:
        """Return a session's newest head."""
        return self.hot.peek(key) or self.stored(key)

    def stored(self, key: bytes) -> StoredHead:
        """Return a session's head as the store has it."""
        return self.store.heads([key])[0] or StoredHead()

    def ops(self, key: bytes) -> list[Op]:
        """Return a session's operations in version order."""
        return [op for _, op in operations(self.store, key, self.stored(key))]
