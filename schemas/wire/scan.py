"""Read JSON bytes once, slowly, and name the first thing that is wrong with them."""

import re
from typing import Final, NoReturn

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.limits import JSON_DEPTH_MAX, RECORD_BYTES_MAX

SCANNED_BYTES_MAX: Final = 6 * RECORD_BYTES_MAX
"""Without its white space a record shrinks to a sixth at most: by its escapes."""

PATH_LETTERS_MAX: Final = 200
"""Letters of a path that an error shows; keys can be as long as the input."""

_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_AS_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_SPACE: Final = re.compile(rb"[ \t\n\r]*")
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD: Final = re.compile(rb"[-+]?[A-Za-z]+")
_HEX: Final = re.compile(rb"[0-9A-Fa-f]{4}")
_NUMBER_NAMES: Final = frozenset(
    sign + name
    for sign in (b"", b"-", b"+")
    for name in (b"NaN", b"nan", b"Infinity", b"Inf", b"inf", b"infinity")
)
_ESCAPES: Final = {
    0x22: '"',
    0x5C: "\\",
    0x2F: "/",
    0x62: "\b",
    0x66: "\f",
    0x6E: "\n",
    0x72: "\r",
    0x74: "\t",
}


def scan(raw: bytes, *, field: str = "", depth: int = 0) -> None:
    """Refuse JSON bytes that a reader might take in two ways, or choke on.

    Refused by name: bytes that are not UTF-8, halves of surrogate pairs,
    NaN, infinities and numbers beyond a double, a key given twice (at any
    level, however it is escaped), more than `JSON_DEPTH_MAX` levels, anything
    that is not JSON. Nothing recurses, so depth costs nothing.

    Args:
        raw: One JSON value.
        field: The path of that value, put before the paths in errors.
        depth: Levels that already stand around it.

    Raises:
        InvalidInputError: with the dotted path of the value at fault and the
            code `not_utf8`, `lone_surrogate`, `number`, `doubled_key`,
            `too_deep` or `not_json`.

    Example:
        >>> scan(b'{"a": [1, {"b": 2}]}')
        >>> scan(b'{"a": [1, {"b": 1e999}]}')  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        turnstate.schemas.errors.InvalidInputError: a[1].b is beyond a double (...
    """
    _Scan(raw, field, depth).run()


def explain(raw: bytes, *, field: str = "", depth: int = 0) -> None:
    """Scan for the reason, unless the record is too large whatever it is.

    The scan takes up to a second a megabyte; what cannot become a record that
    is kept is not worth that.

    Raises:
        InvalidInputError: as `scan`, or with the code `too_large`.
    """
    if (
        len(raw) > SCANNED_BYTES_MAX
        and len(raw.translate(None, b" \t\r\n")) > SCANNED_BYTES_MAX
    ):
        raise too_large(len(raw))
    scan(raw, field=field, depth=depth)


def too_large(size: int) -> InvalidInputError:
    """Return how a record of so many bytes is refused."""
    return InvalidInputError(
        f"the record has {size} bytes",
        field="record",
        hint="send larger parts by reference",
        code="too_large",
    )


def is_too_deep(raw: bytes, depth: int = 0) -> bool:
    """Say whether JSON is nested beyond the limit, much faster than the scan.

    Counting brackets settles it for nearly every value. Where there are many,
    strings are taken out and pairs that hold nothing are removed, one level a
    round, so that even a megabyte of brackets takes milliseconds.

    Args:
        raw: JSON; of anything else the answer may be wrong.
        depth: Levels that stand around it.

    Example:
        >>> is_too_deep(b"[[]," * 64 + b"[]" + b"]" * 64)
        True
        >>> is_too_deep(b"[" + b"{}," * 64 + b"{}]")
        False
    """
    if depth + raw.count(b"{") + raw.count(b"[") <= JSON_DEPTH_MAX:
        return False
    left = _STRING.sub(b"", raw).translate(_AS_SQUARE, _NO_BRACKETS)
    for _ in range(JSON_DEPTH_MAX - depth):
        if not left:
            return False
        left = left.replace(b"[]", b"")
    return bool(left)


class _Scan:
    """One pass over the bytes; `path` says where it stands."""

    __slots__ = ("at", "depth", "field", "keys", "path", "raw")

    def __init__(self, raw: bytes, field: str, depth: int) -> None:
        self.raw = raw
        self.field = field
        self.depth = depth
        self.at = 0
        self.path: list[str | int] = []
        """The key or index, in each open object or array, of the current value."""
        self.keys: list[set[str] | None] = []
        """The keys so far of each open object; None for an array."""

    def run(self) -> None:
        """Read one value and nothing after it."""
        self._space()
        self._value()
        while self.keys:
            self._next()
        self._space()
        if self.at != len(self.raw):
            self._refuse("has something after its end", "not_json", "send one value")

    def _value(self) -> None:
        """Read a whole simple value, or enter an array or object."""
        raw, at = self.raw, self.at
        first = raw[at : at + 1]
        if first == b'"':
            self.at += 1
            self._string()
        elif first in (b"{", b"["):
            self._enter(is_object=first == b"{")
        elif first and first in b"-0123456789":
            self._number()
        else:
            self._word()

    def _enter(self, *, is_object: bool) -> None:
        if self.depth + len(self.keys) >= JSON_DEPTH_MAX:
            self._refuse(
                f"is nested more than {JSON_DEPTH_MAX} deep",
                "too_deep",
                "send inner parts as a string or by reference",
            )
        self.at += 1
        self._space()
        closing = b"}" if is_object else b"]"
        if self.raw[self.at : self.at + 1] == closing:
            self.at += 1
            return
        if is_object:
            self.keys.append(set())
            self.path.append("")
            self._key()
        else:
            self.keys.append(None)
            self.path.append(0)
        self._value()

    def _next(self) -> None:
        """Go on after a value: the next one in the innermost, or its end."""
        self._space()
        keys = self.keys[-1]
        sign = self.raw[self.at : self.at + 1]
        if sign == b",":
            self.at += 1
            self._space()
            if keys is None:
                self.path[-1] = int(self.path[-1]) + 1
            else:
                self._key()
            self._value()
        elif sign == (b"]" if keys is None else b"}"):
            self.at += 1
            self.keys.pop()
            self.path.pop()
        else:
            self._malformed()

    def _key(self) -> None:
        self.path[-1] = ""
        if self.raw[self.at : self.at + 1] != b'"':
            self._malformed()
        self.at += 1
        key = self._string()
        self.path[-1] = key
        keys = self.keys[-1]
        assert keys is not None, "a key stands in an object"
        if key in keys:
            self._refuse("is given twice", "doubled_key", "leave one")
        keys.add(key)
        self._space()
        if self.raw[self.at : self.at + 1] != b":":
            self._malformed()
        self.at += 1
        self._space()

    def _string(self) -> str:
        """Read on from behind the opening quote; return the text."""
        raw = self.raw
        parts: list[str] = []
        while True:
            plain = _PLAIN.match(raw, self.at)
            assert plain is not None, "the pattern matches nothing, too"
            if plain.end() > self.at:
                parts.append(self._text(plain.group()))
                self.at = plain.end()
            sign = raw[self.at : self.at + 1]
            self.at += 1
            if sign == b'"':
                return "".join(parts)
            if sign != b"\\":
                self.at -= 1
                self._malformed()
            parts.append(self._escape())

    def _text(self, plain: bytes) -> str:
        try:
            return plain.decode()
        except UnicodeDecodeError as error:
            half = plain[error.start : error.start + 2]
            if len(half) == 2 and half[0] == 0xED and half[1] >= 0xA0:
                self._lone(error)
            self._refuse(
                "holds bytes that are not UTF-8", "not_utf8", "send UTF-8", error
            )

    def _escape(self) -> str:
        """Read on from behind a backslash; return what it stands for."""
        raw = self.raw
        letter = raw[self.at] if self.at < len(raw) else 0
        self.at += 1
        if letter != 0x75:
            text = _ESCAPES.get(letter)
            if text is None:
                self._malformed()
            return text
        unit = self._unit()
        if not 0xD800 <= unit <= 0xDFFF:
            return chr(unit)
        if unit >= 0xDC00 or raw[self.at : self.at + 2] != b"\\u":
            self._lone()
        self.at += 2
        second = self._unit()
        if not 0xDC00 <= second <= 0xDFFF:
            self._lone()
        return chr(0x10000 + ((unit - 0xD800) << 10) + (second - 0xDC00))

    def _unit(self) -> int:
        digits = _HEX.match(self.raw, self.at)
        if digits is None:
            self._malformed()
        self.at = digits.end()
        return int(digits.group(), 16)

    def _number(self) -> None:
        token = _NUMBER.match(self.raw, self.at)
        if token is None:
            self._word()
            return
        if token.lastindex and float(token.group()) in (_INFINITE, -_INFINITE):
            self._refuse("is beyond a double", "number", "send it as a string")
        self.at = token.end()
        if self.raw[self.at : self.at + 1].isalnum():
            self._malformed()

    def _word(self) -> None:
        token = _WORD.match(self.raw, self.at)
        word = token.group() if token else b""
        if word in _NUMBER_NAMES:
            self._refuse(
                f"is {word.decode()}, which is no JSON number",
                "number",
                "send null or a string",
            )
        if word not in (b"true", b"false", b"null"):
            self._malformed()
        self.at += len(word)

    def _space(self) -> None:
        space = _SPACE.match(self.raw, self.at)
        assert space is not None, "the pattern matches nothing, too"
        self.at = space.end()

    def _lone(self, cause: Exception | None = None) -> NoReturn:
        self._refuse(
            "holds half of a surrogate pair",
            "lone_surrogate",
            "send whole characters",
            cause,
        )

    def _malformed(self) -> NoReturn:
        if self.at >= len(self.raw):
            self._refuse("ends too soon", "not_json", "send one whole JSON value")
        self._refuse(
            f"is no JSON at byte {self.at}", "not_json", "send one whole JSON value"
        )

    def _refuse(
        self, what: str, code: str, hint: str, cause: Exception | None = None
    ) -> NoReturn:
        path = dotted(self.field, self.path)
        raise InvalidInputError(
            f"{path or 'the record'} {what}", field=path or None, hint=hint, code=code
        ) from cause


_INFINITE: Final = float("inf")


def dotted(field: str, path: list[str | int]) -> str:
    """Return a path as errors show it, cut where it gets too long.

    Example:
        >>> dotted("metadata", ["a", 2, "b"])
        'metadata.a[2].b'
    """
    text = field
    for step in path:
        if len(text) > PATH_LETTERS_MAX:
            break
        if type(step) is int:
            text += f"[{step}]"
        elif step != "":
            text += f".{step}" if text else str(step)
    return text if len(text) <= PATH_LETTERS_MAX else text[:PATH_LETTERS_MAX] + "…"
