"""Logical time: dots, sets of dots, version vectors and the total order."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import ADDRESS_SIGN
from turnstate.schemas.limits import COUNTER_MAX


class Dot(NamedTuple):
    """One operation of one replica within one incarnation of a session.

    Counters run from 1 without holes (dotted version vectors, Preguiça 2010).

    Example:
        >>> Dot("log", 7).address()
        '@log:7'
    """

    replica: str
    counter: int

    def address(self) -> str:
        """Return how a turn without an id is named in every answer."""
        return f"{ADDRESS_SIGN}{self.replica}:{self.counter}"


def dot_from_address(address: str, field: str) -> Dot:
    """Read `@replica:counter`; the last colon divides.

    Raises:
        InvalidInputError: it is no such address.

    Example:
        >>> dot_from_address("@eu:west:3", "parent")
        Dot(replica='eu:west', counter=3)
    """
    replica, colon, digits = address[1:].rpartition(":")
    if (
        not colon
        or not replica
        or not (digits.isascii() and digits.isdigit())
        or len(digits) > 16
        or not 1 <= int(digits) <= COUNTER_MAX
    ):
        raise InvalidInputError(
            f"{field} {address!r} is no address",
            field=field,
            hint="write @replica:counter, as @log:7",
        )
    return Dot(replica, int(digits))


class DotSet(Struct, array_like=True, eq=False, gc=False):
    """Hold a set of dots as intervals, small where counters have few holes.

    `spans` maps a replica to a flat tuple of inclusive bounds in ascending
    order: (low, high, low, high, …). Adding the next counter of a replica is
    O(1), membership O(log intervals). Values are never shared for writing:
    `added` and `union` return new sets; `add` changes this one and is for an
    owner who holds the only reference.

    Example:
        >>> a = DotSet.of([Dot("a", 1), Dot("a", 2), Dot("a", 4)])
        >>> a, Dot("a", 3) in a, a.contiguous()
        (DotSet({'a': (1, 2, 4, 4)}), False, {'a': 2})
    """

    spans: dict[str, tuple[int, ...]] = {}

    @classmethod
    def of(cls, dots: Iterable[tuple[str, int]]) -> "DotSet":
        """Return the set of the given (replica, counter) pairs."""
        result = cls()
        for replica, counter in dots:
            result.add(replica, counter)
        return result

    def copy(self) -> "DotSet":
        """Return an equal set that can be changed apart from this one."""
        return DotSet(self.spans.copy())

    def has(self, replica: str, counter: int) -> bool:
        """Say whether the set holds the dot."""
        spans = self.spans.get(replica)
        if spans is None:
            return False
        if len(spans) == 2:
            return spans[0] <= counter <= spans[1]
        low, high = 0, len(spans) // 2
        while low < high:
            middle = (low + high) // 2
            if spans[2 * middle + 1] < counter:
                low = middle + 1
            else:
                high = middle
        return 2 * low < len(spans) and spans[2 * low] <= counter

    def __contains__(self, dot: tuple[str, int]) -> bool:
        return self.has(dot[0], dot[1])

    def add(self, replica: str, counter: int) -> bool:
        """Put in one dot; say whether it was new."""
        spans = self.spans.get(replica)
        if spans is None:
            self.spans[replica] = (counter, counter)
            return True
        last = spans[-1]
        if counter == last + 1:
            self.spans[replica] = (
                (spans[0], counter) if len(spans) == 2 else (*spans[:-1], counter)
            )
            return True
        if counter > last:
            self.spans[replica] = (*spans, counter, counter)
            return True
        if self.has(replica, counter):
            return False
        self.spans[replica] = _united(spans, (counter, counter))
        return True

    def added(self, replica: str, counter: int) -> "DotSet":
        """Return the set with one dot more."""
        spans = self.spans.copy()
        mine = spans.get(replica)
        if mine is not None and mine[-1] + 1 == counter:
            spans[replica] = (
                (mine[0], counter) if len(mine) == 2 else (*mine[:-1], counter)
            )
            return DotSet(spans)
        other = DotSet(spans)
        other.add(replica, counter)
        return other

    def union(self, other: "DotSet") -> "DotSet":
        """Return all dots of both; commutative, associative, idempotent."""
        result = self.copy()
        for replica, spans in other.spans.items():
            mine = result.spans.get(replica)
            if mine is None:
                result.spans[replica] = spans
            elif mine != spans:
                result.spans[replica] = _united(mine, spans)
        return result

    def minus(self, other: "DotSet") -> "DotSet":
        """Return the dots of this set that the other lacks."""
        result = DotSet()
        for replica, spans in self.spans.items():
            theirs = other.spans.get(replica)
            left = _lacking(spans, theirs) if theirs else spans
            if left:
                result.spans[replica] = left
        return result

    def covers(self, other: "DotSet") -> bool:
        """Say whether every dot of the other is here."""
        return not other.minus(self).spans

    def contiguous(self) -> dict[str, int]:
        """Return the version vector: each replica's highest counter before a gap."""
        return {
            replica: spans[1] for replica, spans in self.spans.items() if spans[0] == 1
        }

    def beyond_gaps(self) -> int:
        """Return how many intervals lie beyond a gap."""
        return sum(len(spans) // 2 - (spans[0] == 1) for spans in self.spans.values())

    def holes(self) -> list[tuple[str, int, int]]:
        """Return (replica, low, high), inclusive, of what is missing in between."""
        found: list[tuple[str, int, int]] = []
        for replica in sorted(self.spans):
            spans = self.spans[replica]
            before = 0
            for at in range(0, len(spans), 2):
                if spans[at] > before + 1:
                    found.append((replica, before + 1, spans[at] - 1))
                before = spans[at + 1]
        return found

    def sorted_spans(self) -> dict[str, tuple[int, ...]]:
        """Return the bounds with replicas in order: one set, one form."""
        return {replica: self.spans[replica] for replica in sorted(self.spans)}

    def __len__(self) -> int:
        return sum(
            spans[at + 1] - spans[at] + 1
            for spans in self.spans.values()
            for at in range(0, len(spans), 2)
        )

    def __iter__(self) -> Iterator[Dot]:
        for replica in sorted(self.spans):
            spans = self.spans[replica]
            for at in range(0, len(spans), 2):
                for counter in range(spans[at], spans[at + 1] + 1):
                    yield Dot(replica, counter)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DotSet) and self.spans == other.spans

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.spans.items())))

    def __repr__(self) -> str:
        return f"DotSet({self.sorted_spans()!r})"


def _united(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    pairs = sorted(
        (spans[at], spans[at + 1])
        for spans in (first, second)
        for at in range(0, len(spans), 2)
    )
    result: list[int] = []
    for low, high in pairs:
        if result and low <= result[-1] + 1:
            result[-1] = max(result[-1], high)
        else:
            result += (low, high)
    return tuple(result)


def _lacking(spans: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
    result: list[int] = []
    at = 0
    for index in range(0, len(spans), 2):
        low, high = spans[index], spans[index + 1]
        while at < len(theirs) and theirs[at + 1] < low:
            at += 2
        cursor, look = low, at
        while look < len(theirs) and theirs[look] <= high:
            if theirs[look] > cursor:
                result += (cursor, theirs[look] - 1)
            cursor = max(cursor, theirs[look + 1] + 1)
            look += 2
        if cursor <= high:
            result += (cursor, high)
    return tuple(result)
