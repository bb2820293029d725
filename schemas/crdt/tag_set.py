"""OR-Set of tags: additions win over removals that had not seen them."""

from collections.abc import Iterable

from turnstate.schemas.clocks import Dot, DotSet
from turnstate.schemas.operation import name_hash

TagSet = dict[str, tuple[Dot, ...]]
"""tag → dots of its live additions, in order (ORSWOT: no tombstones)."""


def write(
    tags: TagSet, dot: Dot, added: Iterable[str], removed: Iterable[str]
) -> TagSet:
    """Return the set after a turn that had seen all of it; removals first.

    Example:
        >>> write({"vip": (Dot("a", 1),)}, Dot("a", 2), ["new"], ["vip"])
        {'new': (Dot(replica='a', counter=2),)}
    """
    result = tags.copy()
    for tag in removed:
        result.pop(tag, None)
    for tag in added:
        result[tag] = (dot,)
    return result


def forget_names(tags: TagSet, hashes: Iterable[bytes]) -> TagSet:
    """Return the set without the tags whose hash a stub remembers."""
    wanted = set(hashes)
    return {tag: dots for tag, dots in tags.items() if name_hash(tag) not in wanted}


def forget_dots(tags: TagSet, dots: DotSet) -> TagSet:
    """Return the set without the additions of the given dots (redaction)."""
    result: TagSet = {}
    for tag, additions in tags.items():
        left = tuple(dot for dot in additions if dot not in dots)
        if left:
            result[tag] = left
    return result


def join(
    first: TagSet, first_context: DotSet, second: TagSet, second_context: DotSet
) -> TagSet:
    """Return the tags that stand after both sides are known."""
    result: TagSet = {}
    for tag in {**first, **second}:
        mine, theirs = first.get(tag, ()), second.get(tag, ())
        kept = {dot for dot in mine if dot in theirs or dot not in second_context}
        kept |= {dot for dot in theirs if dot in mine or dot not in first_context}
        if kept:
            result[tag] = tuple(sorted(kept))
    return result
