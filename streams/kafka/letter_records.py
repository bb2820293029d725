"""Read dead letters back from their topic, and say which of them are settled."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from turnstate.agents.dead_letters import DeadLetter
from turnstate.schemas.errors import CorruptDataError, NotFoundError
from turnstate.streams.kafka.letters import KEPT_HEADERS
from turnstate.streams.kafka.receipts import Headers

NOWHERE: Final = -1
"""Partition and offset of what was refused before it came to any topic."""

SETTLES: Final = "settles"
HOW: Final = "how"
REDRIVEN: Final = "redriven"
DISCARDED: Final = "discarded"

_ID: Final = re.compile(r"(\d{1,9})-(\d{1,18})", re.ASCII)


class LetterId(NamedTuple):
    """Where a letter lies in its topic; there, the greater is the younger.

    Example:
        >>> LetterId.read("3-17").name()
        '3-17'
    """

    partition: int
    offset: int

    def name(self) -> str:
        """Return how an operator names it."""
        return f"{self.partition}-{self.offset}"

    @classmethod
    def read(cls, name: str) -> "LetterId":
        """Invert `name`.

        Raises:
            NotFoundError: no letter has such a name.
        """
        match = _ID.fullmatch(name)
        if match is None:
            raise NotFoundError(
                f"there is no dead letter {name!r}",
                field="id",
                hint="turnstate dead-letters list",
            )
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True)
class KeptLetter:
    """A letter as it lies in the topic.

    Attributes:
        id: Where it lies.
        letter: What it says.
        index: Of what was refused, in a packed record.
        key: The key of the record that was refused.
        headers: Those that the record came with and that go along again.
        copies: The same refusal sent again after a crash of the worker.
    """

    id: LetterId
    letter: DeadLetter
    index: int
    key: bytes | None
    headers: Headers
    copies: tuple[LetterId, ...] = ()

    @property
    def refused(self) -> tuple[str, int, int, int] | None:
        """Return the place of what was refused, None where it had none."""
        at = self.letter
        if at.offset == NOWHERE:
            return None
        return at.topic, at.partition, at.offset, self.index


def kept_letter(record: Any) -> KeptLetter:
    """Read a record of the topic of dead letters.

    Raises:
        CorruptDataError: it is no letter; what is missing is named.
    """
    told: Mapping[str, bytes] = dict(record.headers)
    try:
        raw_hash = told.get("raw-hash")
        letter = DeadLetter(
            told["reason"].decode(),
            _text(told, "field"),
            told["message"].decode(),
            record.value,
            int(told["raw-bytes"]),
            None if raw_hash is None else bytes.fromhex(raw_hash.decode()),
            told["topic"].decode(),
            int(told["partition"]),
            int(told["offset"]),
            int(told.get("refused-ms", told["timestamp"])),
            int(told["attempt"]),
            _text(told, "traceparent"),
        )
        index = int(told["index"])
    except (KeyError, ValueError) as error:
        raise CorruptDataError(
            f"a record of the dead letters cannot be read: {error!r}", field="headers"
        ) from error
    return KeptLetter(
        LetterId(record.partition, record.offset),
        letter,
        index,
        record.key,
        [(name, told[name]) for name in KEPT_HEADERS if name in told],
    )


def settling_headers(letter_id: LetterId, how: str) -> Headers:
    """Return the headers of the record that settles a letter of its partition."""
    return [(SETTLES, b"%d" % letter_id.offset), (HOW, how.encode())]


def settled_offset(headers: Sequence[tuple[str, bytes]]) -> int | None:
    """Return which letter a record without a value settles; None = none.

    Example:
        >>> settled_offset(settling_headers(LetterId(3, 17), DISCARDED))
        17
    """
    value = dict(headers).get(SETTLES, b"")
    return int(value) if value.isdigit() and len(value) <= 18 else None


def _text(told: Mapping[str, bytes], name: str) -> str | None:
    value = told.get(name)
    return None if value is None else value.decode()
