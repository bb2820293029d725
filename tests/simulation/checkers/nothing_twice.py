"""No operation is folded twice, and a turn that came twice counts once."""

from support.world import World
from turnstate.schemas.clocks import Dot


def check(world: World) -> None:
    """Count dots, and the ids that one log stamped."""
    for region, name in world.sessions():
        head = region.stored(name.key()).head
        ops = region.ops(name.key())
        dots = [op.dot for op in ops]
        assert len(set(dots)) == len(dots) == head.version, f"{name} has a dot twice"
        assert all(Dot(*dot) in head.clock for dot in dots)
        for stamped_by in world.regions:
            named = [
                op.turn_id
                for op in ops
                if op.dot.replica == stamped_by.name and op.turn_id
            ]
            assert len(set(named)) == len(named), f"{name}: a turn was stamped twice"
        turns = {
            (op.turn_id, op.content_hash) if op.turn_id else op.dot
            for op in ops
            if op.kind == "turn" and op.body.continues is None
        }
        assert head.turn_count == len(turns), f"{name} counts a copy"
