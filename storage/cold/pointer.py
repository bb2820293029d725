"""Where a session rests in the cold tier: what the warm store keeps of it."""

import msgspec


class Pointer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Name the bytes of one session's image; they never change.

    Everything that a read needs, so that it takes one range request: of the
    whole image, or of its front alone for the state without text.

    Attributes:
        pack: The object that they are in.
        offset: Of the first byte in it.
        length: In bytes.
        front_bytes: How many of them are enough for `decode_front`.
        crc: CRC32C of all of them.
        incarnation: Which life of the session.
        version: The version of its head.
    """

    pack: str
    offset: int
    length: int
    front_bytes: int
    crc: int
    incarnation: int
    version: int
