"""Read lines that are turns already: they go on byte for byte."""

from turnstate.replay.readers.faults import no_object
from turnstate.replay.readers.lines import UTF8_MARK


def turn_line(_number: int, line: bytes) -> tuple[bytes, ...]:
    """Pass on a line as it came; the door that takes it checks it, once.

    Raises:
        InvalidInputError: it does not begin as an object.

    Example:
        >>> turn_line(1, b'{"tenant":"t","session":"s","role":"user"}')
        (b'{"tenant":"t","session":"s","role":"user"}',)
    """
    if not line.startswith((b"{", UTF8_MARK + b"{")):
        raise no_object()
    return (line,)
