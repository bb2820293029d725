"""The doors that a hostile line can come in by, behind one narrow interface.

A new door is one class and one entry in `DOORS` of test_rows.py; each case that it
is able to receive then runs through it. What it is not able to do needs
a reason, so that no cell of the table is empty by oversight.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from hostile.contract import (
    CONTEXT,
    ERASE,
    LETTERS,
    OBJECTS,
    READ,
    REOPEN,
    SEAL,
    STATE,
    Door,
    Refusal,
    Sent,
)
from msgspec import UNSET

from support.protobuf_wire import as_protobuf
from turnstate.agents.dead_letters import decode_dead_letter
from turnstate.agents.session.step import Answer
from turnstate.schemas.admission import Verdict
from turnstate.schemas.clocks import Dot
from turnstate.schemas.draft import Draft, turn_from_op
from turnstate.schemas.errors import InvalidInputError, NotFoundError
from turnstate.schemas.operation import MAIN, Op
from turnstate.schemas.wire.json import draft_from_json, turn_to_json
from turnstate.storage.warm.tables import DEAD
from turnstate.streams import documents
from turnstate.streams.cli.publishing import publish_files
from turnstate.streams.client import Client
from turnstate.streams.embedded.access import OpenStore, open_store
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.embedded.remote import RemoteStore
from turnstate.streams.settings import Settings


class BytesDoor:
    """`draft_from_json` alone: one record in, a draft or a refusal out."""

    def __init__(self, _: Path) -> None:
        self._drafts: list[Draft] = []
        self._letters: list[Refusal] = []

    def send(self, lines: Sequence[bytes]) -> Sent:
        sent = Sent()
        for raw in lines:
            try:
                draft = draft_from_json(raw)
            except InvalidInputError as error:
                sent.refusals.append(Refusal(error.code, error.field, raw))
            else:
                self._drafts.append(draft)
                sent.accepted += 1
        self._letters += sent.refusals
        return sent

    def turns(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> list[dict[str, Any]]:
        return [
            self._document(draft, number)
            for number, draft in enumerate(self._drafts, 1)
            if draft.name == (tenant, session) and draft.body.op is None
            if (draft.branch or MAIN) == branch
        ]

    def _document(self, draft: Draft, number: int) -> dict[str, Any]:
        parents = () if draft.parents is UNSET else draft.parents
        op = Op.stamped(
            draft.body,
            draft.body_bytes,
            dot=draft.stamp.dot if draft.stamp else Dot("log", number),
            lamport=number,
            seen={},
            incarnation=1,
            parents=parents,
            turn_id=draft.turn_id,
            time=draft.time,
        )
        return read_json(turn_to_json(turn_from_op(draft.name, Op.decode(op.record))))

    def state(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> dict[str, Any]:
        raise AssertionError("nothing is folded here")

    def letters(self) -> list[Refusal]:
        return self._letters

    def reopen(self) -> None:
        raise AssertionError("there is no store here")

    def context(self, budget_tokens: int, **options: Any) -> dict[str, Any]:
        raise AssertionError("nothing is folded here")

    def erase(self, tenant: str, **which: Any) -> dict[str, Any]:
        raise AssertionError("there is no store here")

    def files(self) -> list[Path]:
        return []

    def close(self) -> None:
        """There is nothing to let go."""

    def seal(self) -> None:
        raise AssertionError("there is no store here")


class StoreDoor:
    """The embedded store, in this process."""

    serving = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(data=folder / "data", fsync="never")
        self.owned = OwnedStore(self.settings, serving=self.serving)

    @property
    def store(self) -> OpenStore:
        """Return what is asked."""
        return self.owned

    def send(self, lines: Sequence[bytes]) -> Sent:
        return sent_of(self.store.publish(lines), lines)

    def turns(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> list[dict[str, Any]]:
        try:
            page = self.store.turns(tenant, session, branch=branch)
        except NotFoundError:
            return []
        turns: list[dict[str, Any]] = plain(page)["turns"]
        return turns

    def state(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> dict[str, Any]:
        return plain(self.store.state(tenant, session, branch=branch))

    def letters(self) -> list[Refusal]:
        found = [decode_dead_letter(row) for _, row in self.owned.warm.rows(DEAD)]
        return [Refusal(each.reason, each.field, each.raw) for each in found]

    def reopen(self) -> None:
        self.close()
        self.owned = OwnedStore(self.settings, serving=self.serving)

    def seal(self) -> None:
        self.store.seal()

    def context(self, budget_tokens: int, **options: Any) -> dict[str, Any]:
        return plain(
            self.store.context("t", "s", budget_tokens=budget_tokens, **options)
        )

    def erase(self, tenant: str, **which: Any) -> dict[str, Any]:
        return plain(self.store.erase(tenant, **which))

    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]

    def close(self) -> None:
        self.owned.close()


class ProtobufDoor(StoreDoor):
    """The same store, given turns as protobuf, with all that is wrong in them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._lines: dict[bytes, bytes] = {}

    def send(self, lines: Sequence[bytes]) -> Sent:
        written = [as_protobuf(line) for line in lines]
        self._lines |= zip(written, lines, strict=True)
        return sent_of(self.store.publish(written), lines)

    def letters(self) -> list[Refusal]:
        return [
            each._replace(raw=self._lines.get(each.raw or b"", each.raw))
            for each in super().letters()
        ]


class ClientDoor(StoreDoor):
    """The Python API; what reads as JSON comes as a dict, the rest as bytes."""

    def send(self, lines: Sequence[bytes]) -> Sent:
        answers = Client(self.owned).publish_many([_as_dict(raw) for raw in lines])
        return sent_of(answers, lines)

    def turns(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> list[dict[str, Any]]:
        try:
            page = Client(self.owned).turns(tenant, session, branch=branch)
        except NotFoundError:
            return []
        turns: list[dict[str, Any]] = page["turns"]
        return turns

    def state(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> dict[str, Any]:
        return Client(self.owned).state(tenant, session, branch=branch)


class SocketDoor(StoreDoor):
    """The store of another owner, through its socket."""

    serving = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._remote: OpenStore | None = None

    @property
    def store(self) -> OpenStore:
        """Return the way to the owner."""
        if self._remote is None:
            self._remote = open_store(self.settings)
            assert isinstance(self._remote, RemoteStore)
        return self._remote

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()
            self._remote = None
        super().close()


class PublishDoor(StoreDoor):
    """A JSONL file, as `turnstate publish` takes it in."""

    def send(self, lines: Sequence[bytes]) -> Sent:
        path = self.folder / "lines.jsonl"
        path.write_bytes(b"\n".join(lines) + b"\n")
        before = len(self.letters())
        counts = publish_files(self.store, [str(path)], "turns")
        path.unlink()
        refusals = self.letters()[before:]
        answered = counts.accepted + counts.duplicates + len(refusals)
        return Sent(
            counts.accepted, counts.duplicates, counts.turns - answered, refusals
        )


def _as_dict(raw: bytes) -> Any:
    """Return a turn as a caller would build it, where JSON readers agree on it."""
    try:
        value = json.loads(raw.decode(), parse_constant=_no_number)
        again = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return raw
    # A doubled key or an infinite number is lost in a dict.
    spelled = json.dumps(value, ensure_ascii=False).encode()
    is_same = isinstance(value, dict) and raw in (again, spelled)
    return cast("dict[str, Any]", value) if is_same else raw


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def sent_of(answers: Sequence[Answer], lines: Sequence[bytes]) -> Sent:
    """Count answers by what became of each record."""
    verdicts = Counter(answer.verdict for answer in answers)
    return Sent(
        verdicts[Verdict.ACCEPTED],
        verdicts[Verdict.DUPLICATE],
        verdicts[Verdict.DROPPED],
        [
            Refusal(answer.error.code, answer.error.field, raw)
            for answer, raw in zip(answers, lines, strict=True)
            if answer.error is not None
        ],
    )


def read_json(raw: bytes) -> dict[str, Any]:
    """Read JSON as any client would, integers exact, very long ones as text."""
    document: dict[str, Any] = json.loads(raw, parse_int=_integer)
    return document


def _integer(digits: str) -> int | str:
    """Python refuses to convert more than 4300 digits."""
    return int(digits) if len(digits) <= 4300 else digits


def plain(document: object) -> dict[str, Any]:
    """Return a document as a client reads it."""
    return read_json(documents.to_json(document))


NO_STORE: Final = "no store stands behind it"
MESSAGES: Final = "they are messages there: with numbers, as deep as the schema"
STORED: Final = frozenset({READ, STATE, LETTERS, REOPEN, SEAL, CONTEXT, OBJECTS})
MESSAGED: Final = STORED - {OBJECTS}

STORE_DOORS: Final = (
    Door(
        "bytes",
        BytesDoor,
        frozenset({READ, LETTERS, OBJECTS}),
        dict.fromkeys((STATE, REOPEN, SEAL, CONTEXT, ERASE), NO_STORE),
    ),
    Door("store", StoreDoor, STORED | {ERASE}, {}),
    Door("protobuf", ProtobufDoor, MESSAGED | {ERASE}, {OBJECTS: MESSAGES}),
    Door("client", ClientDoor, STORED | {ERASE}, {}),
    Door("socket", SocketDoor, STORED | {ERASE}, {}),
    Door("publish", PublishDoor, STORED | {ERASE}, {}),
)
"""Those that need no service. Each opens on a folder of its own."""
