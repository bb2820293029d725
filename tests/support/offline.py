"""A client with a clock of its own: it writes offline and hears of others later."""

from collections.abc import Iterable

from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.schemas.operation import MAIN, Body, Op, Reference, encode_body


class Offline:
    """Hold a replica of each session, and stamp by the rules of design §3."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.states: dict[bytes, DialogueState] = {}

    def state(self, key: bytes) -> DialogueState:
        """Return what it knows of a session."""
        found = self.states.get(key)
        return DialogueState.empty(default_graph()) if found is None else found

    def take(self, key: bytes, ops: Iterable[Op]) -> None:
        """Fold what others wrote; a later life replaces an earlier one."""
        for op in ops:
            state = self.state(key)
            if op.incarnation > state.head.incarnation:
                self.begin(key, op.incarnation)
            if op.incarnation >= state.head.incarnation:
                self.states[key] = self.state(key).apply([op])

    def begin(self, key: bytes, incarnation: int) -> None:
        """Forget a session that was erased."""
        self.states[key] = DialogueState.empty(default_graph(), incarnation)

    def nodes(self, key: bytes) -> list[Op]:
        """Return what may be a parent."""
        state = self.state(key)
        return [op for dot, op in state.ops.items() if dot in state.states]

    def heads(self, key: bytes, branch: str) -> tuple[Reference, ...]:
        """Return the default parents of a turn on a branch."""
        branches = self.state(key).head.branches
        found = branches.get(branch) or branches.get(MAIN)
        return found.heads if found else ()

    def write(
        self,
        key: bytes,
        body: Body,
        parents: tuple[Reference, ...],
        *,
        branch: str = MAIN,
        turn_id: str | None = None,
    ) -> Op:
        """Stamp an operation and fold it here."""
        state = self.state(key)
        fold = Fold(state.head, default_graph(), {}, {})
        spans = state.head.clock.spans.get(self.name)
        op = Op.stamped(
            body,
            encode_body(body),
            dot=Dot(self.name, spans[-1] + 1 if spans else 1),
            lamport=state.head.lamport + 1,
            seen=fold.seen(),
            incarnation=state.head.incarnation,
            parents=parents,
            branch=branch,
            turn_id=turn_id,
        )
        self.states[key] = state.apply([op])
        return op
