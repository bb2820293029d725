"""CRC32C and LZ4 blocks with types: the two libraries that ship none."""

from collections.abc import Callable
from typing import Any, Final, cast

import google_crc32c
import lz4.block

crc32c: Final = cast("Callable[[bytes], int]", cast("Any", google_crc32c).value)
"""The CRC32C of some bytes."""

crc32c_more: Final = cast(
    "Callable[[int, bytes], int]", cast("Any", google_crc32c).extend
)
"""The CRC32C of what a checksum covers and then some bytes."""

lz4_compress: Final = cast("Callable[..., bytes]", cast("Any", lz4.block).compress)
lz4_decompress: Final = cast("Callable[..., bytes]", cast("Any", lz4.block).decompress)
Lz4Error: Final = cast("type[Exception]", cast("Any", lz4.block).LZ4BlockError)
