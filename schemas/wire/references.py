"""Check the clocks and references of a turn: stamps, vectors, parents."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from turnstate.schemas.clocks import Dot, dot_from_address
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import ADDRESS_SIGN, checked_id
from turnstate.schemas.limits import (
    COUNTER_MAX,
    GAP_INTERVALS_MAX,
    PARENTS_MAX,
    SEEN_REPLICAS_MAX,
)
from turnstate.schemas.operation import Reference, SeenVector
from turnstate.schemas.turn import Stamp

Bounds = int | list[int] | tuple[int, ...]
"""A counter up to which all is there, or flat inclusive bounds."""

_ADDRESS_HINT: Final = "a stamped turn names others by address, as @log:7"


class DraftStamp(NamedTuple):
    """The stamp that a turn came with, checked."""

    dot: Dot
    lamport: int
    seen: SeenVector
    incarnation: int


def checked_counter(value: object, field: str, *, least: int = 1) -> int:
    """Return a counter, Lamport time, incarnation or version within its limits.

    Raises:
        InvalidInputError: it is no integer, or beyond the limits.

    Example:
        >>> checked_counter(7, "lamport")
        7
    """
    if type(value) is not int:
        raise InvalidInputError(
            f"{field} is no integer", field=field, hint="send an integer"
        )
    if not least <= value <= COUNTER_MAX:
        raise InvalidInputError(
            f"{field} is out of its limits",
            field=field,
            hint=f"send {least} to {COUNTER_MAX}",
        )
    return value


def checked_stamp(stamp: Stamp, *, recorded: bool) -> DraftStamp:
    """Return a stamp that can be folded, its vector in the shortest form.

    Args:
        stamp: As it came.
        recorded: Written by an owner, who names all that it has seen, however
            many; only what producers send is bounded.

    Raises:
        InvalidInputError: a part is malformed or out of its limits, or `seen`
            names the dot itself or a later one of its replica.
    """
    if type(stamp) is not Stamp:
        raise InvalidInputError(
            "stamp is no stamp", field="stamp", hint="send dot, lamport, seen"
        )
    dot = stamp.dot
    if type(dot) not in (tuple, list) or len(dot) != 2:
        raise InvalidInputError(
            "stamp.dot is no pair", field="stamp.dot", hint="send [replica, counter]"
        )
    replica = checked_id(dot[0], "stamp.dot[0]")
    counter = checked_counter(dot[1], "stamp.dot[1]")
    seen = checked_vector(stamp.seen, "stamp.seen", bounded=not recorded)
    own = seen.get(replica, 0)
    if (own if isinstance(own, int) else own[-1]) >= counter:
        raise InvalidInputError(
            "stamp.seen names the turn itself, or what came after it",
            field="stamp.seen",
            hint="send what the replica had folded before",
        )
    return DraftStamp(
        Dot(replica, counter),
        checked_counter(stamp.lamport, "stamp.lamport"),
        seen,
        checked_counter(stamp.incarnation, "stamp.incarnation"),
    )


def checked_vector(
    vector: Mapping[str, Bounds], field: str, *, bounded: bool = True
) -> SeenVector:
    """Return a vector in its shortest form: no zeros, no whole interval as bounds.

    Args:
        vector: As it came.
        field: What it is called in errors.
        bounded: Whether there may be too many replicas or intervals.

    Raises:
        InvalidInputError: a replica's name or bounds are malformed, or there
            are too many.

    Example:
        >>> checked_vector({"a": 2, "b": [1, 4], "c": [1, 1, 3, 4], "d": 0}, "to")
        {'a': 2, 'b': 4, 'c': (1, 1, 3, 4)}
    """
    if not isinstance(vector, dict):
        raise InvalidInputError(
            f"{field} is no clock", field=field, hint="send {replica: counter}"
        )
    if bounded and len(vector) > SEEN_REPLICAS_MAX:
        raise InvalidInputError(
            f"{field} names {len(vector)} replicas",
            field=field,
            hint=f"at most {SEEN_REPLICAS_MAX}",
        )
    result: SeenVector = {}
    intervals = 0
    for replica, bounds in vector.items():
        checked_id(replica, field)
        place = f"{field}.{replica}"
        if isinstance(bounds, int):
            if checked_counter(bounds, place, least=0):
                result[replica] = bounds
            continue
        spans = _checked_bounds(bounds, place)
        intervals += len(spans) // 2
        result[replica] = spans[1] if len(spans) == 2 and spans[0] == 1 else spans
    if bounded and intervals > GAP_INTERVALS_MAX:
        raise InvalidInputError(
            f"{field} has {intervals} intervals",
            field=field,
            hint=f"at most {GAP_INTERVALS_MAX}",
            code="gap_limit",
        )
    return result


def _checked_bounds(bounds: list[int] | tuple[int, ...], field: str) -> tuple[int, ...]:
    if type(bounds) not in (list, tuple) or not bounds or len(bounds) % 2:
        raise InvalidInputError(
            f"{field} is neither a counter nor bounds",
            field=field,
            hint="send a counter, or [low, high, low, high, …]",
        )
    before = -1
    for at, bound in enumerate(bounds):
        checked_counter(bound, field)
        # Within an interval bounds may be equal; between two there is a hole.
        if bound < before + (2 if at % 2 == 0 else 0):
            raise InvalidInputError(
                f"{field} has bounds that do not ascend",
                field=field,
                hint="send [low, high, low, high, …] with holes between",
            )
        before = bound
    return tuple(bounds)


def checked_parents(
    parent: str | list[str] | None, *, only_addresses: bool, bounded: bool = True
) -> tuple[Reference, ...]:
    """Return the parents, the first one leading; () = a root.

    Args:
        parent: An id, an address, a list of them, or None.
        only_addresses: Whether ids are refused (of a producer's own stamp).
        bounded: Whether there may be too many; an owner names all heads.

    Raises:
        InvalidInputError: a reference is malformed, or there are too many.

    Example:
        >>> checked_parents(["u1", "@log:7", "u1"], only_addresses=False)
        ('u1', Dot(replica='log', counter=7))
    """
    if parent is None:
        return ()
    if isinstance(parent, str):
        return (checked_reference(parent, "parent", only_addresses=only_addresses),)
    if type(parent) is not list:
        raise InvalidInputError(
            "parent is neither an id nor a list of ids",
            field="parent",
            hint="send an id, a list, or null for a root",
        )
    if bounded and len(parent) > PARENTS_MAX:
        raise InvalidInputError(
            f"parent names {len(parent)} turns",
            field="parent",
            hint=f"at most {PARENTS_MAX}",
        )
    found = [
        checked_reference(each, "parent", only_addresses=only_addresses)
        for each in parent
    ]
    return tuple(dict.fromkeys(found))


def checked_reference(
    value: object, field: str, *, only_addresses: bool = False
) -> Reference:
    """Return a dot for an address, an id for an id.

    Raises:
        InvalidInputError: it is malformed, or an id where only addresses do.
    """
    name = checked_id(value, field)
    if name.startswith(ADDRESS_SIGN):
        dot = dot_from_address(name, field)
        # The replica and its text form must be one and the same in all records.
        if dot.address() != name:
            raise InvalidInputError(
                f"{field} {name!r} is no address",
                field=field,
                hint="write the counter without leading zeros",
            )
        return dot
    if only_addresses:
        raise InvalidInputError(
            f"{field} names a turn by its id", field=field, hint=_ADDRESS_HINT
        )
    return name
