"""The first field that differs is named, the same one each time."""

from typing import Any

import pytest

from turnstate.replay.divergence import differing_field, first_difference
from turnstate.schemas.clocks import Dot


def state(**changes: Any) -> dict[str, Any]:
    branch = {
        "heads": [Dot("a", 2)],
        "slots": {"Media_2.genre": [(2, "a", 2, b'"x"')], "plain": []},
        "phase": "start",
    }
    whole: dict[str, Any] = {
        "version": 2,
        "clock": {"a": (1, 2)},
        "sum": b"1",
        "lamport": 2,
        "branches": {"main": branch},
        "texts": {Dot("a", 1): "new"},
        "ended": {},
    }
    return whole | changes


def branches(**changes: Any) -> dict[str, Any]:
    return {"main": state()["branches"]["main"] | changes}


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (state(), None),
        (state(sum=b"2"), "sum"),
        (state(sum=b"2", lamport=3), "lamport"),
        (state(version=3, sum=b"2", clock={}), "version"),
        (state(clock={"a": (1, 3)}), "clock.a[1]"),
        (state(clock={"a": (1, 2), "b": (1, 1)}), "clock.b"),
        (state(clock={"a": [1, 2]}), None),
        (state(branches=branches(phase="end")), "branches.main.phase"),
        (state(branches=branches(heads=[])), "branches.main.heads[0]"),
        (
            state(branches=branches(heads=[Dot("a", 2), Dot("b", 1)])),
            "branches.main.heads[1]",
        ),
        (
            state(branches=branches(slots={"plain": []})),
            'branches.main.slots["Media_2.genre"]',
        ),
        (
            state(
                branches=branches(
                    slots={"Media_2.genre": [(2, "a", 2, b"1")], "plain": []}
                )
            ),
            'branches.main.slots["Media_2.genre"][0][3]',
        ),
        (state(branches={}), "branches.main"),
        (state(texts={Dot("a", 1): None}), 'texts["@a:1"]'),
        (state(texts={}), 'texts["@a:1"]'),
        (state(ended={"中": 1}), 'ended["中"]'),
        (state(version=True), "version"),
        (None, "session"),
    ],
)
def test_the_first_difference_is_named(
    other: dict[str, Any] | None, field: str | None
) -> None:
    assert first_difference(state(), other) == field
    assert first_difference(other, state()) == field


def test_two_absent_sessions_are_equal() -> None:
    assert first_difference(None, None) is None


def test_an_unknown_field_is_compared_too() -> None:
    assert first_difference(state(new=1), state()) == "new"


def test_equal_digests_decide() -> None:
    assert differing_field(digests=(b"a", b"a"), states=(state(), None)) is None
    assert differing_field(digests=(b"a", b"b"), states=(state(), state())) == "digest"
    assert (
        differing_field(digests=(b"a", b"b"), states=(state(), state(version=3)))
        == "version"
    )
