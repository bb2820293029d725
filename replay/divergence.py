"""Find the first field in which two folded states of one session differ."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

from turnstate.schemas.clocks import Dot

DIGEST_FIELD: Final = "digest"
"""What differs where every field is equal: the states were folded by other code."""

_FIRST_FIELDS: Final = ("version", "clock", "branches")
_LAST_FIELDS: Final = ("lamport", "sum")
"""`sum` differs whenever anything does and explains nothing: it comes last."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

_Path = tuple[str | int | Dot, ...]


def first_difference(
    left: Mapping[str, Any] | None, right: Mapping[str, Any] | None
) -> str | None:
    """Return the path of the first field that differs, or None where none does.

    Fields are looked at in a fixed order, causes before consequences, so that
    two runs name the same one. A list and a tuple of equal elements are equal,
    and so are an integer and a float of one value: a state may have passed
    through JSON.

    Args:
        left: A folded state; None = the session is not there.
        right: Likewise.

    Example:
        >>> first_difference(
        ...     {"version": 2, "branches": {"main": {"slots": {"a.b": [1]}}}},
        ...     {"version": 2, "branches": {"main": {"slots": {"a.b": [2]}}}},
        ... )
        'branches.main.slots["a.b"][0]'
    """
    if left is None or right is None:
        return None if left is right else "session"
    order = [
        *_FIRST_FIELDS,
        *sorted((left.keys() | right.keys()) - {*_FIRST_FIELDS, *_LAST_FIELDS}),
        *_LAST_FIELDS,
    ]
    for field in order:
        if field in left or field in right:
            if field not in left or field not in right:
                return field
            path = _difference(left[field], right[field], (field,))
            if path is not None:
                return _shown(path)
    return None


def differing_field(
    *,
    digests: tuple[bytes | str, bytes | str],
    states: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
) -> str | None:
    """Return what a replay report names for a session, or None where it is equal.

    The digests decide; the states only say where to look.

    Example:
        >>> differing_field(digests=("a", "b"), states=({"version": 1}, {"version": 1}))
        'digest'
    """
    if digests[0] == digests[1]:
        return None
    return first_difference(*states) or DIGEST_FIELD


def _difference(left: object, right: object, path: _Path) -> _Path | None:
    if _is_map(left) and _is_map(right):
        return _difference_of_maps(left, right, path)
    if _is_list(left) and _is_list(right):
        return _difference_of_lists(left, right, path)
    if isinstance(left, bool) != isinstance(right, bool) or left != right:
        return path
    return None


def _difference_of_maps(
    left: Mapping[Any, Any], right: Mapping[Any, Any], path: _Path
) -> _Path | None:
    # Key order is no part of a folded state.
    for key in sorted(left.keys() | right.keys()):
        if key not in left or key not in right:
            return (*path, key)
        found = _difference(left[key], right[key], (*path, key))
        if found is not None:
            return found
    return None


def _difference_of_lists(
    left: Sequence[Any], right: Sequence[Any], path: _Path
) -> _Path | None:
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        found = _difference(one, other, (*path, index))
        if found is not None:
            return found
    if len(left) != len(right):
        return (*path, min(len(left), len(right)))
    return None


def _is_map(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _shown(path: _Path) -> str:
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif isinstance(step, Dot):
            text += f"[{json.dumps(step.address(), ensure_ascii=False)}]"
        elif _PLAIN_NAME.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step, ensure_ascii=False)}]"
    return text
