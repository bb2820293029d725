"""Read the stores of partitions that no worker has open: scratch ones, stopped ones."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec
from rocksdict import Cache

from turnstate.replay.engine import FoldedSession
from turnstate.replay.recording import (
    RecordedErasure,
    RecordedItem,
    RecordedOperation,
)
from turnstate.schemas.dialogue.head import digest
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.errors import InvalidInputError, NotFoundError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import MAIN
from turnstate.storage.hot.memory import MemoryTier
from turnstate.storage.session_reader import operations
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.changelog import folded_position
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.documents import Document
from turnstate.streams.embedded.lock import LOCK_FILE, OwnerLock
from turnstate.streams.kafka.applied import CHANGELOG_KEY, Applied
from turnstate.streams.kafka.partitioning import partition_of
from turnstate.streams.reading import StoreReader

_CACHE_BYTES: Final = 64 << 20


class _Heads:
    """The heads of a store that nobody writes."""

    def __init__(self, warm: WarmStore) -> None:
        self.hot = MemoryTier(1)
        self._warm = warm

    def head(self, key: bytes) -> StoredHead | None:
        """Return the stored head of a session."""
        return self._warm.heads([key])[0]


class PartitionStores:
    """Read sessions of many partitions' stores as of one; nothing is written.

    Use as a context manager.

    Args:
        folders: Partition → the folder of its RocksDB.
        partitions: How many the topic has.
        log_name: The name under which the log stamps.
        graph: The dialogue graph.

    Raises:
        CorruptDataError: RocksDB cannot read one.
    """

    def __init__(
        self,
        folders: Mapping[int, Path],
        *,
        partitions: int,
        log_name: str,
        graph: DialogueGraph,
    ) -> None:
        self._partitions = partitions
        self._open: dict[int, StoreReader] = {}
        cache = Cache(_CACHE_BYTES)
        try:
            for number, folder in sorted(folders.items()):
                warm = WarmStore(
                    folder, log_name=log_name, read_only=True, cache=cache
                )
                self._open[number] = StoreReader(warm, _Heads(warm), graph)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let them go."""
        for reader in self._open.values():
            reader.warm.close()
        self._open.clear()

    def folded(self) -> dict[int, int]:
        """Return the offset after the last that each partition has folded."""
        found = {
            number: folded_position(reader.warm)
            for number, reader in self._open.items()
        }
        return {each: at[0] + 1 if at else 0 for each, at in found.items()}

    def folded_sessions(self) -> dict[bytes, FoldedSession]:
        """Return what each session folded to; erased ones are left out."""
        return {
            key: FoldedSession(
                digest(stored.head), stored.head.incarnation, stored.head.version
            )
            for reader in self._open.values()
            for key, stored in reader.stored_heads()
            if not stored.is_tombstone
        }

    def sessions(self) -> Iterator[Document]:
        """Yield a row for each session, partition by partition."""
        for reader in self._open.values():
            yield from reader.sessions()

    def state(
        self,
        tenant: str,
        session: str,
        *,
        version: int | None = None,
        branch: str = MAIN,
    ) -> Document:
        """Return the state of a session; see `StoreReader.state`.

        Raises:
            NotFoundError: no such session, version or branch.
        """
        key = SessionName(tenant, session).key()
        reader = self._open.get(partition_of(key, self._partitions))
        if reader is None:
            raise NotFoundError(f"there is no session {session!r}", field="session")
        return reader.state(tenant, session, version=version, branch=branch)

    def items(self) -> Iterator[RecordedItem]:
        """Yield every operation, session by session, as `export` does.

        Raises:
            CorruptDataError: something stored is damaged.
        """
        for reader in self._open.values():
            for key, stored in reader.stored_heads():
                name = SessionName.from_key(key)
                life = stored.head.incarnation
                for incarnation in range(1, life):
                    yield RecordedErasure(name, incarnation)
                for _, op in operations(reader.warm, key, stored):
                    yield RecordedOperation(name, life, op.record)


def scratch_stores(folder: Path, numbers: Iterable[int]) -> dict[int, Path]:
    """Return where the stores of a replay lie."""
    return {number: folder / str(number) / "store" for number in numbers}


class _Standing(NamedTuple):
    """How new a store is: the greatest that one partition has is its state."""

    epoch: tuple[int, int]
    folded: tuple[int, int]


class StoppedWorkers:
    """Hold the stores of stopped workers, so that none starts meanwhile.

    Args:
        folder: Of one worker, or of a cluster's data: the folders of its
            workers lie in it. A partition that has moved has left a store at
            each of its owners; the newest is taken.

    Raises:
        InvalidInputError: no worker's store is there.
        UnavailableError: a worker runs there.
    """

    def __init__(self, folder: Path) -> None:
        self._locks = ExitStack()
        found: dict[int, list[Path]] = {}
        for store in sorted([*folder.glob("*/store"), *folder.glob("*/*/store")]):
            if store.parent.name.isdigit() and store.is_dir():
                found.setdefault(int(store.parent.name), []).append(store)
        if not found:
            raise InvalidInputError(
                f"{folder} holds no store",
                field="against",
                hint="name the folder of a stopped worker, or one that publish"
                " wrote to",
            )
        try:
            workers = {each.parent.parent for every in found.values() for each in every}
            for worker in sorted(workers):
                self._hold(worker)
            self.folders = {
                number: stores[0] if len(stores) == 1 else max(stores, key=_standing)
                for number, stores in found.items()
            }
        except BaseException:
            self._locks.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._locks.close()

    def _hold(self, worker: Path) -> None:
        if not (worker / LOCK_FILE).exists():
            return
        try:
            lock = OwnerLock(worker)
        except UnavailableError as error:
            raise UnavailableError(
                f"a worker runs in {worker}",
                field="against",
                hint="--against cluster asks the workers; or stop it",
                code=error.code,
            ) from error
        self._locks.callback(lock.release)


def _standing(store: Path) -> _Standing:
    warm = WarmStore(store, log_name="", cache_bytes=1 << 20, read_only=True)
    try:
        row = warm.meta(CHANGELOG_KEY)
        applied = None if row is None else msgspec.msgpack.decode(row, type=Applied)
        folded = folded_position(warm)
    finally:
        warm.close()
    epoch = (0, 0) if applied is None else (applied.epoch[0], applied.epoch[1])
    return _Standing(epoch, folded or (-1, 0))
