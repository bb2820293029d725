"""The dictionary that ships with the format, so that short segments pack well."""

from typing import Final

import google_crc32c

_D=open("/tmp/lab/fr/d_half_32768_48_8.bin","rb").read()
NEWEST: Final = _D
SHARED: Final[dict[bytes, bytes]] = {google_crc32c.value(_D).to_bytes(4,"little"):_D}
