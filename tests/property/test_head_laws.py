"""A head is enough to go on from: it knows of the past what the future needs."""

from functools import partial
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from support.laws import LAW, holds
from support.strategies import GRAPH, Drawn, seeded_world, worlds
from turnstate.schemas.clocks import Dot
from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.dialogue.head import (
    EMPTY_HEAD,
    Head,
    NodeState,
    decode_head,
    decode_node,
    digest,
    encode_head,
    encode_node,
)
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.schemas.dialogue.turn_index import IdEntry, RefoldNeeded, StateNeeded
from turnstate.schemas.operation import Op


class Shelf:
    """Keep between batches what a store keeps: head, index, states by turn.

    Everything goes through its bytes. A state is kept as it was when its turn
    was folded; a redaction since then does not reach it.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.head = encode_head(EMPTY_HEAD)
        self.ids: dict[str, IdEntry] = {}
        self.states: dict[Dot, bytes] = {}
        self.folded: list[Op] = []

    def fold(self, batch: list[Op]) -> Head:
        """Fold a batch; fetch states and start anew as the fold asks."""
        given_states: dict[Dot, NodeState] = {}
        while True:
            fold = Fold(decode_head(self.head), GRAPH, dict(self.ids), given_states)
            try:
                for op in batch:
                    fold.add(op)
                break
            except StateNeeded as needed:
                given_states[needed.dot] = decode_node(self.states[needed.dot])
            except RefoldNeeded:
                batch = sorted([*self.folded, *batch], key=lambda op: op.order)
                given_states = {}
                self.clear()
        self.folded += batch
        self.ids |= fold.ids_changed
        for dot, state in fold.states.items():
            self.states.setdefault(dot, encode_node(state))
        self.head = encode_head(fold.head())
        return fold.head()


def heads_alone_go_on_as_the_whole(ops: list[Op], seed: int) -> None:
    chance = Random(seed)
    left = list(ops)
    chance.shuffle(left)
    shelf = Shelf()
    while left:
        size = 1 + chance.randrange(5)
        batch, left = left[:size], left[size:]
        head = shelf.fold(batch)
        whole = DialogueState.empty(GRAPH).apply(shelf.folded)
        assert digest(head) == whole.digest()
        assert decode_head(encode_head(head)) == head


@LAW
@given(worlds(), st.integers(0, 1 << 30))
def test_heads_alone_go_on_as_the_whole(drawn: Drawn, seed: int) -> None:
    holds(partial(heads_alone_go_on_as_the_whole, seed=seed), drawn.ops)


def test_heads_alone_go_on_in_seeded_worlds() -> None:
    for seed in range(200):
        law = partial(heads_alone_go_on_as_the_whole, seed=seed)
        holds(law, seeded_world(seed).ops)
