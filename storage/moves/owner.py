"""The owner's part of a move: plan, hand out, flip, let go; in its thread alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.frames.header import DELTA, decode_header
from turnstate.storage.moves.journal import (
    COLD,
    HOT,
    WARM,
    Plan,
    pending,
    stage_done,
    stage_plan,
)
from turnstate.storage.session_image import SessionImage
from turnstate.storage.stored_head import StoredHead, encode_stored_head
from turnstate.storage.tier import SessionChange
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.cold_rows import ColdHead, cold_head, woken_image
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.storage.warm.tables import HEADS

At = Callable[[str], None]
"""Is told the step that begins; tests stop there."""

STEPS: Final = ("plan", "read", "write", "check", "flip", "done", "delete", "sweep")
"""The eight steps of a move (KIP-405 and SlateDB are where they come from)."""


class HotTier(Protocol):
    """What a move needs of the tier above: it is a cache, never the only copy."""

    def heads(self, keys: Sequence[bytes]) -> list[StoredHead | None]:
        """Return the heads that it holds."""
        ...

    def commit(self, changes: Sequence[SessionChange]) -> None:
        """Take up sessions."""
        ...

    def drop(self, key: bytes) -> None:
        """Forget a session."""
        ...


class Copied(NamedTuple):
    """A session whose copy is in the cold tier and verified.

    Attributes:
        plan: The move.
        row: The row of its head as it was copied; one that differs has moved on.
        pointer: Where the copy lies.
    """

    plan: Plan
    row: bytes
    pointer: Pointer


class Moves:
    """Carry out moves in the store that says where sessions are.

    Pointer, rows and journal lie in one RocksDB, so steps five to seven of a
    move to the cold tier, or back, are one write: no crash comes between.

    Args:
        store: The store.
        hot: The tier above it.
        write: Makes a batch durable; in a cluster its changelog first.
        batch: Makes an empty one.
        at: Told each step.
    """

    def __init__(
        self,
        store: WarmStore,
        hot: HotTier,
        *,
        write: Callable[[Batch], None] | None = None,
        batch: Callable[[], Batch] | None = None,
        at: At | None = None,
    ) -> None:
        self._store = store
        self._hot = hot
        self._write = write or self._written
        self._batch = batch or store.batch
        self._at = at or _nothing
        self._leased: dict[bytes, int] = {}

    # -- leases -------------------------------------------------------------

    def lease(self, key: bytes, until_ms: int) -> None:
        """Keep a session where it is until then; reading it goes on for long."""
        self._leased[key] = max(until_ms, self._leased.get(key, 0))

    def leased_until_ms(self, key: bytes) -> int:
        """Return until when a session stays, 0 where nobody asked for it."""
        return self._leased.get(key, 0)

    def _is_leased(self, key: bytes, now_ms: int) -> bool:
        until_ms = self._leased.get(key, 0)
        if until_ms <= now_ms:
            self._leased.pop(key, None)
            return False
        return True

    # -- down to the cold tier -------------------------------------------------

    def plan(self, plans: Sequence[Plan]) -> None:
        """Journal moves; the same one twice is one."""
        self._at("plan")
        batch = self._batch()
        for plan in plans:
            stage_plan(batch, plan)
        self._write(batch)

    def images(self, plans: Sequence[Plan], now_ms: int) -> list[SessionImage | None]:
        """Return what goes to the cold tier, None for what stays after all.

        A session stays that has moved on, is leased, or is not sealed.
        """
        self._at("read")
        found = self._store.located([plan.key for plan in plans])
        images: list[SessionImage | None] = []
        for plan, stored in zip(plans, found, strict=True):
            if (
                isinstance(stored, StoredHead)
                and _stands(stored) == (plan.incarnation, plan.version)
                and stored.sealed_version == plan.version
                and not self._is_leased(plan.key, now_ms)
            ):
                row = self._store.stored(HEADS, plan.key)
                assert row is not None, "it was just read"
                images.append(self._store.image(plan.key, stored, row))
            else:
                images.append(None)
        return images

    def flip(self, copied: Sequence[Copied], now_ms: int) -> list[Plan]:
        """Point to verified copies and let the rows go: all or none of them.

        Returns:
            The moves that were made; the copies of the others are garbage.
        """
        self._at("flip")
        found = self._store.located([each.plan.key for each in copied])
        batch = self._batch()
        made: list[Plan] = []
        for each, stored in zip(copied, found, strict=True):
            stage_done(batch, each.plan)
            if (
                not isinstance(stored, StoredHead)
                or self._store.stored(HEADS, each.plan.key) != each.row
                or self._is_leased(each.plan.key, now_ms)
            ):
                continue
            # Hot first: whoever finds nothing there follows the pointer.
            self._hot.drop(each.plan.key)
            image = self._store.image(each.plan.key, stored, each.row)
            batch.stage_cooled(image, cold_head(stored, each.pointer, now_ms))
            made.append(each.plan)
        self._at("done")
        self._write(batch)
        self._at("delete")
        return made

    def give_up(self, plans: Iterable[Plan]) -> None:
        """Strike moves out of the journal that are not going to be made."""
        batch = self._batch()
        for plan in plans:
            stage_done(batch, plan)
        self._write(batch)

    # -- up again ---------------------------------------------------------------

    def warm(
        self, fetched: Mapping[bytes, tuple[ColdHead, SessionImage]], now_ms: int
    ) -> list[bytes]:
        """Put cold sessions' rows back, but where a pointer has changed.

        Args:
            fetched: key → (the pointer as it was read, what lay there).
            now_ms: Since when they are warm: they stay a while.

        Returns:
            The keys that came back, all by one write; their images in packs are
            garbage then.
        """
        self._at("write")
        keys = list(fetched)
        batch = self._batch()
        made: list[bytes] = []
        for key, found in zip(keys, self._store.located(keys), strict=True):
            cold, image = fetched[key]
            if isinstance(found, ColdHead) and found == cold:
                batch.stage_image(woken_image(image, now_ms))
                made.append(key)
        self._at("flip")
        if made:
            self._write(batch)
        self._at("done")
        return made

    def repoint(self, moved: Mapping[bytes, tuple[Pointer, Pointer]]) -> list[bytes]:
        """Point to the copies that a compaction made, where the old one stands.

        Args:
            moved: key → (old pointer, new pointer).

        Returns:
            The keys whose pointer is the new one now.
        """
        keys = list(moved)
        batch = self._batch()
        made: list[bytes] = []
        for key, found in zip(keys, self._store.located(keys), strict=True):
            before, after = moved[key]
            if isinstance(found, ColdHead) and found.pointer == before:
                batch.stage_pointed(key, found, _pointed(found, after))
                made.append(key)
        if made:
            self._write(batch)
        return made

    # -- between hot and warm -----------------------------------------------------

    def release(self, plans: Sequence[Plan], now_ms: int) -> list[Plan]:
        """Let hot forget sessions that warm holds at least as new.

        Returns:
            Those that hot let go; a newer state, or a lease, keeps one there.
        """
        self._at("read")
        keys = [plan.key for plan in plans]
        held, stored = self._hot.heads(keys), self._store.located(keys)
        self._at("check")
        made = [
            plan
            for plan, above, below in zip(plans, held, stored, strict=True)
            if above is not None
            and isinstance(below, StoredHead)
            and _stands(below) >= _stands(above) == (plan.incarnation, plan.version)
            and not self._is_leased(plan.key, now_ms)
        ]
        for plan in made:
            self._at("delete")
            self._hot.drop(plan.key)
        self._at("done")
        return made

    def fill(self, plans: Sequence[Plan]) -> list[Plan]:
        """Put the heads of warm sessions into hot; return those that it holds."""
        self._at("read")
        keys = [plan.key for plan in plans]
        changes: list[SessionChange] = []
        for plan, stored in zip(plans, self._store.located(keys), strict=True):
            if isinstance(stored, StoredHead) and _stands(stored) == (
                plan.incarnation,
                plan.version,
            ):
                row = encode_stored_head(stored)
                frame = self._last_frame(plan.key, stored)
                changes.append(SessionChange(plan.key, stored, stored, row, frame))
        self._at("write")
        self._hot.commit(changes)
        self._at("check")
        made = [
            plan
            for plan, held in zip(plans, self._hot.heads(keys), strict=True)
            if held is not None and _stands(held) == (plan.incarnation, plan.version)
        ]
        self._at("done")
        return made

    def _last_frame(self, key: bytes, stored: StoredHead) -> bytes | None:
        """Return what leads to a head, where it can be read without company.

        Redis keeps no head without a body.
        """
        incarnation, version = _stands(stored)
        for frame in self._store.frames(key, incarnation, version - 1):
            header = decode_header(frame)
            if header.to_version == version and not header.flags & DELTA:
                return frame
        return None

    # -- the sweeper ----------------------------------------------------------------

    def unfinished(self, before_ms: int) -> list[Plan]:
        """Return the moves that were planned before a moment and are not done."""
        self._at("sweep")
        return [plan for plan in pending(self._store) if plan.planned_ms < before_ms]

    def _written(self, batch: Batch) -> None:
        self._store.write(batch, sync=True)


def plan_of(
    key: bytes, stored: StoredHead, source: str, target: str, now_ms: int
) -> Plan:
    """Return the plan to move a session as it stands."""
    return Plan(key, *_stands(stored), source, target, now_ms)


def _pointed(cold: ColdHead, pointer: Pointer) -> ColdHead:
    return ColdHead(
        pointer,
        cold.digest,
        cold.turn_count,
        cold.text_bytes,
        cold.arrived_ms,
        cold.cooled_ms,
        cold.position,
        cold.owner,
    )


def _stands(stored: StoredHead) -> tuple[int, int]:
    return (stored.head.incarnation, stored.head.version)


def _nothing(step: str) -> None:
    del step


__all__ = [
    "COLD",
    "HOT",
    "STEPS",
    "WARM",
    "Copied",
    "HotTier",
    "Moves",
    "Plan",
    "plan_of",
]
