"""The whole world from one seed: regions, clients, a network, and what goes wrong."""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final, NamedTuple, TypeVar

from msgspec import UNSET

from support.faulty_store import CrashError
from support.offline import Offline
from support.region import Life, Region
from support.strategies import World as Bodies
from turnstate.agents.session.agent import Folded
from turnstate.agents.session.recorded import recorded_bytes
from turnstate.agents.session.step import Answer
from turnstate.schemas.admission import Verdict
from turnstate.schemas.draft import turn_from_op
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import MAIN, Body, Op
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.body import message_of
from turnstate.schemas.wire.json import draft_from_json, turn_to_json
from turnstate.streams.clock import VirtualClock

T = TypeVar("T")

SESSIONS: Final = (SessionName("t", "a"), SessionName("t", "b"), SessionName("u", "a"))
NO_TURNS: Final = (b"{", b'{"tenant":"t"}', b"\xff", b"[1]", b'{"tenant":"t","op":1}')
BRANCHES: Final = (MAIN, MAIN, MAIN, "b1")
ROUNDS_MAX: Final = 12
"""After so many rounds without faults everyone has to know everything."""


class Message(NamedTuple):
    """Something on its way to a region.

    Attributes:
        region: Its name.
        raw: A record for its log.
        again: Whether the sender sends it once more where no answer came; a
            turn without id would then be there twice.
    """

    region: str
    raw: bytes
    again: bool


class Kept(NamedTuple):
    """What a producer was told to be kept."""

    region: str
    life: Life
    turn: str | None
    content_hash: bytes
    version: int
    is_first: bool


def _untold(_what: str) -> None:
    """Tell nobody what a world does."""


class World:
    """Play a seed: steps by chance, then peace until everyone knows everything.

    Attributes:
        kept: Every turn that somebody was told to be kept.
        erased: session key → the last life that was erased.
        crashes, damages: How many there were.
        cooled, turned_away: Sessions that went to the cold tier; turns that
            came while it was away.
        faults: What went wrong while it was played, in words.
    """

    def __init__(self, seed: int, *, told: Callable[[str], None] | None = None) -> None:
        self.chance = Random(seed)
        self.told: Callable[[str], None] = told or _untold
        self.bodies = Bodies(lambda bound: int(self.chance.random() * bound))
        self.clocks = [VirtualClock(1_700_000_000_000) for _ in range(2)]
        self.regions = [
            Region(name, clock)
            for name, clock in zip(("eu", "us"), self.clocks, strict=True)
        ]
        self.clients = [Offline("c1"), Offline("c2")]
        self.network: list[Message] = []
        self.cut_off: set[str] = set()
        self.sent: list[Message] = []
        self.kept: list[Kept] = []
        self.erased: dict[bytes, int] = {}
        self.crashes = self.damages = self.numbers = 0
        self.cooled = self.turned_away = 0
        self.faults: list[str] = []
        self.last_words: dict[str, bytes] = {}

    # -- chance ------------------------------------------------------------

    def one(self, choices: Sequence[T]) -> T:
        """Return one of the choices."""
        return choices[int(self.chance.random() * len(choices))]

    def once_in(self, times: int) -> bool:
        """Say yes once in so many times."""
        return self.chance.random() * times < 1

    # -- what producers do ---------------------------------------------------

    def send(self, region: str, raw: bytes, *, again: bool = True) -> None:
        """Put a record on its way; now and then twice."""
        message = Message(region, raw, again)
        self.network.append(message)
        if again:
            self.sent.append(message)
            if self.once_in(6):
                self.network.append(message)

    def plain_turn(self) -> None:
        """A producer without a clock sends a turn, or operates."""
        self.numbers += 1
        name, region = self.one(SESSIONS), self.one(self.regions).name
        with_id = not self.once_in(6)
        turn = Turn(
            *name,
            **message_of(self.bodies.body()),
            turn_id=f"p{self.numbers}" if with_id else None,
            branch=self.one((None, None, None, "b1")),
        )
        where = self.chance.random()
        if where < 0.2 and self.numbers > 3:
            turn = turn.with_(parent=f"p{self.numbers - 1 - int(20 * where)}")
        elif where < 0.25:
            turn = turn.with_(parent=None)
        elif where < 0.3:
            turn = turn.with_(parent=f"p{self.numbers + 2}")
        self.send(region, turn_to_json(turn), again=with_id)

    def plain_operation(self) -> None:
        """A producer without a clock edits, redacts, goes back, forks or ends."""
        self.numbers += 1
        name, region = self.one(SESSIONS), self.one(self.regions)
        target = f"p{1 + int(self.chance.random() * self.numbers)}"
        stored = region.stored(name.key())
        clock = {
            replica: 1 + int(self.chance.random() * high)
            for replica, high in stored.head.clock.contiguous().items()
        }
        turn = Turn(*name, "system", turn_id=f"p{self.numbers}")
        made = self.one(
            (
                turn.with_(op="edit", target=target, content=f"new {self.numbers}"),
                turn.with_(op="redact", target=target),
                turn.with_(op="rollback", to=clock),
                turn.with_(op="fork", branch=f"f{self.numbers % 3}", target=target),
                turn.with_(op="fork", branch=f"f{self.numbers % 3}"),
                turn.with_(op="end", to="elsewhere"),
            )
        )
        self.send(region.name, turn_to_json(made))

    def again(self) -> None:
        """Something sent earlier comes again, perhaps to the other region."""
        if self.sent:
            message = self.one(self.sent[-30:])
            region = message.region if self.once_in(2) else self.one(self.regions).name
            self.network.append(message._replace(region=region))

    def bad_input(self) -> None:
        """No turn at all, or one that cannot be let in."""
        name = self.one(SESSIONS)
        taken = Turn(*name, "user", turn_id=f"p{1 + self.numbers // 2}", content="no")
        late = Turn(*name, "user", turn_id=f"v{self.numbers}", if_version=999)
        raw = self.one((*NO_TURNS, turn_to_json(taken), turn_to_json(late)))
        self.send(self.one(self.regions).name, raw, again=False)

    # -- what clients do -----------------------------------------------------

    def offline(self) -> None:
        """A client with a clock of its own writes one or a few operations."""
        client, name = self.one(self.clients), self.one(SESSIONS)
        key = name.key()
        for _ in range(1 + int(3 * self.chance.random())):
            op = self._written(client, key)
            if self.once_in(2):
                raw = turn_to_json(turn_from_op(name, op))
                self.send(self.one(self.regions).name, raw)

    def _written(self, client: Offline, key: bytes) -> Op:
        self.numbers += 1
        turn_id = None if self.once_in(5) else f"{client.name}-{self.numbers}"
        branch, known = self.one(BRANCHES), client.nodes(key)
        heads = client.heads(key, branch)
        kind = int(20 * self.chance.random())
        if known and kind < 4:
            target = self.one(known)
            body = Body(
                role="system",
                op="edit" if kind < 2 else "redact",
                content=f"new {self.numbers}" if kind < 2 else UNSET,
                target=target.dot.address(),
            )
            return client.write(key, body, (target.dot,), turn_id=turn_id)
        if known and kind < 6:
            heads = (self.one(known).dot,)
        if known and kind == 6:
            body = Body(role="system", op="rollback")
            return client.write(key, body, (self.one(known).dot,), branch=branch)
        return client.write(
            key, self.bodies.body(), heads, branch=branch, turn_id=turn_id
        )

    def hear(self) -> None:
        """A client hears from a region, not always of everything."""
        client, region = self.one(self.clients), self.one(self.regions)
        key = self.one(SESSIONS).key()
        self._hear(client, region, key, all_of_it=not self.once_in(3))

    def _hear(
        self, client: Offline, region: Region, key: bytes, *, all_of_it: bool
    ) -> None:
        incarnation = region.stored(key).head.incarnation
        state = client.state(key)
        if incarnation > state.head.incarnation:
            client.begin(key, incarnation)
        if incarnation >= state.head.incarnation:
            ops = region.ops(key)
            client.take(key, [o for o in ops if all_of_it or not self.once_in(4)])

    # -- what regions do -----------------------------------------------------

    def exchange(self) -> None:
        """A region, or a client, sends another region what that one lacks."""
        sources: list[Region | Offline] = [*self.regions, *self.clients]
        source = self.one(sources)
        target = self.one([each for each in self.regions if each is not source])
        self._exchange(source, target, self.one(SESSIONS))

    def _exchange(
        self, source: Region | Offline, target: Region, name: SessionName
    ) -> None:
        key = name.key()
        there = target.stored(key).head
        if isinstance(source, Offline):
            life, ops = source.state(key).head.incarnation, source.state(key).ops
            mine = list(ops.values())
        else:
            life, mine = source.stored(key).head.incarnation, source.ops(key)
        for earlier in range(there.incarnation, life):
            self.send(target.name, erase_record(name, earlier))
        for op in mine:
            if life != there.incarnation or op.dot not in there.clock:
                self.send(target.name, recorded_bytes(name, op.record))

    def deliver(self) -> None:
        """A region takes some of what is on its way, in any order."""
        region = self.one(self.regions)
        if region.name not in self.cut_off:
            self.deliver_to(region, 1 + int(8 * self.chance.random()))

    def deliver_to(self, region: Region, count: int) -> None:
        """A region takes so many of what is on its way to it, in any order."""
        mine = [m for m in self.network if m.region == region.name]
        batch = self.chance.sample(mine, min(count, len(mine)))
        if not batch:
            return
        for message in batch:
            self.network.remove(message)
        try:
            answers, folded = region.handle([message.raw for message in batch])
        except CrashError:
            self.crashes += 1
            self.network += [message for message in batch if message.again]
            region.start()
            return
        self._answered(region, batch, answers, folded)
        for message, answer in zip(batch, answers, strict=True):
            if isinstance(answer.error, UnavailableError):
                self.turned_away += 1
                if message.again:
                    self.network.append(message)

    def _answered(
        self,
        region: Region,
        batch: list[Message],
        answers: list[Answer],
        folded: Folded,
    ) -> None:
        for change in folded.changes:
            if change.erased:
                self._was_erased(change.key, change.erased)
        behind: dict[bytes, int] = {}
        drafts = [
            None
            if answer.error or message.raw[:1] == b"\x93"
            else draft_from_json(message.raw)
            for message, answer in zip(batch, answers, strict=True)
        ]
        for at, draft in enumerate(drafts):
            if draft is not None and draft.body.op == "erase":
                self._was_erased(draft.key, draft.incarnation or 0)
                behind[draft.key] = at
        for at, (draft, answer) in enumerate(zip(drafts, answers, strict=True)):
            if answer.verdict not in {Verdict.ACCEPTED, Verdict.DUPLICATE}:
                continue
            if draft is None or at <= behind.get(draft.key, -1):
                continue  # a life that ended in this batch
            is_first = answer.verdict is Verdict.ACCEPTED
            life = region.head(draft.key).head.incarnation
            self.kept.append(
                Kept(
                    region.name,
                    (draft.key, life),
                    answer.turn,
                    draft.content_hash,
                    answer.version,
                    is_first,
                )
            )

    def _was_erased(self, key: bytes, incarnation: int) -> None:
        self.erased[key] = max(self.erased.get(key, 0), incarnation)

    # -- the end -------------------------------------------------------------

    def settle(self) -> None:
        """Without faults, exchange until everyone has everything."""
        self.cut_off = set()
        for region in self.regions:
            region.store.fails = None
        for _ in range(ROUNDS_MAX):
            for region in self.regions:
                while any(message.region == region.name for message in self.network):
                    self.deliver_to(region, 12)
            for name in SESSIONS:
                self._exchange_all(name)
            if not self.network:
                return

    def _exchange_all(self, name: SessionName) -> None:
        for target in self.regions:
            sources: list[Region | Offline] = [*self.regions, *self.clients]
            for source in sources:
                if source is not target:
                    self._exchange(source, target, name)
            for client in self.clients:
                self._hear(client, target, name.key(), all_of_it=True)

    # -- for checkers ----------------------------------------------------------

    def sessions(self) -> Iterator[tuple[Region, SessionName]]:
        """Yield every session of every region."""
        for region in self.regions:
            for key in region.sessions():
                yield region, SessionName.from_key(key)


def erase_record(name: SessionName, incarnation: int) -> bytes:
    return turn_to_json(Turn(*name, "system", op="erase", incarnation=incarnation))
