"""Check laws over sets of operations, and tell the fewest that break one."""

from collections.abc import Callable
from functools import partial

from hypothesis import HealthCheck, Phase, settings

from turnstate.schemas.operation import Op

LAW = settings(
    max_examples=80,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""Without shrinking: a failure tells its fewest operations, which is quicker."""


def holds(law: Callable[[list[Op]], None], ops: list[Op]) -> None:
    """Check a law; if it fails, tell the fewest operations for which it does."""
    try:
        law(ops)
    except Exception as error:
        error.add_note(told(fewest(ops, partial(_fails, law))))
        raise


def _fails(law: Callable[[list[Op]], None], ops: list[Op]) -> bool:
    try:
        law(ops)
    except Exception:  # noqa: BLE001 - whatever breaks, breaks the law
        return True
    return False


def fewest(ops: list[Op], fails: Callable[[list[Op]], bool]) -> list[Op]:
    """Return a failing set from which none can be left out.

    Far quicker than shrinking the world that made them.

    Args:
        ops: A set for which `fails` holds.
        fails: Says whether a set shows the failure.
    """
    smaller = True
    while smaller:
        smaller = False
        for at in reversed(range(len(ops))):
            rest = ops[:at] + ops[at + 1 :]
            if fails(rest):
                ops, smaller = rest, True
    return ops


def told(ops: list[Op]) -> str:
    """Return the operations as lines that say all that matters."""
    return "\n".join(
        f"{op.kind} {op.dot.address()} lamport={op.lamport} id={op.turn_id} "
        f"branch={op.branch} parents={list(map(_named, op.parents))} seen={op.seen} "
        f"{ {name: value for name, value in _said(op) if value is not None} }"
        for op in ops
    )


def _named(parent: object) -> str:
    return parent if isinstance(parent, str) else f"@{parent[0]}:{parent[1]}"  # type: ignore[index]


def _said(op: Op) -> list[tuple[str, object]]:
    return [(name, getattr(op.body, name)) for name in op.body.__struct_fields__]
