"""The pool of recent states: TTL, room, versions; and patches that are exact."""

import json
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.schemas.errors import ConflictError, CorruptDataError
from turnstate.storage.snapshots import (
    Patch,
    SnapshotPool,
    apply_patch,
    patch_between,
)

TTL_MS = 60_000
canonical = msgspec.json.Encoder(order="sorted").encode


def pool_of(**options: Any) -> SnapshotPool:
    return SnapshotPool(1 << 20, ttl_ms=TTL_MS, **options)


def state(version: int, **fields: Any) -> dict[str, Any]:
    """Return a state with a turn for each version."""
    return {
        "version": version,
        "system": "You are a helpful clerk. " * 20,
        "tools": [{"name": "book", "parameters": {"type": "object"}}],
        "slots": {"area": {"value": "north", "siblings": []}},
        "turns": [turn(number) for number in range(1, version + 1)],
        **fields,
    }


def turn(number: int) -> dict[str, Any]:
    return {"dot": ["log", number], "content": f"turn {number} " * 10}


def ops(patch: Patch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(patch.operations)
    return found


def test_a_window_that_moves_is_a_removal_and_an_addition() -> None:
    """The last five turns are told of, and static fields are not."""
    pool = pool_of()
    for version in (7, 8):
        pool.put(b"k", version, state(version), 0)
    patch = pool.patch(b"k", 7, 8, 0)

    assert patch is not None
    assert ops(patch) == [
        {"op": "remove", "path": "/turns/0"},
        {"op": "add", "path": "/turns/4", "value": turn(8)},
        {"op": "replace", "path": "/version", "value": 8},
    ]


def test_a_turn_that_was_edited_is_patched_in_its_place() -> None:
    edited = state(8)
    edited["turns"][-2] = {**turn(7), "content": "x", "edited": "@log:8"}
    pool = pool_of()
    pool.put(b"k", 7, state(7), 0)
    pool.put(b"k", 8, edited, 0)
    patch = pool.patch(b"k", 7, 8, 0)

    assert patch is not None
    assert {each["path"] for each in ops(patch)} == {
        "/turns/0",
        "/turns/3/content",
        "/turns/3/edited",
        "/turns/4",
        "/version",
    }


def test_static_fields_are_told_of_only_where_they_changed() -> None:
    pool = pool_of()
    pool.put(b"k", 1, state(1), 0)
    pool.put(b"k", 2, state(2), 0)
    pool.put(b"k", 3, state(3, system="Other orders."), 0)
    same, other = pool.patch(b"k", 1, 2, 0), pool.patch(b"k", 2, 3, 0)
    assert same is not None
    assert other is not None

    assert b"clerk" not in same.operations
    assert {"op": "replace", "path": "/system", "value": "Other orders."} in ops(other)
    snapshot = pool.get(b"k", 0, 2)
    assert snapshot is not None
    assert snapshot.whole() == state(2)


def test_a_patch_is_small_beside_the_state() -> None:
    """82 % smaller is the figure published for a system of this kind."""
    pool = pool_of()
    sizes: list[float] = []
    for version in range(1, 40):
        pool.put(b"k", version, state(version), 0)
        patch = pool.patch(b"k", version - 1, version, 0)
        if patch is not None:
            sizes.append(len(patch.operations) / len(canonical(state(version))))

    assert sum(sizes) / len(sizes) < 0.18


def test_a_patch_goes_back_as_well() -> None:
    pool = pool_of()
    for version in (3, 9):
        pool.put(b"k", version, state(version), 0)
    patch = pool.patch(b"k", 9, 3, 0)
    newer, older = pool.get(b"k", 0, 9), pool.get(b"k", 0, 3)
    assert patch is not None
    assert newer is not None
    assert older is not None

    assert apply_patch(newer.whole(), patch) == older.whole()


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from(("", "a", "~/", "é"))
    | st.sampled_from((0.0, 1.0, 1.5)),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(("", "a", "b/c", "d~")), inner, max_size=3),
    max_leaves=8,
)
shown_turns: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"dot": st.tuples(st.just("log"), st.integers(0, 4)).map(list), "more": json_values}
)
turns_of: st.SearchStrategy[Any] = st.lists(shown_turns | json_values, max_size=7)
documents: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "turns": turns_of | json_values,
        **dict.fromkeys(("a", "phase", "slots", "system", "tools"), json_values),
    },
)


@given(documents, documents)
def test_applying_a_patch_gives_the_later_state_exactly(
    one: dict[str, Any], two: dict[str, Any]
) -> None:
    """1 is not 1.0 and not true; what is given is left as it was."""
    pool = pool_of()
    old, new = pool.snapshot(1, one), pool.snapshot(2, two)
    given_ = old.whole()
    kept = deepcopy(given_)
    patch = patch_between(old, new)

    assert canonical(apply_patch(given_, patch)) == canonical(new.whole())
    assert canonical(given_) == canonical(kept)


@given(documents)
def test_between_equal_states_there_is_nothing(one: dict[str, Any]) -> None:
    pool = pool_of()

    patch = patch_between(pool.snapshot(1, one), pool.snapshot(2, deepcopy(one)))
    assert patch.operations == b"[]"


def test_what_has_expired_is_not_served() -> None:
    pool = pool_of()
    pool.put(b"k", 1, state(1), 0)

    assert pool.get(b"k", TTL_MS - 1) is not None
    assert pool.get(b"k", TTL_MS) is None
    assert len(pool) == 0
    assert pool.bytes_held == 0


def test_the_sessions_used_last_are_kept() -> None:
    size = len(canonical(state(5)))
    pool = SnapshotPool(3 * size, ttl_ms=TTL_MS)
    for key in (b"a", b"b", b"c"):
        pool.put(key, 5, state(5), 0)
        pool.get(b"a", 0)
    pool.put(b"d", 5, state(5), 0)

    assert pool.get(b"a", 0) is not None
    assert pool.get(b"b", 0) is None
    assert pool.bytes_held <= pool.budget_bytes


def test_the_last_versions_are_kept_in_order() -> None:
    pool = pool_of(versions_kept=3)
    for version in (4, 2, 3, 1, 5):
        pool.put(b"k", version, state(version), 0)
    newest = pool.get(b"k", 0)

    assert newest is not None
    assert newest.version == 5
    held = [v for v in range(1, 6) if pool.get(b"k", 0, v) is not None]
    assert held == [3, 4, 5]
    assert pool.patch(b"k", 1, 5, 0) is None


def test_static_fields_lie_once() -> None:
    pool = pool_of()
    pool.put(b"k", 1, state(1), 0)
    once = pool.bytes_held
    pool.put(b"k", 2, state(2), 0)

    assert pool.bytes_held - once < len(state(1)["system"])


def test_a_forgotten_session_is_gone() -> None:
    pool = pool_of()
    pool.put(b"k", 1, state(1), 0)
    pool.forget(b"k")
    pool.forget(b"k")

    assert pool.get(b"k", 0) is None
    assert pool.bytes_held == 0


def test_a_patch_for_another_state_is_a_conflict() -> None:
    with pytest.raises(ConflictError):
        apply_patch({}, Patch(1, 2, b'[{"op":"remove","path":"/a"}]'))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'[{"op":"fly"}]', b"[1]", b'[{"op":"add"}]']
)
def test_what_is_no_patch_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        apply_patch({}, Patch(1, 2, data))
