"""Draw sets of operations: three replicas that seldom hear of each other make them."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple, TypeVar

from hypothesis import strategies as st

from turnstate.schemas.clocks import Dot, DotSet
from turnstate.schemas.dialogue.fold_set import fold_set
from turnstate.schemas.dialogue.folded import Folded
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.operation import (
    MAIN,
    Body,
    Op,
    Reference,
    SeenVector,
    encode_body,
    seen_vector,
)

T = TypeVar("T")

Below = Callable[[int], int]
"""Return a number from 0 up to, and without, the given one: all chance there is."""

REPLICAS: Final = ("eu", "log", "us")
BRANCHES: Final = (MAIN, MAIN, MAIN, "b1", "b2")
SLOTS: Final = ("area", "food", "price")
VALUES: Final = (b'"a"', b'"b"', b"3")
TAGS: Final = ("vip", "new")
CALLS: Final = ("c1", "c2")
ACTIONS: Final = ("inform", "offer", "select", "request", "bye", "sing")
ODD_SEEN: Final[tuple[SeenVector, ...]] = (
    {},
    {"eu": 99},
    {"log": (2, 3, 6, 9), "us": 2},
    {"eu": 4, "log": 4, "us": 4},
)
"""What no honest owner writes: nothing, what is to come, holes, half of all."""

GRAPH: Final = default_graph()


class Drawn(NamedTuple):
    """A world that was played.

    Attributes:
        ops: What at least one replica holds at the end, some of it as stubs.
        replicas: What each replica holds; they overlap and cover `ops`.
    """

    ops: list[Op]
    replicas: list[list[Op]]


class Replica:
    """Hold what one owner has, and stamp by the rules of design §3."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ops: dict[Dot, Op] = {}
        self.stamped = 0
        self._view: Folded | None = None

    def take(self, op: Op) -> None:
        """Fold an operation; the same dot again changes nothing."""
        if op.dot not in self.ops:
            self.ops[op.dot] = op
            self._view = None

    def view(self) -> Folded:
        """Return what it folded, by the definition."""
        if self._view is None:
            self._view = fold_set(self.ops.values(), GRAPH)
        return self._view

    def heads(self, branch: str) -> tuple[Dot, ...]:
        """Return the default parents of a turn on the branch."""
        branches = self.view()["branches"]
        found = branches.get(branch) or branches.get(MAIN)
        return tuple(found["heads"]) if found else ()

    def nodes(self) -> list[Dot]:
        """Return what may be a parent: attached turns, rollbacks, forks."""
        parked = set(self.view()["parked"])
        return [
            dot
            for dot, op in self.ops.items()
            if dot not in parked and op.kind in ("turn", "rollback", "fork")
        ]

    def next_dot(self) -> Dot:
        """Return the dot of the next operation that it stamps."""
        return Dot(self.name, self.stamped + 1)

    def stamp(
        self,
        body: Body,
        parents: tuple[Reference, ...],
        *,
        branch: str,
        turn_id: str | None,
        seen: SeenVector | None = None,
        lamport: int | None = None,
    ) -> Op:
        """Stamp as an owner does; a `seen` or `lamport` that is given is odd."""
        view = self.view()
        parked = set(view["parked"])
        attached = DotSet.of(dot for dot in self.ops if dot not in parked)
        op = Op.stamped(
            body,
            encode_body(body),
            dot=self.next_dot(),
            lamport=view["lamport"] + 1 if lamport is None else lamport,
            seen=seen_vector(attached) if seen is None else seen,
            incarnation=1,
            parents=parents,
            branch=branch,
            turn_id=turn_id,
        )
        self.stamped += 1
        self.take(op)
        return op


class World:
    """Play steps by chance and keep what was made."""

    def __init__(self, below: Below) -> None:
        self.below = below
        self.replicas = [Replica(name) for name in REPLICAS]
        self.made: list[Op] = []
        self.ids = 0

    def one(self, choices: Sequence[T]) -> T:
        """Return one of the choices."""
        return choices[self.below(len(choices))]

    def once_in(self, times: int) -> bool:
        """Say yes once in so many times; no is the simpler answer."""
        return self.below(times) == times - 1

    def step(self) -> None:
        """Let one replica do one thing."""
        owner = self.one(self.replicas)
        does = self.one(STEPS)
        does(self, owner)

    # -- what a replica does ----------------------------------------------

    def turn(self, owner: Replica) -> None:
        """A turn at the heads, or from an older one, a root, or one unknown."""
        branch = self.one(BRANCHES)
        known, made = owner.nodes(), self.made
        parents: tuple[Reference, ...] = owner.heads(branch)
        where = self.below(13)
        if where in (8, 9) and known:
            parents = (self.one(known),)
        elif where == 10 and made:
            odd = owner.next_dot() if self.once_in(12) else self.one(made).dot
            parents = (odd, *parents[:1])
        elif where > 10:
            parents = () if self.once_in(4) else (self.unheard_id(owner),)
        self.stamp(owner, self.body(), parents, branch=branch)

    def again(self, owner: Replica) -> None:
        """A turn whose id another bears: with equal content, or with other."""
        named = [op for op in self.made if op.turn_id]
        if not named:
            return self.turn(owner)
        twin = self.one(named)
        body = self.body() if self.once_in(2) else twin.body
        if body.hidden is not None or body.op is not None:
            body = self.body()
        branch = self.one((twin.branch, self.one(BRANCHES)))
        self.stamp(
            owner, body, owner.heads(branch), branch=branch, turn_id=twin.turn_id
        )
        return None

    def rollback(self, owner: Replica) -> None:
        """Back to the heads of a branch at an earlier clock."""
        branch = self.one(BRANCHES)
        until = self.below(owner.view()["lamport"] + 1)
        then = fold_set((o for o in owner.ops.values() if o.lamport <= until), GRAPH)
        found = then["branches"].get(branch)
        parents = tuple(found["heads"]) if found else ()
        self.stamp(owner, Body(role="system", op="rollback"), parents, branch=branch)

    def fork(self, owner: Replica) -> None:
        """A new branch from any turn, or from the heads of main."""
        name = self.one(("f1", "f2", "b1"))
        if name in owner.view()["branches"]:
            return self.turn(owner)
        known = owner.nodes()
        from_turn = known and self.once_in(2)
        parents = (self.one(known),) if from_turn else owner.heads(MAIN)
        self.stamp(owner, Body(role="system", op="fork"), parents, branch=name)
        return None

    def edit(self, owner: Replica) -> None:
        """Another text for a turn."""
        text = self.one(("better", "best", None))
        body = Body(role="system", op="edit", content=text, target=self.target(owner))
        self.stamp(owner, body, (), branch=MAIN)

    def redact(self, owner: Replica) -> None:
        """A turn hidden."""
        body = Body(role="system", op="redact", target=self.target(owner))
        self.stamp(owner, body, (), branch=MAIN)

    def end(self, owner: Replica) -> None:
        """A branch that goes on elsewhere, or nowhere."""
        body = Body(role="system", op="end", to=self.one((None, "s2", "s3")))
        self.stamp(owner, body, (), branch=self.one(BRANCHES))

    def sync(self, owner: Replica) -> None:
        """Hear of what another holds, not of all of it, in any order."""
        other = self.one([each for each in self.replicas if each is not owner])
        lossless = self.once_in(3)
        missing = [op for dot, op in other.ops.items() if dot not in owner.ops]
        for op in missing if self.below(2) else missing[::-1]:
            if lossless or not self.once_in(4):
                owner.take(op)

    def rewrite(self, owner: Replica) -> None:
        """Leave stubs of what is redacted here."""
        for dot in owner.view()["redacted"]:
            if dot in owner.ops:
                owner.ops[dot] = owner.ops[dot].stub()

    # -- what goes into a turn --------------------------------------------

    def stamp(
        self,
        owner: Replica,
        body: Body,
        parents: tuple[Reference, ...],
        *,
        branch: str,
        turn_id: str | None = None,
    ) -> None:
        """Stamp a body, seldom by a clock that is odd."""
        if turn_id is None and not self.once_in(3):
            self.ids += 1
            turn_id = f"t{self.ids}"
        odd = self.below(40)
        op = owner.stamp(
            body,
            parents,
            branch=branch,
            turn_id=turn_id,
            seen=self.one(ODD_SEEN) if odd in (37, 38) else None,
            lamport=1 + self.below(5) if odd in (38, 39) else None,
        )
        self.made.append(op)

    def unheard_id(self, owner: Replica) -> str:
        """Return an id that the owner does not know, often one that will come."""
        known = {op.turn_id for op in owner.ops.values()}
        ids = [f"t{self.ids + more}" for more in range(-3, 4)]
        return self.one([turn_id for turn_id in ids if turn_id not in known])

    def target(self, owner: Replica) -> str:
        """Name a turn as producers do: by id or address, come or not."""
        if not self.made or self.once_in(8):
            return self.one((self.unheard_id(owner), "@log:7", "@nobody:1"))
        op = self.one(self.made[-5:] if self.below(2) else self.made)
        return op.dot.address() if self.once_in(2) else op.address()

    def body(self) -> Body:
        """Return a turn's body: mostly text, with a few of the other fields."""
        role = self.one(("user", "assistant", "user", "assistant", "tool"))
        calls = role == "assistant" and self.once_in(3)
        return Body(
            role=role,
            content=self.one(("hi", "yes", "no", None)),
            tool_calls=self.tool_calls() if calls else None,
            tool_call_id=self.one(CALLS) if role == "tool" else None,
            slot_set={self.one(SLOTS): self.one(VALUES)} if self.below(2) else None,
            slot_delete=[self.one(SLOTS)] if self.once_in(5) else None,
            tag_add=[self.one(TAGS)] if self.once_in(4) else None,
            tag_remove=[self.one(TAGS)] if self.once_in(6) else None,
            usage={"tokens": self.one((5, 0, -2))} if self.once_in(4) else None,
            action=self.one(ACTIONS) if self.once_in(3) else None,
            continues=f"t{1 + self.below(4)}" if self.once_in(10) else None,
        )

    def tool_calls(self) -> bytes:
        """Return one or two calls as canonical JSON."""
        ids = CALLS if self.once_in(3) else (self.one(CALLS),)
        call = '{"id":"%s","type":"function","function":{"name":"f","arguments":"{}"}}'
        return ("[" + ",".join(call % one for one in ids) + "]").encode()

    # -- the end ----------------------------------------------------------

    def drawn(self) -> Drawn:
        """Lose a few operations for good, and return what is left.

        A redaction that was acted on is not lost: a stub goes with it. Where a
        redaction by id means another turn once all is known, the original is
        put back, as a stub cannot be undone.
        """
        stubbed = any(op.body.hidden for r in self.replicas for op in r.ops.values())
        lost = {
            op.dot
            for op in self.made
            if self.once_in(16) and not (stubbed and op.kind == "redact")
        }
        held = {op.dot: op for r in self.replicas for op in r.ops.values()}
        ops = {dot: op for dot, op in held.items() if dot not in lost}
        still = set(fold_set(ops.values(), GRAPH)["redacted"])
        originals = {op.dot: op for op in self.made if op.dot not in still}
        return Drawn(
            [originals.get(dot, op) for dot, op in ops.items()],
            [
                [originals.get(dot, op) for dot, op in r.ops.items() if dot in ops]
                for r in self.replicas
            ],
        )


STEPS: Final[tuple[Callable[[World, Replica], None], ...]] = (
    *[World.turn] * 9,
    *[World.again] * 2,
    *[World.sync] * 4,
    World.rollback,
    World.fork,
    World.edit,
    World.edit,
    World.redact,
    World.redact,
    World.rewrite,
    World.rewrite,
    World.end,
)
"""What a step may be, the likelier ones more often, the simplest first."""


def seeded_world(seed: int, steps: int = 40) -> Drawn:
    """Return the world of a seed, without Hypothesis: for runs in bulk."""
    chance = Random(seed)
    world = World(lambda bound: int(chance.random() * bound))
    for _ in range(steps):
        world.step()
    return world.drawn()


@st.composite
def worlds(draw: st.DrawFn, steps_max: int = 40) -> Drawn:
    """Draw a world: from a seed, or choice by choice.

    Hypothesis leans towards the ends of what each choice allows, which makes
    odd worlds but poor ones; three of four come from a seed, which is even.
    """
    if draw(st.integers(0, 3)):
        return seeded_world(draw(st.integers(0, 1 << 32)), steps_max)
    world = World(lambda bound: draw(st.integers(0, bound - 1)))
    for _ in range(draw(st.integers(0, steps_max))):
        world.step()
    return world.drawn()
