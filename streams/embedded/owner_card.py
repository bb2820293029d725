"""Where the owner of a store says who it is: `owner.json` and the socket's path."""

import os
import tempfile
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.embedded import messages

OWNER_FILE: Final = "owner.json"
SOCKET_FILE: Final = "owner.sock"

SOCKET_PATH_BYTES_MAX: Final = 100
"""A Unix socket's path has at most 107 bytes on Linux, 103 on macOS."""


class OwnerCard(NamedTuple):
    """What `owner.json` says of the owner."""

    pid: int
    socket: str
    protocol: int
    version: str


def other_version(owner: object, caller: object) -> UnavailableError:
    """Return the error for an owner that speaks another protocol."""
    return UnavailableError(
        f"turnstate {owner} owns the store, this is turnstate {caller}: "
        "they do not understand each other",
        hint="stop the process that owns the store, or use its version",
        code="owner_version",
    )


def package_version() -> str:
    """Return the version of this package."""
    try:
        return version("turnstate")
    except PackageNotFoundError:
        return "0"


def socket_path(data: Path) -> str:
    """Return where the socket of a data folder lies.

    In the folder, unless that path is too long for a socket: then in a folder
    of this user alone in the temp directory, under a hash of the data path.

    Raises:
        UnavailableError: that folder belongs to someone else.
    """
    near = str(data.absolute() / SOCKET_FILE)
    if len(os.fsencode(near)) <= SOCKET_PATH_BYTES_MAX:
        return near
    user = os.getuid()
    name = blake2b(os.fsencode(data.resolve()), digest_size=16).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"turnstate-{user}"
    far = str(folder / f"{name}.sock")
    if len(os.fsencode(far)) > SOCKET_PATH_BYTES_MAX:
        raise UnavailableError(
            f"the path {far} is too long for a socket, as is {near}",
            field="data",
            hint="use a shorter data path, or a shorter TMPDIR",
        )
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != user or found.st_mode & 0o077:
        raise UnavailableError(
            f"the folder {folder} for sockets is not this user's alone",
            hint="remove it, or use a shorter data path",
        )
    return far


def write_card(file: Path, path: str) -> None:
    """Say in `owner.json` who owns the store; replaced whole."""
    card = OwnerCard(os.getpid(), path, messages.PROTOCOL, package_version())
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_bytes(msgspec.json.encode(card._asdict()))
    draft.replace(file)


def read_card(data: Path) -> OwnerCard | None:
    """Return who owns a store, None where nobody says so."""
    try:
        said = msgspec.json.decode((data / OWNER_FILE).read_bytes())
        return OwnerCard(**said)
    except (OSError, ValueError, TypeError):
        return None
