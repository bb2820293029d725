"""What an owner does for others: each method by name, and how its result travels."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple

import msgspec

from turnstate.agents.dead_letters import DeadLetter
from turnstate.agents.session.step import Answer
from turnstate.agents.tiering.facts import SessionFacts
from turnstate.replay.recording import (
    RecordedErasure,
    RecordedItem,
    RecordedOperation,
)
from turnstate.schemas.dialogue.head import decode_head, encode_head
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import SessionName
from turnstate.storage.cold.pointer import Pointer
from turnstate.storage.moves.journal import Plan
from turnstate.storage.session_image import EncodedImage
from turnstate.streams.documents import from_json, to_json
from turnstate.streams.embedded.messages import answer_of, answer_parts


class Form(NamedTuple):
    """How a result travels.

    Attributes:
        pack: Makes what MessagePack can carry of a result.
        unpack: Makes the result again.
        streams: Whether there are many, one after another.
        prompt: Whether each must be sent at once.
    """

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    streams: bool = False
    prompt: bool = False


class Method(NamedTuple):
    """One method of a store.

    Attributes:
        call: Does it; the store is the first argument.
        form: How the result travels.
        reads: It changes nothing: after a lost connection it may be sent again.
        takes_items: Its argument `items` is a stream from the caller.
        takes_stopped: It follows the log and has to hear when to stop.
    """

    call: Callable[..., Any]
    form: Form
    reads: bool = True
    takes_items: bool = False
    takes_stopped: bool = False


def item_parts(item: RecordedItem) -> list[Any]:
    """Return an item of a recording as it travels.

    Example:
        >>> item = RecordedOperation(SessionName("t", "s"), 1, b"x")
        >>> item_of(item_parts(item)) == item
        True
    """
    record = item.record if isinstance(item, RecordedOperation) else None
    return [item.name.tenant, item.name.session, item.incarnation, record]


def item_of(parts: list[Any]) -> RecordedItem:
    """Invert `item_parts`."""
    tenant, session, incarnation, record = parts
    name = SessionName(tenant, session)
    if record is None:
        return RecordedErasure(name, incarnation)
    return RecordedOperation(name, incarnation, record)


def _answers_parts(answers: list[Answer]) -> list[Any]:
    return list(map(answer_parts, answers))


def _answers_of(parts: list[Any]) -> list[Answer]:
    return list(map(answer_of, parts))


def _as_it_is(value: Any) -> Any:
    return value


def _reader_of(kind: Any) -> Callable[[Any], Any]:
    """Return what makes values of a type again of what travelled."""
    return partial(msgspec.convert, type=kind, builtin_types=(bytes,))


DOCUMENT: Final = Form(to_json, from_json)
ROWS: Final = Form(to_json, from_json, streams=True)
EVENTS: Final = Form(to_json, from_json, streams=True, prompt=True)
ITEMS: Final = Form(item_parts, item_of, streams=True)
ANSWER: Final = Form(answer_parts, answer_of)
ANSWERS: Final = Form(_answers_parts, _answers_of)
HEAD: Final = Form(encode_head, decode_head)
KEYS: Final = Form(list, list)
FACTS: Final = Form(_as_it_is, _reader_of(SessionFacts), streams=True)
FACT: Final = Form(_as_it_is, _reader_of(SessionFacts | None))
IMAGES: Final = Form(
    _as_it_is, _reader_of(tuple[bytes, EncodedImage | None]), streams=True
)
POINTERS: Final = Form(_as_it_is, _reader_of(tuple[bytes, Pointer]), streams=True)
PLANS: Final = Form(_as_it_is, _reader_of(list[Plan]))
LETTER: Final = Form(msgspec.msgpack.encode, msgspec.msgpack.Decoder(DeadLetter).decode)


def _own(name: str) -> Callable[..., Any]:
    def call(store: Any, **arguments: Any) -> Any:
        return getattr(store, name)(**arguments)

    return call


def _of(module: str, name: str) -> Callable[..., Any]:
    """Return a function of another module, which is imported when it is needed."""

    def call(store: Any, **arguments: Any) -> Any:
        found = import_module(f"turnstate.streams.embedded.{module}")
        return getattr(found, name)(store, **arguments)

    return call


METHODS: Final[dict[str, Method]] = {
    "publish": Method(_own("publish"), ANSWERS, reads=False),
    "rollback": Method(_own("rollback"), ANSWER, reads=False),
    "fork": Method(_own("fork"), ANSWER, reads=False),
    "end": Method(_own("end"), ANSWER, reads=False),
    "state": Method(_own("state"), DOCUMENT),
    "turns": Method(_own("turns"), DOCUMENT),
    "history": Method(_own("history"), DOCUMENT),
    "head": Method(_own("head"), HEAD),
    "sessions": Method(_own("sessions"), ROWS),
    "context": Method(_of("context", "context"), DOCUMENT),
    "patch": Method(_of("patches", "patch"), DOCUMENT),
    "reach": Method(_of("reach", "reach"), DOCUMENT),
    "subscribe": Method(_of("feed", "subscribe"), EVENTS, takes_stopped=True),
    "entities": Method(_of("entities", "entities"), EVENTS, takes_stopped=True),
    "stats": Method(_of("upkeep", "stats"), DOCUMENT),
    "verify": Method(_of("upkeep", "verify"), DOCUMENT),
    "repair": Method(_of("repair", "repair"), DOCUMENT, reads=False),
    "seal": Method(_of("upkeep", "seal"), DOCUMENT, reads=False),
    "erase": Method(_of("erase", "erase"), DOCUMENT, reads=False),
    "dead_letters": Method(_of("letters", "dead_letters"), DOCUMENT),
    "dead_letter": Method(_of("letters", "dead_letter"), LETTER),
    "redrive": Method(_of("letters", "redrive"), DOCUMENT, reads=False),
    "discard": Method(_of("letters", "discard"), DOCUMENT, reads=False),
    "trim_log": Method(_of("upkeep", "trim_log"), DOCUMENT, reads=False),
    "tier_facts": Method(_of("tiering", "facts"), FACTS),
    "tier_facts_of": Method(_of("tiering", "facts_of"), FACT),
    "tier_fills": Method(_of("tiering", "fills"), DOCUMENT),
    "tier_plan": Method(_of("tiering", "plan_moves"), DOCUMENT, reads=False),
    "tier_images": Method(_of("tiering", "images"), IMAGES),
    "tier_flip": Method(_of("tiering", "flip"), KEYS, reads=False),
    "tier_release": Method(_of("tiering", "release"), KEYS, reads=False),
    "tier_fill": Method(_of("tiering", "fill"), KEYS, reads=False),
    "tier_warm": Method(_of("tiering", "warm"), KEYS, reads=False),
    "tier_repoint": Method(_of("tiering", "repoint"), KEYS, reads=False),
    "tier_pointers": Method(_of("tiering", "pointers"), POINTERS),
    "tier_expire": Method(_of("expiring", "expire"), DOCUMENT, reads=False),
    "tier_forget_archived": Method(
        _of("expiring", "forget_archived"), DOCUMENT, reads=False
    ),
    "tier_unfinished": Method(_of("tiering", "unfinished"), PLANS),
    "tier_give_up": Method(_of("tiering", "give_up"), DOCUMENT, reads=False),
    "backup": Method(_of("backups", "backup"), DOCUMENT, reads=False),
    "keys_status": Method(_of("keys", "keys_status"), DOCUMENT),
    "keys_rotate": Method(_of("keys", "rotate_keys"), DOCUMENT, reads=False),
    "savepoint": Method(_of("backups", "savepoint"), DOCUMENT, reads=False),
    "export_items": Method(_of("exchange", "export_items"), ITEMS),
    "import_items": Method(
        _of("exchange", "import_items"), DOCUMENT, reads=False, takes_items=True
    ),
}
"""Every method by the name under which both sides know it."""


def method_named(name: str) -> Method:
    """Return a method.

    Raises:
        InvalidInputError: this version has none of that name.
    """
    try:
        return METHODS[name]
    except KeyError:
        raise InvalidInputError(
            f"the owner of the store knows no method {name!r}",
            hint="its turnstate is another version: restart it with this one",
            code="unknown_method",
        ) from None


class StoreCalls(ABC):
    """The methods that a store answers by name, as plain Python methods.

    One way to call them whether the store is owned by this process
    (`OwnedStore`) or by another one (`RemoteStore`).
    """

    @abstractmethod
    def call(self, method: str, **arguments: Any) -> Any:
        """Perform a method by name."""

    def subscribe(
        self,
        tenant: str | None = None,
        session: str | None = None,
        *,
        token: str | None = None,
        follow: bool = True,
        stopped: Callable[[], bool] | None = None,
    ) -> Generator[dict[str, Any]]:
        """Yield the events of a session, or of all; see `feed.subscribe`."""
        arguments: dict[str, Any] = {} if stopped is None else {"stopped": stopped}
        result: Generator[dict[str, Any]] = self.call(
            "subscribe",
            tenant=tenant,
            session=session,
            token=token,
            follow=follow,
            **arguments,
        )
        return result

    def entities(
        self,
        tenant: str | None = None,
        *,
        token: str | None = None,
        follow: bool = True,
        stopped: Callable[[], bool] | None = None,
    ) -> Generator[dict[str, Any]]:
        """Yield entity upserts of a tenant, or of all; see `entities.entities`."""
        arguments: dict[str, Any] = {} if stopped is None else {"stopped": stopped}
        result: Generator[dict[str, Any]] = self.call(
            "entities", tenant=tenant, token=token, follow=follow, **arguments
        )
        return result

    def context(self, tenant: str, session: str, **options: Any) -> dict[str, Any]:
        """Return messages for a model; see `context.context`."""
        return self.call("context", tenant=tenant, session=session, **options)  # type: ignore[no-any-return]

    def patch(self, tenant: str, session: str, **options: Any) -> dict[str, Any]:
        """Return what changed since a version; see `patches.patch`."""
        return self.call("patch", tenant=tenant, session=session, **options)  # type: ignore[no-any-return]

    def reach(self, **options: Any) -> dict[str, Any]:
        """Wait until a session or the log is as far as said; see `reach.reach`."""
        return self.call("reach", **options)  # type: ignore[no-any-return]

    def stats(self) -> dict[str, Any]:
        """Return the totals of the store."""
        return self.call("stats")  # type: ignore[no-any-return]

    def verify(
        self, tenant: str | None = None, progress: Callable[..., Any] | None = None
    ) -> dict[str, Any]:
        """Check everything that is stored; another owner reports no progress."""
        return self.call("verify", tenant=tenant, progress=progress)  # type: ignore[no-any-return]

    def repair(self, **options: Any) -> dict[str, Any]:
        """Rebuild what is damaged from the log."""
        return self.call("repair", **options)  # type: ignore[no-any-return]

    def seal(self, tenant: str | None = None) -> dict[str, Any]:
        """Seal sessions now."""
        return self.call("seal", tenant=tenant)  # type: ignore[no-any-return]

    def erase(self, tenant: str, **options: Any) -> dict[str, Any]:
        """Erase a session or a user, with the report."""
        return self.call("erase", tenant=tenant, **options)  # type: ignore[no-any-return]

    def dead_letters(self) -> dict[str, Any]:
        """List what was refused."""
        return self.call("dead_letters")  # type: ignore[no-any-return]

    def dead_letter(self, number: str) -> DeadLetter:
        """Return one dead letter whole."""
        return self.call("dead_letter", number=number)  # type: ignore[no-any-return]

    def redrive(self, numbers: Sequence[str] | None = None) -> dict[str, Any]:
        """Send dead letters again; None = all of them."""
        return self.call("redrive", numbers=numbers)  # type: ignore[no-any-return]

    def discard(self, numbers: Sequence[str]) -> dict[str, Any]:
        """Remove dead letters for good."""
        return self.call("discard", numbers=numbers)  # type: ignore[no-any-return]

    def trim_log(self, below: int) -> dict[str, Any]:
        """Remove the log below an offset."""
        return self.call("trim_log", below=below)  # type: ignore[no-any-return]

    def backup(self, where: str, **options: Any) -> dict[str, Any]:
        """Back the whole store up; see `backups.backup`."""
        return self.call("backup", where=where, **options)  # type: ignore[no-any-return]

    def savepoint(self, where: str, name: str, **options: Any) -> dict[str, Any]:
        """Export everything under a name; see `backups.savepoint`."""
        return self.call("savepoint", where=where, name=name, **options)  # type: ignore[no-any-return]

    def export_items(self, tenant: str | None = None) -> Iterator[RecordedItem]:
        """Yield everything stored, as items of a recording."""
        return self.call("export_items", tenant=tenant)  # type: ignore[no-any-return]

    def import_items(self, items: Iterator[RecordedItem]) -> dict[str, Any]:
        """Fold the items of a recording."""
        return self.call("import_items", items=items)  # type: ignore[no-any-return]
