"""The keys of an encrypted store: what there are, and another master key for them."""

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.storage.encryption.cipher import ID_BYTES
from turnstate.storage.encryption.destroying import purge_keys
from turnstate.storage.encryption.key_file import (
    FIELD,
    KeyWrapper,
    LocalKeyFile,
    wrapper_of,
)
from turnstate.storage.encryption.key_rows import KeyRow
from turnstate.storage.encryption.row_cipher import RowCipher
from turnstate.storage.encryption.store_keys import (
    begin_rotation,
    end_rotation,
    is_store_key,
    rewrap_some,
)
from turnstate.storage.warm.tables import KEYS
from turnstate.streams.documents import Document

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore


def keys_status(store: "EmbeddedStore") -> Document:
    """Return what keys there are; reads every row of them, no secret among them.

    Returns:
        `encrypted`, `master` key by name, `store_keys`, `data_keys`,
        `destroyed` data keys, `file_is_private` (None where it is no file).
    """
    row_cipher = store.warm.row_cipher
    counts: Counter[str] = Counter()
    for at, row in store.warm.stored_rows(KEYS):
        if is_store_key(at):
            counts["store"] += 1
        elif len(at) == ID_BYTES:
            counts["destroyed" if KeyRow.decode(row).is_destroyed else "data"] += 1
    wrapper = None if row_cipher is None else row_cipher.wrapper
    return {
        "encrypted": row_cipher is not None,
        "master": None if wrapper is None else wrapper.name,
        "store_keys": counts["store"],
        "data_keys": counts["data"],
        "destroyed": counts["destroyed"],
        "file_is_private": (
            wrapper.is_private if isinstance(wrapper, LocalKeyFile) else None
        ),
    }


def rotate_keys(store: "EmbeddedStore", to: str) -> Document:
    """Let another master key open the store; publishing goes on meanwhile.

    The new one opens it from the first step on, and the old one does not any
    more. Then every data key is wrapped anew by a new key of the store; a crash
    between leaves both kinds, which the next rotation mends. What the data keys
    encrypted stays as it is.

    Args:
        store: The store.
        to: The setting that names the new master key, as `keyfile:PATH`.

    Returns:
        `master` key by name, `data_keys` that were wrapped anew.

    Raises:
        InvalidInputError: the store is not encrypted, or nothing is named.
        UnavailableError: one of the master keys is away; nothing is changed.
    """
    after = wrapper_of(to)
    if after is None:
        raise InvalidInputError(
            "no new master key is named", field="to", hint="keyfile:PATH"
        )
    row_cipher = store.warm.row_cipher
    if row_cipher is None:
        raise InvalidInputError(
            "the store is not encrypted",
            field=FIELD,
            hint="set TURNSTATE_ENCRYPTION=keyfile:PATH and open it",
        )
    return {"master": after.name, "data_keys": _rotated(store, row_cipher, after)}


def _rotated(store: "EmbeddedStore", row_cipher: RowCipher, after: KeyWrapper) -> int:
    call, warm, ring = store.engine.call, store.warm, row_cipher.ring

    def begin() -> int:
        number = begin_rotation(warm, ring, row_cipher.wrapper, after)
        row_cipher.wrapper = after
        return number

    with store.engine.redriving:
        if not store.engine.backing_up.acquire(blocking=False):
            raise UnavailableError(
                "a backup of this store is under way", hint="wait for it"
            )
        try:
            number: int = call(begin).result()
            changed = 0
            at: bytes | None = b""
            while at is not None:
                some: tuple[bytes | None, int]
                some = call(partial(rewrap_some, warm, ring, at)).result()
                at = some[0]
                changed += some[1]
            call(partial(end_rotation, warm, number)).result()
            call(partial(purge_keys, warm, b"", b"\xfe" * ID_BYTES)).result()
        finally:
            store.engine.backing_up.release()
    return changed
