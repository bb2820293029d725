"""The master key in a local file, and how a setting names it or any other wrapper."""

import base64
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from turnstate.schemas.errors import ConflictError, UnavailableError
from turnstate.storage.encryption.cipher import KEY_BYTES, NONCE_BYTES

FIELD: Final = "encryption"
"""The setting that every error here names."""

KEY_FILE: Final = "keyfile"
"""Scheme of a setting that names a file: `keyfile:PATH`."""

WRAPPERS: Final = "turnstate.key_wrappers"
"""Entry points of other schemes: a function of what follows the colon."""

_FIRST_WORD: Final = b"turnstate-master-key-1"
_PERSON: Final = b"turnstate.master"
_BOUND: Final = b"turnstate store key"
_FILE_BYTES_MAX: Final = 4096


class KeyWrapper(Protocol):
    """Whoever has a master key: a file, or a key management service.

    It is asked once whenever a store is opened and when keys are rotated,
    never while turns are folded. Both methods raise `UnavailableError` where
    it is away or refuses, naming the setting `encryption`.
    """

    @property
    def name(self) -> str:
        """Return which master key it is, as a fingerprint or an ARN; no secret."""
        ...

    def wrap(self, plain: bytes) -> bytes:
        """Return a key of 32 bytes encrypted under the master key."""
        ...

    def unwrap(self, wrapped: bytes) -> bytes:
        """Invert `wrap`."""
        ...


class LocalKeyFile:
    """A master key that lies in a file, as `make_key_file` writes it.

    Args:
        path: The file.

    Raises:
        UnavailableError: it cannot be read, or is no key file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        key = _read(path)
        self.name = f"{KEY_FILE} {fingerprint(key)}"
        self._cipher = AESGCM(key)

    @property
    def is_private(self) -> bool:
        """Say whether only the file's owner may read it."""
        return not self.path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)

    def wrap(self, plain: bytes) -> bytes:
        """Return a key encrypted under the master key: nonce, ciphertext, tag."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain, _BOUND)

    def unwrap(self, wrapped: bytes) -> bytes:
        """Invert `wrap`.

        Raises:
            UnavailableError: another master key wrapped it, or it is damaged.
        """
        try:
            nonce, body = wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:]
            return self._cipher.decrypt(nonce, body, _BOUND)
        except (InvalidTag, ValueError):
            raise UnavailableError(
                f"the key file {self.path} does not open this store",
                field=FIELD,
                hint="name the key file that it was encrypted with",
                code="wrong_key",
            ) from None


def fingerprint(key: bytes) -> str:
    """Return eight bytes by which a key is named without being told.

    Example:
        >>> fingerprint(bytes(32))
        '56484c74b920d8d3'
    """
    return blake2b(key, digest_size=8, person=_PERSON).hexdigest()


def make_key_file(path: Path) -> LocalKeyFile:
    """Make a master key by chance and write it to a new file of mode 0600.

    Raises:
        ConflictError: there is a file of that name; it may be someone's key.
        UnavailableError: the disk refuses.
    """
    key = os.urandom(KEY_BYTES)
    line = b"%b %b\n" % (_FIRST_WORD, base64.urlsafe_b64encode(key))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConflictError(
            f"there is a file {path}",
            field="path",
            hint="name another one; a key that is overwritten is lost",
        ) from None
    except OSError as error:
        raise _refused(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            # Whatever the umask says.
            os.fchmod(descriptor, 0o600)
            file.write(line)
            file.flush()
            os.fsync(descriptor)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise _refused(path, error) from error
    return LocalKeyFile(path)


def wrapper_of(setting: str) -> KeyWrapper | None:
    """Return who has the master key that a setting names; None = no encryption.

    Raises:
        UnavailableError: the file is missing or no key file, or no library
            that is installed knows the scheme.
    """
    if not setting:
        return None
    scheme, _, rest = setting.partition(":")
    if scheme == KEY_FILE:
        return LocalKeyFile(Path(rest).expanduser())
    for found in entry_points(group=WRAPPERS, name=scheme):
        factory: Callable[[str], KeyWrapper] = found.load()
        return factory(rest)
    raise UnavailableError(
        f"nothing that is installed knows {scheme!r} of the setting {FIELD}",
        field=FIELD,
        hint=f"{KEY_FILE}:PATH, or install what has an entry point in {WRAPPERS}",
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            words = file.read(_FILE_BYTES_MAX).split()
    except OSError as error:
        raise UnavailableError(
            f"the key file {path} of the setting {FIELD} cannot be read:"
            f" {error.strerror}",
            field=FIELD,
            hint="turnstate keys init PATH makes one; a lost one is lost with the data",
            code="no_key",
        ) from error
    if len(words) == 2 and words[0] == _FIRST_WORD:
        with suppress(ValueError):
            key = base64.b64decode(words[1], altchars=b"-_", validate=True)
            if len(key) == KEY_BYTES:
                return key
    raise UnavailableError(
        f"{path}, which the setting {FIELD} names, is no key file",
        field=FIELD,
        hint="turnstate keys init PATH makes one",
        code="no_key",
    )


def _refused(path: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"{path} cannot be written: {error.strerror}", field="path"
    )
