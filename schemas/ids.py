"""Names of tenants, sessions and turns, and the keys made of them."""

from hashlib import blake2b
from typing import NamedTuple

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.limits import ID_BYTES_MAX

ADDRESS_SIGN = "@"
"""What an address by dot starts with; no turn id may."""


class SessionName(NamedTuple):
    """Name a session: no tenant sees another's, whatever letters they use.

    Example:
        >>> SessionName("a:b", "c").key() == SessionName("a", "b:c").key()
        False
    """

    tenant: str
    session: str

    def key(self) -> bytes:
        r"""Return the session key: 2-byte length of the tenant, tenant, session.

        Injective, since the length says where the tenant ends; no key of one
        tenant is a prefix match for another's (design §7).

        Example:
            >>> SessionName("t", "s").key()
            b'\x00\x01ts'
        """
        tenant = self.tenant.encode()
        return len(tenant).to_bytes(2, "big") + tenant + self.session.encode()

    @classmethod
    def from_key(cls, key: bytes) -> "SessionName":
        """Invert `key`.

        Raises:
            InvalidInputError: the bytes are no session key.
        """
        length = int.from_bytes(key[:2], "big")
        if len(key) < 2 + length + 1 or length == 0:
            raise InvalidInputError("these bytes are no session key", field="key")
        try:
            return cls(key[2 : 2 + length].decode(), key[2 + length :].decode())
        except UnicodeDecodeError as error:
            raise InvalidInputError(
                "a session key holds bytes that are not UTF-8", field="key"
            ) from error


def tenant_prefix(tenant: str) -> bytes:
    """Return what every session key of a tenant, and no other key, starts with."""
    name = tenant.encode()
    return len(name).to_bytes(2, "big") + name


def checked_id(value: object, field: str) -> str:
    """Return an id that may be a key, or say what is wrong with it.

    Text is exact: no normalisation, so NFC and NFD spellings are two ids.

    Raises:
        InvalidInputError: it is no text, empty, longer than 512 bytes, holds
            NUL or half of a surrogate pair. The field is named.

    Example:
        >>> checked_id("s-1", "session")
        's-1'
        >>> checked_id("", "id")
        Traceback (most recent call last):
        ...
        turnstate.schemas.errors.InvalidInputError: id is empty (1 to 512 bytes)
    """
    if type(value) is not str:
        raise InvalidInputError(
            f"{field} is no text", field=field, hint="send a string"
        )
    if not value:
        raise InvalidInputError(
            f"{field} is empty", field=field, hint=f"1 to {ID_BYTES_MAX} bytes"
        )
    if value.isascii():
        length = len(value)
    else:
        try:
            length = len(value.encode())
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                f"{field} holds half of a surrogate pair",
                field=field,
                hint="send whole characters",
                code="lone_surrogate",
            ) from error
    if length > ID_BYTES_MAX:
        raise InvalidInputError(
            f"{field} has {length} bytes",
            field=field,
            hint=f"1 to {ID_BYTES_MAX} bytes",
        )
    if "\0" in value:
        raise InvalidInputError(
            f"{field} holds a NUL", field=field, hint="leave it out of ids"
        )
    return value


def checked_turn_id(value: object, field: str = "turn_id") -> str:
    """Return a turn id; like `checked_id`, and it may not start with `@`."""
    name = checked_id(value, field)
    if name.startswith(ADDRESS_SIGN):
        raise InvalidInputError(
            f"{field} starts with {ADDRESS_SIGN!r}",
            field=field,
            hint="such names address turns by dot, as @log:7",
        )
    return name


def turn_id_hash(turn_id: str) -> bytes:
    """Return the 8 bytes under which the turn index knows an id."""
    return blake2b(turn_id.encode(), digest_size=8).digest()
