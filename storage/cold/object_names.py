"""Which names an object may have, so that every store holds each one exactly."""

from typing import Final
from urllib.parse import quote, unquote

from turnstate.schemas.errors import InvalidInputError

NAME_BYTES_MAX: Final = 512
"""Of a whole name in UTF-8; S3 takes 1 024 with the prefix of the store."""

PART_CHARS_MAX: Final = 255
"""Of a part as a file name (`file_name`): file systems take no more."""

_UNHELD: Final = "\x7f\\\ufffe\uffff"
"""SeaweedFS takes a backslash for a slash; XML has none of the last two."""


def checked_name(name: str) -> str:
    """Return a name that every store can hold, unchanged.

    Parts stand between `/`. Refused is what one kind of server or file system
    would change, hide or take for something else: an empty part, a part that
    begins with a dot (`..`, and folders that S3 servers keep beside objects),
    control characters, a backslash, and what is too long for a file name.

    Raises:
        InvalidInputError: a store could not hold it; `field` is `name`.

    Example:
        >>> checked_name("packs/1 %.pack")
        'packs/1 %.pack'
        >>> checked_name("packs/../keys")
        Traceback (most recent call last):
        ...
        turnstate.schemas.errors.InvalidInputError: the object name 'packs/../keys' \
has a part that begins with a dot
    """
    why = _fault(name)
    if why:
        raise InvalidInputError(f"the object name {name[:80]!r} {why}", field="name")
    return name


def is_name(name: str) -> bool:
    """Say whether an object can have a name.

    Example:
        >>> is_name("packs/1"), is_name("packs/")
        (True, False)
    """
    return _fault(name) is None


def file_name(part: str) -> str:
    """Return the file name of a part: ASCII, one for one, the same everywhere.

    File systems differ in what they make of accents, of `:` or of a trailing
    space; none of them changes these characters.

    Example:
        >>> file_name("é 1.pack")
        '%C3%A9%201.pack'
    """
    return quote(part, safe="")


def part_of(file: str) -> str | None:
    """Invert `file_name`; None for a file that no object has.

    Example:
        >>> part_of("%C3%A9%201.pack"), part_of("é"), part_of(".DS_Store")
        ('é 1.pack', None, None)
    """
    try:
        part = unquote(file, errors="strict")
        known = quote(part, safe="") == file and is_name(part)
    except UnicodeError:
        return None
    return part if known else None


def _fault(name: str) -> str | None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "has a lone surrogate, which no UTF-8 can hold"
    if size > NAME_BYTES_MAX:
        return f"has {size} bytes in UTF-8, of at most {NAME_BYTES_MAX}"
    if any(character < " " or character in _UNHELD for character in name):
        return "has a control character, or another that S3 or XML does not hold"
    for part in name.split("/"):
        if not part:
            return "is empty, or has an empty part"
        if part.startswith("."):
            return "has a part that begins with a dot"
        if len(quote(part, safe="")) > PART_CHARS_MAX:
            return f"has a part of more than {PART_CHARS_MAX} characters, % escaped"
    return None
