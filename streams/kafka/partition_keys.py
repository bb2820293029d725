"""Where the keys of a cluster's partitions lie: one object each, replaced whole."""

import threading
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, Self

from turnstate.schemas.errors import (
    ChecksumError,
    NotFoundError,
    UnavailableError,
)
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.encryption.key_file import FIELD, KeyWrapper, wrapper_of
from turnstate.storage.encryption.key_set import (
    KeySet,
    OpenedKeySet,
    check_set_master,
    decode_key_set,
    encode_key_set,
    made_key_set,
    opened_key_set,
    rewrapped_key_set,
)
from turnstate.storage.encryption.slotted_keys import SlottedKeyRing
from turnstate.storage.hot.redis_cipher import RedisCipher
from turnstate.storage.warm.changelog_records import Epoch
from turnstate.streams.documents import Document
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.cold_place import s3_access
from turnstate.streams.places import S3_SCHEME, Closable, full_place, open_place

_DIGITS: Final = 20
_TRIES: Final = 16
"""How often an object is looked for that others replace meanwhile."""

Opens = Callable[[], ObjectStore]


def keys_place(cluster: ClusterSettings) -> str:
    """Return where the keys of a group's partitions lie.

    Beside its cold sessions, or else beside its backups: whatever workers share.

    Raises:
        UnavailableError: there is no such place (code `no_keys_place`).

    Example:
        >>> keys_place(ClusterSettings(cold="s3://bucket/cold"))
        's3://bucket/cold/turnstate.keys'
        >>> keys_place(ClusterSettings(backups="s3://bucket/backups"))
        's3://bucket/backups/turnstate.keys'
    """
    where = cluster.cold or (f"{S3_SCHEME}{cluster.s3_bucket}" if cluster.s3 else "")
    where = where or cluster.backups
    if not where:
        raise UnavailableError(
            "a cluster that encrypts needs a place for its keys, which all workers"
            " reach",
            field=FIELD,
            hint="set `cold` or `backups`, or [s3] in cluster.toml; they lie beside it",
            code="no_keys_place",
        )
    return f"{full_place(where).rstrip('/')}/{cluster.group}.keys"


class ClusterKeys:
    """The keys of a cluster's partitions; calls block, from any thread.

    Args:
        cluster: Says where they are.
        wrapper: Who has the master key.

    Raises:
        UnavailableError: there is no place for them.
    """

    def __init__(self, cluster: ClusterSettings, wrapper: KeyWrapper) -> None:
        self.where = keys_place(cluster)
        self.wrapper = wrapper
        self._partitions = cluster.partitions
        self._access = s3_access(cluster)
        self._lock = threading.Lock()
        self._objects: ObjectStore | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """Make sure that the master key is the one of all partitions; changes nothing.

        Raises:
            UnavailableError: it is another one (code `wrong_key`), or the place
                is away.
            CorruptDataError: an object is damaged.
        """
        for number in range(self._partitions):
            self.of(number).check()

    def status(self) -> Document:
        """Return where the keys are, and of how many partitions which master key's.

        Raises:
            UnavailableError: the place is away.
        """
        masters = Counter(
            stored.master
            for number in range(self._partitions)
            for stored in [self.of(number).stored()]
            if stored is not None
        )
        return {
            "where": self.where,
            "master": self.wrapper.name,
            "partitions": dict(sorted(masters.items())),
        }

    def rotate(self, after: KeyWrapper) -> Document:
        """Have another master key wrap the keys of all partitions; may be repeated.

        Raises:
            UnavailableError: one of the master keys, or the place, is away.
        """
        numbers = range(self._partitions)
        changed = sum(self.of(number).rotate(after) for number in numbers)
        return {"where": self.where, "master": after.name, "partitions": changed}

    def of(self, number: int) -> "PartitionKeys":
        """Return the keys of a partition; nothing is read yet."""
        return PartitionKeys(self._open, self.where, number, self.wrapper)

    def close(self) -> None:
        """Hang up."""
        with self._lock:
            held, self._objects = self._objects, None
        objects: object = held
        if isinstance(objects, Closable):
            objects.close()

    def _open(self) -> ObjectStore:
        with self._lock:
            if self._objects is None:
                self._objects = open_place(self.where, self._access)
            return self._objects


class PartitionKeys:
    """The set of keys of one partition, as its owner has it.

    It is one object with a number in its name. Whoever changes it creates the
    next number, which can be done once, and removes those before: so an owner
    that was replaced, and does not know it, changes nothing.

    Args:
        opens: Opens the objects.
        where: Names the place in errors.
        number: Of the partition.
        wrapper: Who has the master key.

    Attributes:
        keys: What is in it; None before `take_over`.
    """

    def __init__(
        self, opens: Opens, where: str, number: int, wrapper: KeyWrapper
    ) -> None:
        self.wrapper = wrapper
        self.keys: OpenedKeySet | None = None
        self._opens = opens
        self._where = where
        self._number = number
        self._folder = f"partition-{number}/"
        self._at = 0
        self._tried: OpenedKeySet | None = None

    def stored(self) -> KeySet | None:
        """Return the set as it lies; None where there is none."""
        found = self._newest()
        return None if found is None else found[1]

    def check(self) -> None:
        """Make sure that the master key is the one of the set, where there is one.

        Raises:
            UnavailableError: it is another one.
        """
        found = self._newest()
        if found is not None:
            check_set_master(found[1], self.wrapper)

    def take_over(self, expected: bytes | None) -> OpenedKeySet:
        """Take the set as the partition's new owner; a partition without gets one.

        Args:
            expected: The id of the set that the partition's rows name.

        Raises:
            UnavailableError: the master key is another one; or the set is not
                there, though rows were encrypted with it (code `keys_lost`).
        """
        for _ in range(_TRIES):
            found = self._newest()
            if expected is not None and (found is None or found[1].id != expected):
                raise UnavailableError(
                    f"partition {self._number} is encrypted with keys that are not at"
                    f" {self._where}",
                    field=FIELD,
                    hint="put the objects back from a copy, or set `cold` or `backups`"
                    " to where they are",
                    code="keys_lost",
                )
            at = 0 if found is None else found[0]
            if found is None:
                opened = made_key_set(self.wrapper)
            else:
                opened = opened_key_set(found[1], self.wrapper)
            opened = opened.owned()
            if self._put(at + 1, opened):
                return opened
        raise self._beside()

    def redis_ciphers(self) -> list[RedisCipher]:
        """Return what opens values in Redis; nothing is taken over.

        Raises:
            UnavailableError: the master key is another one, or the place is away.
        """
        found = self._newest()
        if found is None:
            return []
        opened = opened_key_set(found[1], self.wrapper)
        return [RedisCipher(*each) for each in opened.hot_keys()]

    def replace(self, slots: Collection[int]) -> OpenedKeySet:
        """Put another key beside the one of each of some slots.

        Raises:
            UnavailableError: another worker is the owner by now.
        """
        return self._changed(lambda held: held.with_new(slots))

    def destroy_replaced(self, slots: Collection[int]) -> OpenedKeySet:
        """Destroy the keys of some slots that were replaced.

        Raises:
            UnavailableError: another worker is the owner by now.
        """
        return self._changed(lambda held: held.without_replaced(slots))

    def rotate(self, after: KeyWrapper) -> bool:
        """Have another master key wrap the set, while its owner goes on.

        Returns:
            Whether it did; not where there is none, or it is wrapped so already.

        Raises:
            UnavailableError: one of the master keys, or the place, is away.
        """
        for _ in range(_TRIES):
            found = self._newest()
            if found is None or found[1].master == after.name:
                return False
            opened = opened_key_set(found[1], self.wrapper)
            stored = rewrapped_key_set(opened, self.wrapper, after)
            if self._put(found[0] + 1, opened._replace(stored=stored)):
                return True
        raise self._beside()

    # -- inside -----------------------------------------------------------------

    def _held(self) -> OpenedKeySet:
        """Return what stands there, the last change with it that seemed to fail."""
        tried, self._tried = self._tried, None
        if tried is not None:
            name = self._name(self._at + 1)
            try:
                stands = self._opens().read(name)
            except NotFoundError:
                stands = b""
            except UnavailableError:
                self._tried = tried
                raise
            if stands == encode_key_set(tried.stored):
                self.keys, self._at = tried, self._at + 1
        assert self.keys is not None, "they were taken over"
        return self.keys

    def _changed(self, change: Callable[[OpenedKeySet], OpenedKeySet]) -> OpenedKeySet:
        for _ in range(_TRIES):
            held = self._held()
            self._tried = opened = change(held)
            if self._put(self._at + 1, opened):
                self._tried = None
                return opened
            self._tried = None
            found = self._newest()
            if found is None or found[1].owner != held.stored.owner:
                break
            # Another master key wraps it by now; the keys in it are the same.
            self._at = found[0]
            self.keys = held._replace(stored=found[1])
        raise self._beside()

    def _put(self, number: int, opened: OpenedKeySet) -> bool:
        """Create an object and remove those before; False where its name is taken."""
        objects, name = self._opens(), self._name(number)
        data = encode_key_set(opened.stored)
        if not objects.create(name, data):
            return False
        if objects.read(name) != data:
            raise ChecksumError(f"the object {name} is not what was sent", field=FIELD)
        self.keys, self._at = opened, number
        before = [each.name for each in objects.list(self._folder) if each.name < name]
        objects.delete(before)
        return True

    def _newest(self) -> tuple[int, KeySet] | None:
        objects = self._opens()
        for _ in range(_TRIES):
            names = [each.name for each in objects.list(self._folder)]
            if not names:
                return None
            name = max(names)
            try:
                data = objects.read(name)
            except NotFoundError:
                continue  # it was replaced meanwhile
            stored = decode_key_set(data, f"{self._where}/{name}")
            return int(name.removeprefix(self._folder)), stored
        raise self._beside()

    def _name(self, number: int) -> str:
        return f"{self._folder}{number:0{_DIGITS}}"

    def _beside(self) -> UnavailableError:
        return UnavailableError(
            f"another process changes the keys of partition {self._number}",
            field=FIELD,
            hint="ask again in a moment",
            code="not_fresh",
        )


class Unlocked(NamedTuple):
    """The keys of a partition that this worker owns.

    Attributes:
        keys: What wraps its data keys, and where that lies.
        ring: Its data keys.
        epoch: In which this worker took them over, or went on with them.
    """

    keys: PartitionKeys
    ring: SlottedKeyRing
    epoch: Epoch


def cluster_keys(cluster: ClusterSettings) -> ClusterKeys | None:
    """Return the keys of a cluster whose workers encrypt, None where they do not.

    Raises:
        UnavailableError: the key file is missing, or there is no place for keys.
    """
    wrapper = wrapper_of(cluster.encryption)
    return None if wrapper is None else ClusterKeys(cluster, wrapper)

