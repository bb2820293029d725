"""Archive batches of records: all of a batch or none, kept for as long as they must."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    NotFoundError,
    TurnstateError,
    UnavailableError,
)
from turnstate.storage.archive_manifest import (
    BATCHES,
    COLLECTED,
    Batch,
    Change,
    Manifest,
    Part,
    checked_batch_id,
    expired,
    hash_of,
    holds,
    part_names,
    with_batch,
)
from turnstate.storage.cold.numbered import NumberedObjects
from turnstate.storage.cold.objects import ObjectStore

TRANSACTIONS: Final = "transactions/"
"""Where the numbered manifests lie; the greatest says what there is."""

MIN_AGE_MS: Final = 3_600_000
"""Parts in no manifest are swept when they are older: a younger one may belong
to a batch that is being written."""

KEPT: Final = 16
"""Manifests that stay behind the newest one."""

_TRIES: Final = 64
_TOKEN_BYTES: Final = 8
_RECENT: Final = 64


class Swept(NamedTuple):
    """What a sweep removed."""

    parts: int
    manifests: int


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(Manifest)


class Archive:
    """Keep batches in an object store; each is there whole or not at all.

    Parts are written first, then a manifest with the next number is created:
    who creates it first has committed, who comes second looks again. Readers
    follow the newest manifest. Methods block; several processes may write.

    Args:
        objects: Where to.
        chance: Gives so many random bytes.
    """

    def __init__(self, objects: ObjectStore, chance: Callable[[int], bytes]) -> None:
        self.objects = objects
        self._chance = chance
        self._numbered = NumberedObjects(objects, TRANSACTIONS)

    # -- writing ------------------------------------------------------------

    def put(
        self,
        batch_id: str,
        parts: Sequence[bytes],
        *,
        records: int,
        now_ms: int,
        expires_ms: int | None = None,
    ) -> bool:
        """Archive a batch; False where it is there already.

        On any failure the parts are deleted again; what a crash leaves is
        swept. A batch with the same id is not archived twice, so that whoever
        does not know whether it was may simply do it again.

        Args:
            batch_id: Names it.
            parts: Its bytes; no part is empty.
            records: How many records they hold.
            now_ms: The present.
            expires_ms: When it may go; None = never.

        Raises:
            InvalidInputError: the id has other characters than names have.
            ChecksumError: what was read back is not what was sent.
            UnavailableError: the store is away, or the batch took too long
                (code `collected`): archive it again.
        """
        checked_batch_id(batch_id)
        if batch_id in self.manifest().batches:
            return False
        attempt = self._chance(_TOKEN_BYTES).hex()
        batch = Batch(
            attempt,
            [Part(len(data), hash_of(data)) for data in parts],
            records,
            now_ms,
            expires_ms,
        )
        names = part_names(batch_id, batch)
        try:
            for name, data in zip(names, parts, strict=True):
                self._write(name, data)
        except TurnstateError:
            self._roll_back(names)
            raise
        committed = self._committed(batch_id, batch)
        if committed:
            return True
        self._roll_back(names)
        return False

    def expire(self, now_ms: int) -> list[str]:
        """Remove the batches whose time is over; say which.

        They leave the manifest first: nobody reads half of one.

        Raises:
            UnavailableError: the store is away; repeat it.
        """
        gone: dict[str, Batch] = {}

        def change(manifest: Manifest) -> Manifest:
            gone.clear()
            over = expired(manifest, now_ms)
            gone.update((each, manifest.batches[each]) for each in over)
            kept = {k: v for k, v in manifest.batches.items() if k not in gone}
            return replace(manifest, batches=kept)

        self._commit(change)
        for batch_id, batch in gone.items():
            self.objects.delete(part_names(batch_id, batch))
        return sorted(gone)

    def remove(self, batch_id: str) -> bool:
        """Remove a batch at once, whatever its time; False where there is none.

        Raises:
            UnavailableError: the store is away; repeat it.
        """
        found = self.manifest().batches.get(batch_id)
        self._commit(
            lambda manifest: replace(
                manifest,
                batches={k: v for k, v in manifest.batches.items() if k != batch_id},
            )
        )
        if found is not None:
            self.objects.delete(part_names(batch_id, found))
        return found is not None

    def sweep(self, now_ms: int, *, min_age_ms: int = MIN_AGE_MS) -> Swept:
        """Remove what crashed writers have left, and outdated manifests.

        The boundary is committed before anything goes: a writer that is still
        at a batch which it began before it cannot commit that batch any more.

        Args:
            now_ms: The present.
            min_age_ms: Younger parts stay.

        Raises:
            UnavailableError: the store is away; repeat it.
        """
        oldest_ms = now_ms - min_age_ms
        listed = list(self.objects.list(BATCHES))
        manifest = self._commit(
            lambda manifest: replace(
                manifest, boundary_ms=max(manifest.boundary_ms, oldest_ms)
            )
        )
        known = {
            name
            for batch_id, batch in manifest.batches.items()
            for name in part_names(batch_id, batch)
        }
        parts = [
            info.name
            for info in listed
            if info.name not in known and info.modified_ms < oldest_ms
        ]
        self.objects.delete(parts)
        numbers = [number for number, _ in self._numbered.infos()]
        outdated = [self._numbered.name(number) for number in numbers[: -KEPT - 1]]
        self.objects.delete(outdated)
        return Swept(len(parts), len(outdated))

    # -- reading --------------------------------------------------------------

    def manifest(self) -> Manifest:
        """Return what is in the archive: one list, one read.

        Raises:
            UnavailableError: the store is away.
            CorruptDataError: the newest manifest is damaged.
        """
        for _ in range(_TRIES):
            number = self._numbered.newest(-1)
            if number is None:
                return Manifest()
            try:
                body = self._numbered.read(number)
            except NotFoundError:
                continue  # swept meanwhile: there are newer ones
            try:
                return _decoder.decode(body)
            except (msgspec.MsgspecError, ValueError) as error:
                name = self._numbered.name(number)
                raise CorruptDataError(f"{name} is no manifest: {error}") from error
        raise UnavailableError("the archive's manifest changes faster than it is read")

    def read(self, batch_id: str) -> Iterator[bytes]:
        """Yield the parts of a batch, each verified.

        Raises:
            NotFoundError: there is no such batch, or it was not committed.
            CorruptDataError: a part is missing or damaged; it is named.
        """
        batch = self.manifest().batches.get(batch_id)
        if batch is None:
            raise NotFoundError(f"there is no batch {batch_id!r}", field="batch")
        for name, part in zip(part_names(batch_id, batch), batch.parts, strict=True):
            try:
                data = self.objects.read(name)
            except NotFoundError:
                raise CorruptDataError(f"the part {name} is missing") from None
            if len(data) != part.bytes or hash_of(data) != part.hash:
                raise ChecksumError(f"the part {name} is damaged")
            yield data

    # -- inside -----------------------------------------------------------------

    def _write(self, name: str, data: bytes) -> None:
        self.objects.create(name, data)
        if self.objects.read(name) != data:
            raise ChecksumError(f"the object {name} is not what was sent")

    def _roll_back(self, names: Sequence[str]) -> None:
        """Delete the parts of a batch that failed; else a sweep does."""
        with suppress(UnavailableError):
            self.objects.delete(names)

    def _committed(self, batch_id: str, batch: Batch) -> bool:
        """Commit a batch; False where another one has its id.

        Where it stays unknown whether the manifest came in, the parts are left
        to a sweep, which looks at the manifest that is there by then.
        """
        try:
            manifest = self._commit(with_batch(batch_id, batch))
        except (CorruptDataError, UnavailableError) as error:
            if isinstance(error, CorruptDataError) or error.code == COLLECTED:
                self._roll_back(part_names(batch_id, batch))
                raise
            try:
                manifest = self.manifest()
            except TurnstateError:
                raise error from None
            if not holds(manifest, batch_id, batch):
                raise
        return holds(manifest, batch_id, batch)

    def _commit(self, change: Change) -> Manifest:
        """Make the next manifest of the newest one; nothing where none is needed."""
        for _ in range(_TRIES):
            before = self.manifest()
            changed = change(before)
            if changed == before:
                return before
            token = self._chance(_TOKEN_BYTES).hex()
            after = replace(
                changed,
                number=before.number + 1,
                recent=[*before.recent, token][-_RECENT:],
            )
            body = _encoder.encode(after)
            if not self._numbered.create(after.number, body):
                continue
            self._check_written(after.number, body)
            newest = self._numbered.newest(after.number)
            # A number that was free because it is old and swept commits nothing.
            if newest is None or token in self.manifest().recent:
                return after
        raise UnavailableError(
            f"{_TRIES} other transactions of the archive came first",
            hint="fewer writers at once",
            code="contended",
        )

    def _check_written(self, number: int, body: bytes) -> None:
        """Read a manifest back; one that is not whole goes again, at once.

        Nobody can have built on it, and while it is there nobody can read.

        Raises:
            ChecksumError: it was not what was sent.
        """
        for _ in range(2):
            try:
                if self._numbered.read(number) == body:
                    return
            except CorruptDataError:
                continue
            except NotFoundError:
                return  # a later one has taken its place already
        self.objects.delete([self._numbered.name(number)])
        raise ChecksumError(
            f"{self._numbered.name(number)} was not what was sent",
            hint="nothing was archived: do it again",
        )
