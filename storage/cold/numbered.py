"""Numbered objects: whoever creates the next one first has decided what it says."""

from collections.abc import Iterator
from typing import Final

import msgspec

from turnstate.schemas.errors import (
    ChecksumError,
    CorruptDataError,
    UnknownVersionError,
)
from turnstate.storage.cold.objects import ObjectInfo, ObjectStore
from turnstate.storage.frames.native import crc32c

FORMAT: Final = 1
"""What this code writes, and the newest that it reads."""

_DIGITS: Final = 20
_SUFFIX: Final = ".json"


class _Sealed(msgspec.Struct):
    crc32c: str
    body: msgspec.Raw


class _Format(msgspec.Struct):
    format: int


_sealed_decoder: Final = msgspec.json.Decoder(_Sealed)
_format_decoder: Final = msgspec.json.Decoder(_Format)


def seal(body: bytes) -> bytes:
    r"""Return a JSON document that carries the checksum of its body.

    Example:
        >>> seal(b'{"format":1}')
        b'{"crc32c":"0fb4e832","body":{"format":1}}\n'
    """
    return b'{"crc32c":"%08x","body":%b}\n' % (crc32c(body), body)


def unseal(data: bytes, name: str) -> bytes:
    """Invert `seal`; the body says a format that is known.

    Raises:
        UnknownVersionError: a newer turnstate wrote it.
        CorruptDataError: it is cut, damaged, or something else.
    """
    hint = f"put {name} back from a copy of the bucket; nothing was changed"
    try:
        found = _sealed_decoder.decode(data)
        body = bytes(found.body)
        if f"{crc32c(body):08x}" != found.crc32c:
            raise ChecksumError(f"{name} does not match its checksum", hint=hint)
        told = _format_decoder.decode(body).format
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"{name} cannot be read: {error}", hint=hint) from error
    if told > FORMAT:
        raise UnknownVersionError(
            f"{name} has format {told}, this is {FORMAT}",
            hint="use a newer turnstate; nothing was changed",
        )
    return body


class NumberedObjects:
    """Objects under one prefix whose names are numbers, each created once.

    Old ones may be collected, so a slow writer can find the number behind the
    newest that *it* knows free again. Whoever creates one must look whether
    there is a greater one, and holds nothing if there is.

    Args:
        objects: Where they are.
        prefix: What their names begin with, with its `/`.
    """

    def __init__(self, objects: ObjectStore, prefix: str) -> None:
        self._objects = objects
        self._prefix = prefix

    def name(self, number: int) -> str:
        """Return the name of a number; names sort as numbers do."""
        return f"{self._prefix}{number:0{_DIGITS}d}{_SUFFIX}"

    def create(self, number: int, body: bytes) -> bool:
        """Create one; False where somebody else has."""
        return self._objects.create(self.name(number), seal(body))

    def read(self, number: int) -> bytes:
        """Return the body of one, checked.

        Raises:
            NotFoundError: it is not there, or was collected.
            CorruptDataError: it is damaged.
        """
        name = self.name(number)
        return unseal(self._objects.read(name), name)

    def newest(self, above: int) -> int | None:
        """Return the greatest number above one, by a list of what is there."""
        return max((number for number, _ in self.infos(above)), default=None)

    def infos(self, above: int = -1) -> Iterator[tuple[int, ObjectInfo]]:
        """Yield what is there above a number, in order; other names are not ours."""
        after = self.name(above) if above >= 0 else ""
        for info in self._objects.list(self._prefix, after):
            digits = info.name.removeprefix(self._prefix).removesuffix(_SUFFIX)
            if digits.isascii() and digits.isdigit():
                number = int(digits)
                if info.name == self.name(number):
                    yield number, info
