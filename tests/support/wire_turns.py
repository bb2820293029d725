"""Draw turns and operations as JSON has them: all fields, all of it let in."""

import json
from typing import Any

from hypothesis import strategies as st

from turnstate.schemas.limits import COUNTER_MAX, USAGE_ABS_MAX

whole_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ids = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    min_size=1,
    max_size=8,
)
turn_ids = ids.filter(lambda name: not name.startswith("@"))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | whole_text,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(whole_text, inner, max_size=4)
    ),
    max_leaves=12,
)
dots = st.tuples(st.sampled_from(["eu", "us", "a:b"]), st.integers(1, 9))
addresses = dots.map(lambda dot: f"@{dot[0]}:{dot[1]}")
references = turn_ids | addresses


@st.composite
def spans(draw: st.DrawFn) -> list[int]:
    """Draw flat bounds that ascend, with holes between."""
    bounds: list[int] = []
    at = 0
    for _ in range(draw(st.integers(1, 3))):
        low = at + draw(st.integers(1 if at == 0 else 2, 4))
        at = low + draw(st.integers(0, 3))
        bounds += (low, at)
    return bounds


vectors = st.dictionaries(ids, st.integers(0, 9) | spans(), max_size=3)
functions: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"arguments": whole_text}, optional={"name": whole_text}
)
calls: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"function": functions},
    optional={"id": whole_text, "type": st.just("function"), "more": values},
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "turn_id": turn_ids,
    "content": st.none() | whole_text | st.lists(values, max_size=2),
    "tool_calls": st.lists(calls, max_size=2),
    "tool_call_id": whole_text,
    "name": whole_text,
    "slots": st.fixed_dictionaries(
        {},
        optional={
            "set": st.dictionaries(ids, values, max_size=3),
            "delete": st.lists(ids, max_size=3),
        },
    ),
    "tags": st.fixed_dictionaries(
        {},
        optional={
            "add": st.lists(ids, max_size=3),
            "remove": st.lists(ids, max_size=3),
        },
    ),
    "usage": st.dictionaries(
        ids, st.integers(-USAGE_ABS_MAX, USAGE_ABS_MAX), max_size=3
    ),
    "intent": whole_text,
    "confidence": st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 9),
    "action": whole_text,
    "parent": st.none() | references | st.lists(references, max_size=3),
    "branch": ids,
    "continues": ids,
    "stage": whole_text,
    "time": st.integers(-1_000, 10**12) | st.just("2024-05-01T12:00:00.5+02:00"),
    "user": ids,
    "metadata": values,
    "request_id": ids,
    "if_version": st.integers(0, COUNTER_MAX),
    "mood": values,
    "extra": values,
}
heads = st.fixed_dictionaries(
    {
        "tenant": ids,
        "session": ids,
        "role": st.sampled_from(["user", "assistant", "tool"]) | ids,
    }
)
operations = (
    st.fixed_dictionaries(
        {"op": st.just("edit"), "target": references, "content": FIELDS["content"]}
    )
    | st.fixed_dictionaries({"op": st.just("redact"), "target": references})
    | st.fixed_dictionaries({"op": st.just("rollback"), "to": vectors})
    | st.fixed_dictionaries(
        {"op": st.just("fork"), "branch": ids.filter(lambda name: name != "main")},
        optional={"target": references},
    )
    | st.fixed_dictionaries({"op": st.just("end")}, optional={"to": ids})
)
stamps = st.fixed_dictionaries(
    {"dot": st.just(["own", 7]), "lamport": st.integers(1, COUNTER_MAX)},
    optional={
        "seen": vectors.filter(lambda vector: "own" not in vector),
        "incarnation": st.integers(1, COUNTER_MAX),
    },
)


@st.composite
def spoken_turns(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a turn, or an operation, as JSON has it; all of it is let in."""
    value = draw(heads)
    if draw(st.integers(0, 3)) == 3:
        return value | draw(operations)
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), unique=True, max_size=6))
    value |= {name: draw(FIELDS[name]) for name in names}
    own = value.get("turn_id")
    parents = value.get("parent")
    if own is not None and (parents == own or own in (parents or ())):
        del value["parent"]
    return value


def spelled(value: Any, **how: Any) -> bytes:
    """Return a value as JSON, spelled as `json.dumps` is told to."""
    return json.dumps(value, **how).encode()
