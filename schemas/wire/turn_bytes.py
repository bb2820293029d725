"""Read a turn from bytes of either form: by its header, else by its first byte."""

from typing import Final

from turnstate.schemas.draft import Draft
from turnstate.schemas.ids import SessionName
from turnstate.schemas.wire.json import draft_from_json

PROTOBUF_TYPE: Final = "application/x-protobuf"
"""What our own producers put into the header `content-type`."""

FIRST_BYTES: Final = frozenset(
    bytes([number << 3 | wire]) for number in (2, 3) for wire in (0, 1, 2, 5)
)
"""Tags of tenant and session, of a wrong type, too. Writers of protobuf write
fields by number, so every turn begins with them; no text does, and nothing else
that a log holds."""

_JSON_TYPES: Final = frozenset({"application/json", "text/json"})
_PROTOBUF_TYPES: Final = frozenset(
    {PROTOBUF_TYPE, "application/protobuf", "application/vnd.google.protobuf"}
)


def draft_from_bytes(
    raw: bytes, content_type: str | None = None, *, recorded: bool = False
) -> Draft:
    r"""Read one turn and check all of it: what every door calls.

    Args:
        raw: A turn as JSON or as protobuf.
        content_type: What the sender says that it is, parameters and all; None,
            and any type but the two, leaves it to the first byte.
        recorded: See `draft_from_turn`.

    Raises:
        InvalidInputError: the field at fault is named where there is one.

    Example:
        >>> draft_from_bytes(b'{"tenant":"t","session":"s","role":"user"}').key
        b'\x00\x01ts'
        >>> draft_from_bytes(bytes([18, 1, 116, 26, 1, 115, 42, 1, 117])).body.role
        'u'
    """
    if content_type is None and raw[:1] == b"{":
        return draft_from_json(raw, recorded=recorded)  # nearly all there are
    if is_protobuf(raw, content_type):
        # Loaded where it is met first: JSON alone starts 15 ms sooner.
        from turnstate.schemas.wire.protobuf import draft_from_protobuf

        return draft_from_protobuf(raw, recorded=recorded)
    return draft_from_json(raw, recorded=recorded)


def is_protobuf(raw: bytes, content_type: str | None = None) -> bool:
    """Say which form a turn is to be read as; nothing of it is checked.

    Example:
        >>> is_protobuf(b"{}"), is_protobuf(b"{}", "Application/X-Protobuf; v=1")
        (False, True)
    """
    if content_type is not None:
        named = content_type.partition(";")[0].strip().lower()
        if named in _PROTOBUF_TYPES:
            return True
        if named in _JSON_TYPES:
            return False
    return raw[:1] in FIRST_BYTES


def session_key_in(raw: bytes) -> bytes | None:
    r"""Return the session key that a protobuf turn begins with, if it does.

    Looks at its first two fields alone; None says that the whole has to be
    read. What is wrong behind them is found by who reads it.

    Example:
        >>> session_key_in(bytes([18, 1, 116, 26, 1, 115, 42, 1, 117]))
        b'\x00\x01ts'
        >>> session_key_in(bytes([18, 1, 116, 42, 1, 117]))
    """
    start = _end_of(raw, 0, 0x12)
    end = _end_of(raw, start, 0x1A)
    if not 0 < start < end:
        return None
    try:
        return SessionName(raw[2:start].decode(), raw[start + 2 : end].decode()).key()
    except UnicodeDecodeError:
        return None


def _end_of(raw: bytes, at: int, tag: int) -> int:
    """Return where a short field ends; 0 = it is not there, or not short."""
    if len(raw) < at + 2 or raw[at] != tag or not 0 < raw[at + 1] < 128:
        return 0
    end = at + 2 + raw[at + 1]
    return end if end <= len(raw) else 0
