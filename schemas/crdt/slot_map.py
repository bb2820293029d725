"""LWW-Element-Map of slots: what each write replaces, and how two sides join."""

from collections.abc import Iterable, Mapping

from turnstate.schemas.clocks import DotSet
from turnstate.schemas.operation import name_hash

Entry = tuple[int, str, int, bytes]
"""One live write: (lamport, replica, counter, canonical JSON of the value)."""

SlotMap = dict[str, tuple[Entry, ...]]
"""name → live writes, the shown one first; siblings follow in falling order.

Elements carry their dot; the causal context that a join needs is kept by the
owner of the map, once (dotted version vectors, Preguiça 2010; delta CRDTs,
Almeida, Shoker and Baquero 2018).
"""


def write(
    slots: SlotMap,
    stamp: tuple[int, str, int],
    values: Mapping[str, bytes] | None,
    names_deleted: Iterable[str],
) -> SlotMap:
    """Return the map after a turn that had seen all of it.

    Its writes replace everything under their names; O(names in the map).

    Example:
        >>> slots = {"area": ((1, "a", 1, b'"north"'),)}
        >>> write(slots, (2, "a", 2), {"area": b'"south"'}, ())
        {'area': ((2, 'a', 2, b'"south"'),)}
    """
    result = slots.copy()
    for name in names_deleted:
        result.pop(name, None)
    if values:
        for name, value in values.items():
            result[name] = ((*stamp, value),)
    return result


def forget_names(slots: SlotMap, hashes: Iterable[bytes]) -> SlotMap:
    """Return the map without the names whose hash a stub remembers."""
    wanted = set(hashes)
    return {
        name: entries
        for name, entries in slots.items()
        if name_hash(name) not in wanted
    }


def forget_dots(slots: SlotMap, dots: DotSet) -> SlotMap:
    """Return the map without the writes of the given dots (redaction)."""
    result: SlotMap = {}
    for name, entries in slots.items():
        left = tuple(entry for entry in entries if not dots.has(entry[1], entry[2]))
        if left:
            result[name] = left
    return result


def join(
    first: SlotMap, first_context: DotSet, second: SlotMap, second_context: DotSet
) -> SlotMap:
    """Return what both sides know: a write one side has replaced is gone.

    An entry that only one side holds survives if the other side has not seen
    its dot. Commutative, associative, idempotent
    (tests/property/test_state_laws.py).
    """
    result: SlotMap = {}
    for name in {**first, **second}:
        mine, theirs = first.get(name, ()), second.get(name, ())
        if mine == theirs:
            result[name] = mine
            continue
        kept = {entry for entry in mine if entry in theirs}
        kept |= {e for e in mine if not second_context.has(e[1], e[2])}
        kept |= {e for e in theirs if not first_context.has(e[1], e[2])}
        if kept:
            result[name] = tuple(sorted(kept, reverse=True))
    return result


def shown(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return the entries to show: of equal values only the greatest.

    Example:
        >>> shown(((3, "b", 1, b"1"), (2, "a", 1, b"1"), (1, "a", 2, b"2")))
        ((3, 'b', 1, b'1'), (1, 'a', 2, b'2'))
    """
    if len(entries) == 1:
        return entries
    values: set[bytes] = set()
    result: list[Entry] = []
    for entry in sorted(entries, reverse=True):
        if entry[3] not in values:
            values.add(entry[3])
            result.append(entry)
    return tuple(result)
