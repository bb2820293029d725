"""Keys in a backup: out of its files, in one object that every backup replaces."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from rocksdict import Options, Rdict

from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    NotFoundError,
    UnavailableError,
    UnknownVersionError,
)
from turnstate.storage.backup.content import content_hash, create_alone
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.encryption.key_file import KeyWrapper
from turnstate.storage.encryption.store_keys import (
    check_master,
    is_store_key,
    store_key_of,
)
from turnstate.storage.warm.failures import guarded
from turnstate.storage.warm.rows import RocksTables
from turnstate.storage.warm.tables import KEYS

COPIES: Final = "keys/"
"""Where the copies of keys lie; the highest number counts, others go."""

FORMAT: Final = 1

_DIGITS: Final = 20
_INFO_FILES: Final = ("LOG", "LOCK")
"""What RocksDB leaves in a folder that it had open, beside the store's files."""

KeyRows = Sequence[tuple[bytes, bytes]]
"""Rows of the table of keys, as they lie: wrapped, or destroyed."""


class _Copy(Struct, array_like=True, frozen=True):
    format: int
    rows: list[tuple[bytes, bytes]]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Copy).decode


def without_keys(checkpoint: Path) -> None:
    """Take the table of keys out of a checkpoint of an encrypted store.

    The store keeps it: only the checkpoint's own list of files is changed. A
    backup whose files held the keys could be read after an erase, for ever.

    Raises:
        UnavailableError: the checkpoint cannot be opened.
    """

    def options() -> Options:
        made = Options(raw_mode=True)
        # Files that change would be uploaded anew.
        made.set_disable_auto_compactions(True)
        return made

    families = guarded(Rdict.list_cf, str(checkpoint))
    if KEYS not in families:
        return
    opened = guarded(
        lambda: Rdict(
            str(checkpoint),
            options(),
            column_families={name: options() for name in families},
        )
    )
    try:
        guarded(opened.drop_column_family, KEYS)
    finally:
        guarded(opened.close)
    for path in checkpoint.iterdir():
        if path.name in _INFO_FILES or path.name.startswith("LOG.old"):
            path.unlink()


def copy_keys(objects: ObjectStore, rows: Iterable[tuple[bytes, bytes]]) -> str:
    """Put a copy of the keys beside backups, and take older copies away.

    The caller sees to it that nobody else does so at the same time. Called
    before a manifest is written, with keys as of after its checkpoint: what
    the backup needs is there, and what was destroyed since is not.

    Args:
        objects: Where the backups are.
        rows: All rows of the table of keys.

    Returns:
        The name of the copy.

    Raises:
        ChecksumError: it does not read back.
        ConflictError: another process made one.
    """
    data = _encode(_Copy(FORMAT, list(rows)))
    data += content_hash(data).encode()
    before = [info.name for info in objects.list(COPIES)]
    number = max((_number(name) for name in before), default=0) + 1
    name = f"{COPIES}{number:0{_DIGITS}}"
    create_alone(objects, name, data, "make the backup again")
    objects.delete(before)
    return name


def copied_keys(objects: ObjectStore) -> KeyRows:
    """Return the newest copy of the keys; empty where nothing is encrypted.

    Raises:
        CorruptDataError: it is damaged.
    """
    names = sorted((info.name for info in objects.list(COPIES)), key=_number)
    if not names:
        return []
    try:
        data = objects.read(names[-1])
    except NotFoundError:
        raise UnavailableError(
            f"{names[-1]} was replaced meanwhile", hint="restore again"
        ) from None
    hash_bytes = len(content_hash(b""))
    line, named = data[:-hash_bytes], data[-hash_bytes:]
    if content_hash(line).encode() != named:
        raise ChecksumError(
            f"the copy of the keys {names[-1]} is damaged",
            hint="what they encrypted cannot be read without it",
        )
    try:
        copy = _decode(line)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"the copy of the keys {names[-1]}: {error}") from error
    if copy.format > FORMAT:
        raise UnknownVersionError(
            f"{names[-1]} has format {copy.format}, this is {FORMAT}",
            hint="use a newer turnstate",
        )
    return copy.rows


def check_keys(rows: KeyRows, wrapper: KeyWrapper | None) -> None:
    """Check, before anything is fetched, that a master key opens a copy of keys.

    Raises:
        UnavailableError: it is another one, or none was given.
    """
    for at, row in rows:
        if is_store_key(at):
            check_master(store_key_of(row), wrapper)


def put_keys(store: RocksTables, rows: KeyRows) -> None:
    """Put a copy of keys into a store whose files were just fetched."""
    batch = store.batch()
    for at, row in rows:
        batch.put_local(KEYS, at, row)
    store.write(batch, sync=True)
    store.flush()


def _number(name: str) -> int:
    text = name[len(COPIES) :]
    return int(text) if text.isdigit() else 0
