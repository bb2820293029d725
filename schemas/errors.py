"""What can go wrong, divided by what the caller should do about it."""

from typing import ClassVar


class TurnstateError(Exception):
    """Be the base of every error that this package raises on purpose.

    It is never raised itself: a caller that catches it catches them all.

    Args:
        message: What happened, in one sentence that names the value.
        field: The field of the input that is at fault, as a dotted path.
        hint: What to do about it.
        code: The short name under which it is answered and dead-lettered.

    Example:
        >>> raise InvalidInputError("role is missing", field="role", hint="add it")
        Traceback (most recent call last):
        ...
        turnstate.schemas.errors.InvalidInputError: role is missing (add it)
    """

    default_code: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        assert type(self) is not TurnstateError, "raise a subclass"
        super().__init__(message)
        self.message = message
        self.field = field
        self.hint = hint
        self.code = code or self.default_code

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidInputError(TurnstateError):
    """The caller's fault: fix the call or the turn, and send it again."""

    default_code = "invalid"
    exit_code = 2
    http_status = 400


class NotFoundError(TurnstateError):
    """The named session, turn or version does not exist."""

    default_code = "not_found"
    exit_code = 3
    http_status = 404


class ErasedKeyError(NotFoundError):
    """What is asked for was sealed by a key that an erase has destroyed."""

    default_code = "erased"
    http_status = 410


class ConflictError(TurnstateError):
    """The input contradicts what is stored: read the state, then decide."""

    default_code = "conflict"
    exit_code = 4
    http_status = 409


class FencedError(TurnstateError):
    """Another owner holds the store or a newer version is there: stop."""

    default_code = "fenced"
    exit_code = 4
    http_status = 409


class CorruptDataError(TurnstateError):
    """Stored bytes are wrong: quarantine them, rebuild from base and log."""

    default_code = "corrupt"
    exit_code = 5
    http_status = 500


class ChecksumError(CorruptDataError):
    """A checksum does not match the bytes that it covers."""

    default_code = "checksum"


class BrokenChainError(CorruptDataError):
    """A frame does not follow from the one before it."""

    default_code = "broken_chain"


class UnknownVersionError(CorruptDataError):
    """The bytes were written by a newer version: upgrade, touch nothing."""

    default_code = "unknown_version"


class UnavailableError(TurnstateError):
    """A tier, a broker or the owner is away: retry with back-off."""

    default_code = "unavailable"
    exit_code = 6
    http_status = 503
