"""What readers are shown of a session's turns: order, edits, redactions, parts."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import UNSET

from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.head import Head, NodeState
from turnstate.schemas.dialogue.state import winning_edit
from turnstate.schemas.dialogue.turn_index import IdEntry
from turnstate.schemas.errors import NotFoundError
from turnstate.schemas.ids import ADDRESS_SIGN
from turnstate.schemas.operation import MAIN, Op, target_of
from turnstate.storage.session_reader import operations
from turnstate.storage.stored_head import StoredHead
from turnstate.storage.warm.rocksdb import WarmStore


class ShownTurn(NamedTuple):
    """A turn as a reader sees it.

    Attributes:
        op: The operation.
        version: The version that it came with.
        edit: The edit whose content shows instead, if any.
        redacted: Whether its text is hidden.
        answers_to_id: False where another turn has its id: it goes by address.
        parts: Turns that continue it, in order.
    """

    op: Op
    version: int
    edit: Op | None
    redacted: bool
    answers_to_id: bool
    parts: "tuple[ShownTurn, ...]" = ()

    def name(self) -> str:
        """Return its id, or its address where it has none that is its own."""
        return self.op.address() if self.answers_to_id else self.op.dot.address()


class SessionView:
    """Show turns of one session as of one head.

    Args:
        store: Where frames, index and asides are.
        key: The session key.
        stored: The head to show.
        at: The head of an older version; `stored`'s where None.
    """

    def __init__(
        self,
        store: WarmStore,
        key: bytes,
        stored: StoredHead,
        at: Head | None = None,
    ) -> None:
        self.store = store
        self.key = key
        self.stored = stored
        self.head = at or stored.head
        self._edits: list[Op] | None = None
        self._recent: dict[str, list[ShownTurn]] = {}

    def state(self, branch: str) -> NodeState | None:
        """Return the state of a branch.

        Raises:
            NotFoundError: the session has no such branch.
        """
        if branch not in self.head.branches and branch != MAIN:
            raise NotFoundError(f"there is no branch {branch!r}", field="branch")
        return self.head.branch_state(branch)

    def recent(self, branch: str) -> list[ShownTurn]:
        """Return the last turns of a branch; reads only the frames they lie in."""
        shown = self._recent.get(branch)
        if shown is None:
            state = self.state(branch)
            if state is None:
                return []
            versions = sorted(turn[3] for turn in state.recent)
            found = {op.dot: (v, op) for v, op in self._at(versions)}
            shown = self._shown([found[Dot(t[1], t[2])] for t in state.recent])
            self._recent[branch] = shown
        return shown

    def listing(self, branch: str) -> list[ShownTurn]:
        """Return the turns of a branch, parents first; O(length of the session)."""
        state = self.state(branch)
        if state is None:
            return []
        effective: dict[Dot, int] = {}
        nodes: list[tuple[tuple[int, str, int], int, Op]] = []
        ops = operations(self.store, self.key, self.stored, 0, self.head.version)
        pairs = [(v, op) for v, op in ops if op.dot in state.context]
        waiting: dict[Dot, list[tuple[int, Op]]] = {}
        ready = list(reversed(pairs))
        while ready:
            version, op = ready.pop()
            parents = [self._dot_of(parent) for parent in op.parents]
            missing = next((p for p in parents if p and p not in effective), None)
            if missing is not None:
                waiting.setdefault(missing, []).append((version, op))
                continue
            above = max((effective[p] for p in parents if p), default=0)
            effective[op.dot] = max(op.lamport, above + 1) if parents else op.lamport
            nodes.append(
                ((effective[op.dot], op.dot.replica, op.dot.counter), version, op)
            )
            ready += waiting.pop(op.dot, ())
        nodes.sort(key=lambda node: node[0])
        return self._shown([(v, op) for _, v, op in nodes if op.body.op is None])

    def turn(self, name: str) -> ShownTurn:
        """Return one turn by id or address.

        Raises:
            NotFoundError: no such turn has come.
        """
        for version, op in operations(
            self.store, self.key, self.stored, 0, self.head.version
        ):
            if op.body.op is None and (
                op.dot.address() == name
                if name.startswith(ADDRESS_SIGN)
                else op.turn_id == name and self._answers(op)
            ):
                return self._shown([(version, op)])[0]
        raise NotFoundError(f"there is no turn {name!r}", field="turn")

    # -- ------------------------------------------------------------------

    def _at(self, versions: Sequence[int]) -> Iterable[tuple[int, Op]]:
        """Yield the operations of some versions, neighbours in one read."""
        begin = 0
        for at in range(1, len(versions) + 1):
            if at == len(versions) or versions[at] > versions[at - 1] + 16:
                wanted = set(versions[begin:at])
                for version, op in operations(
                    self.store,
                    self.key,
                    self.stored,
                    versions[begin] - 1,
                    versions[at - 1],
                ):
                    if version in wanted:
                        yield version, op
                begin = at

    def _dot_of(self, reference: Dot | str) -> Dot | None:
        if isinstance(reference, Dot):
            return reference
        entry = self._entry(reference)
        return entry.dot if entry else None

    def _entry(self, turn_id: str) -> IdEntry | None:
        incarnation = self.head.incarnation
        return self.store.entry(self.key, incarnation, turn_id)

    def _shown(self, pairs: Sequence[tuple[int, Op]]) -> list[ShownTurn]:
        first: dict[tuple[str, bytes], Op] = {}
        if self.head.twins:
            for _, op in pairs:
                if op.turn_id is not None:
                    group = (op.turn_id, op.content_hash)
                    if group not in first or op.order < first[group].order:
                        first[group] = op
        turns: list[ShownTurn] = []
        for version, op in pairs:
            mine = first.get((op.turn_id or "", op.content_hash), op)
            if mine is op:
                turns.append(self._one(version, op))
        return _with_parts(turns)

    def _one(self, version: int, op: Op) -> ShownTurn:
        redacted = op.dot in self.head.redacted
        edit = None if redacted else self._edit_of(op)
        return ShownTurn(op, version, edit, redacted, self._answers(op))

    def _answers(self, op: Op) -> bool:
        twins = self.head.twins.get(op.turn_id or "")
        if not twins:
            return True
        return min(twins, key=lambda twin: twin.order).content_hash == op.content_hash

    def _edit_of(self, op: Op) -> Op | None:
        if self._edits is None:
            self._edits = self._all_edits()
        mine = [edit for edit in self._edits if self._names(edit, op)]
        return winning_edit(mine) if mine else None

    def _names(self, edit: Op, op: Op) -> bool:
        reference = target_of(edit)
        if not isinstance(reference, Dot):
            return reference == op.turn_id and self._answers(op)
        if reference == op.dot:
            return True
        return any(
            (twin.replica, twin.counter) == reference
            and twin.content_hash == op.content_hash
            for twin in self.head.twins.get(op.turn_id or "", ())
        )

    def _all_edits(self) -> list[Op]:
        if not self.head.asides.spans:
            return []
        versions = self.store.asides(self.key, self.head.incarnation)
        versions = [v for v in versions if v <= self.head.version]
        return [
            op
            for _, op in self._at(versions)
            if op.body.op == "edit"
            and (op.body.content is not UNSET or op.body.parts is not None)
        ]


def _with_parts(turns: list[ShownTurn]) -> list[ShownTurn]:
    """Put turns that continue another one into it, where that one is shown."""
    if all(turn.op.body.continues is None for turn in turns):
        return turns
    places: dict[str, int] = {}
    result: list[ShownTurn] = []
    for turn in turns:
        continued = turn.op.body.continues
        at = places.get(continued) if continued is not None else None
        if at is None:
            at = len(result)
            result.append(turn)
        else:
            result[at] = result[at]._replace(parts=(*result[at].parts, turn))
        places[turn.name()] = at
        places[turn.op.dot.address()] = at
    return result
