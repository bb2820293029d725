"""What an owner does for others: each method by name, and how its result travels."""

from collections.abc import Callable
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
