"""Turn what a message says into a canonical body, and back into a message."""

from math import isfinite
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.ids import checked_id
from turnstate.schemas.limits import ID_BYTES_MAX, RECORD_BYTES_MAX, USAGE_ABS_MAX
from turnstate.schemas.operation import Body, Hidden, encode_body
from turnstate.schemas.turn import WIRE_FIELDS, SeenWire, Slots, Tags, Turn
from turnstate.schemas.wire.canonical import canonical_json
from turnstate.schemas.wire.references import checked_vector
from turnstate.schemas.wire.tool_calls import read_tool_calls

HIDDEN_FIELD: Final = "hidden"
"""The wire field of a redacted turn whose bytes are gone; only recordings have it."""

_COMMON_ROLES: Final = frozenset({"user", "assistant", "system", "tool", "developer"})
_TEXT_FIELDS: Final = ("tool_call_id", "name", "intent", "action", "stage")
_parts_decoder: Final = msgspec.json.Decoder(list[Raw])
_hidden_decoder: Final = msgspec.json.Decoder(tuple[str, str, list[str], list[str]])
_encoder: Final = msgspec.json.Encoder()


def body_from_turn(turn: Turn, *, recorded: bool) -> Body:
    """Return the canonical body of a turn.

    Args:
        turn: Nothing of it is trusted.
        recorded: Whether `hidden` may stand in it.

    Raises:
        InvalidInputError: the field at fault is named.
    """
    role = turn.role
    if type(role) is not str or role not in _COMMON_ROLES:
        checked_id(role, "role")
    # Only what is there is looked at and passed on: this runs for every turn,
    # and most fields of most turns are absent.
    given: dict[str, Any] = {}
    content = turn.content
    if type(content) is str:
        given["content"] = content
    elif content is not UNSET:
        given |= _content(content, turn.op)
    if turn.slots is not None:
        given["slot_set"], given["slot_delete"] = _slots(turn.slots)
    if turn.tags is not None:
        given["tag_add"], given["tag_remove"] = _tags(turn.tags)
    if turn.metadata is not None:
        given["metadata"] = _free_form(turn.metadata, "metadata")
    if turn.intent is not None:
        given["intent"] = _text(turn.intent, "intent")
    if turn.user is not None:
        given["user"] = checked_id(turn.user, "user")
    if turn.usage is not None:
        given["usage"] = _usage(turn.usage)
    if turn.confidence is not None:
        given["confidence"] = _confidence(turn.confidence)
    if turn.action is not None:
        given["action"] = _text(turn.action, "action")
    if turn.tool_calls is not None:
        given["tool_calls"] = _tool_calls(turn.tool_calls)
    if turn.tool_call_id is not None:
        given["tool_call_id"] = _text(turn.tool_call_id, "tool_call_id")
    if turn.name is not None:
        given["name"] = _text(turn.name, "name")
    if turn.continues is not None:
        given["continues"] = checked_id(turn.continues, "continues")
    if turn.stage is not None:
        given["stage"] = _text(turn.stage, "stage")
    if turn.op is not None:
        given |= {"op": turn.op, "target": turn.target, "to": _goal(turn.to)}
    if turn.extra is not None:
        given |= _extra(turn.extra, recorded=recorded)
    return Body(role=role, **given)


def encoded_body(body: Body) -> bytes:
    """Return the canonical bytes of a body that is not too large.

    Raises:
        InvalidInputError: it is (code `too_large`), or a text holds half of a
            surrogate pair, which JSON readers refuse and Python callers can send.
    """
    try:
        raw = encode_body(body)
    except UnicodeEncodeError as error:
        raise _lone_surrogate(body) from error
    if len(raw) > RECORD_BYTES_MAX:
        raise _too_large(body, len(raw))
    return raw


def message_of(body: Body) -> dict[str, Any]:
    """Return the fields of the turn that a body was made of, inner maps sorted."""
    content: str | list[Raw] | UnsetType | None = body.content
    if body.parts is not None:
        content = _parts_decoder.decode(body.parts)
    fields: dict[str, Any] = {
        name: getattr(body, name)
        for name in (
            "role",
            *_TEXT_FIELDS,
            "confidence",
            "continues",
            "user",
            "op",
            "target",
        )
    }
    extra = dict(sorted(body.extra.items())) if body.extra else {}
    if body.hidden is not None:
        extra[HIDDEN_FIELD] = _hidden_to_json(body.hidden)
    return fields | {
        "content": content,
        "tool_calls": None if body.tool_calls is None else Raw(body.tool_calls),
        "metadata": None if body.metadata is None else Raw(body.metadata),
        "slots": _wire_slots(body),
        "tags": Tags(body.tag_add, body.tag_remove)
        if body.tag_add or body.tag_remove
        else None,
        "to": dict(sorted(body.to.items())) if isinstance(body.to, dict) else body.to,
        "usage": dict(sorted(body.usage.items())) if body.usage else None,
        "extra": extra or None,
    }


def _wire_slots(body: Body) -> Slots | None:
    if not body.slot_set and not body.slot_delete:
        return None
    values = body.slot_set
    return Slots(
        {name: Raw(values[name]) for name in sorted(values)} if values else None,
        body.slot_delete,
    )


def _content(content: str | list[Raw] | None, op: str | None) -> dict[str, Any]:
    """Return content that is no text: null, or parts as JSON."""
    if content is None:
        # Operations without text say nothing by a null; in a turn, and as the
        # new content of an edit, null is a value.
        return {"content": None} if op is None or op == "edit" else {}
    if type(content) is not list:
        raise InvalidInputError(
            "content is neither text nor a list of parts",
            field="content",
            hint="send a string, a list of parts, or null",
        )
    parts = [
        _canonical(part, f"content[{index}]", depth=2)
        for index, part in enumerate(content)
    ]
    return {"parts": b"[" + b",".join(parts) + b"]"}


def _canonical(value: object, field: str, *, depth: int) -> bytes:
    if type(value) is not Raw:
        raise InvalidInputError(
            f"{field} is given as {type(value).__name__}, not as JSON bytes",
            field=field,
            hint="wrap them in msgspec.Raw",
        )
    return canonical_json(bytes(value), field=field, depth=depth)


def _free_form(value: object, field: str) -> bytes | None:
    canonical = _canonical(value, field, depth=1)
    return None if canonical == b"null" else canonical


def _tool_calls(value: object) -> bytes | None:
    canonical = _free_form(value, "tool_calls")
    if canonical is not None:
        read_tool_calls(canonical)
    return canonical


def _slots(slots: Slots) -> tuple[dict[str, bytes] | None, list[str] | None]:
    if type(slots) is not Slots:
        raise InvalidInputError(
            "slots is no object", field="slots", hint="send set and delete"
        )
    values = slots.set
    if values is None:
        return None, _names(slots.delete, "slots.delete")
    if type(values) is not dict:
        raise InvalidInputError(
            "slots.set is no object", field="slots.set", hint="send {name: value}"
        )
    written: dict[str, bytes] = {}
    for name, value in values.items():
        _check_name(name, "slots.set")
        canonical = _canonical(value, f"slots.set.{name}", depth=3)
        if canonical != b"null":
            written[name] = canonical
    return written or None, _names(slots.delete, "slots.delete")


def _tags(tags: Tags) -> tuple[list[str] | None, list[str] | None]:
    if type(tags) is not Tags:
        raise InvalidInputError(
            "tags is no object", field="tags", hint="send add and remove"
        )
    return _names(tags.add, "tags.add"), _names(tags.remove, "tags.remove")


def _names(names: list[str] | None, field: str) -> list[str] | None:
    """Return names sorted, each once: the order of a set says nothing."""
    if names is None:
        return None
    if type(names) is not list:
        raise InvalidInputError(
            f"{field} is no list", field=field, hint="send a list of names"
        )
    for name in names:
        _check_name(name, field)
    return sorted(set(names)) or None


def _check_name(name: object, field: str) -> None:
    """Let common names through at once, look at others as at ids."""
    if (
        type(name) is not str
        or not name.isascii()
        or not 0 < len(name) <= ID_BYTES_MAX
        or "\0" in name
    ):
        checked_id(name, field)


def _usage(usage: dict[str, int]) -> dict[str, int] | None:
    if type(usage) is not dict:
        raise InvalidInputError(
            "usage is no object", field="usage", hint="send {name: integer}"
        )
    for name, amount in usage.items():
        _check_name(name, "usage")
        if type(amount) is not int or not -USAGE_ABS_MAX <= amount <= USAGE_ABS_MAX:
            raise InvalidInputError(
                f"usage.{name} is no integer within its limits",
                field=f"usage.{name}",
                hint=f"send {-USAGE_ABS_MAX} to {USAGE_ABS_MAX}",
            )
    return usage or None


def _confidence(value: float) -> float:
    try:
        if type(value) in (int, float) and isfinite(number := float(value)):
            return number
    except OverflowError:
        pass  # an integer beyond a double
    raise InvalidInputError(
        "confidence is no finite number",
        field="confidence",
        hint="send a number, or leave it out",
        code="number",
    )


def _text(value: object, field: str) -> str:
    if type(value) is str:
        return value
    raise InvalidInputError(f"{field} is no text", field=field, hint="send a string")


def _goal(to: str | SeenWire | None) -> object:
    """Return a clock in its shortest form, a session's name as it is."""
    if to is None or isinstance(to, str):
        return to
    return {
        replica: bounds if isinstance(bounds, int) else list(bounds)
        for replica, bounds in checked_vector(to, "to").items()
    }


def _extra(extra: dict[str, bytes], *, recorded: bool) -> dict[str, Any]:
    """Return the fields of other versions, and what a stub carries in one."""
    if type(extra) is not dict:
        raise InvalidInputError("extra is no dict", hint="send {name: JSON bytes}")
    kept: dict[str, bytes] = {}
    given: dict[str, Any] = {}
    for name, value in extra.items():
        if type(name) is not str or type(value) is not bytes:
            raise InvalidInputError(
                "extra is no dict of JSON bytes", hint="send {name: JSON bytes}"
            )
        canonical = canonical_json(value, field=name, depth=1)
        if name in WIRE_FIELDS or (name == HIDDEN_FIELD and not recorded):
            raise InvalidInputError(
                f"{name} is no name for a field of one's own",
                field=name,
                hint="take another name",
            )
        if name == HIDDEN_FIELD:
            given["hidden"] = _hidden_from_json(canonical)
        else:
            kept[name] = canonical
    return given | {"extra": kept} if kept else given


def _hidden_to_json(hidden: Hidden) -> bytes:
    return _encoder.encode(
        (
            hidden.operation_hash.hex(),
            hidden.content_hash.hex(),
            [name.hex() for name in hidden.slot_names],
            [name.hex() for name in hidden.tag_names],
        )
    )


def _hidden_from_json(raw: bytes) -> Hidden:
    try:
        operation, content, slots, tags = _hidden_decoder.decode(raw)
        hidden = Hidden(
            bytes.fromhex(operation),
            bytes.fromhex(content),
            [bytes.fromhex(name) for name in slots],
            [bytes.fromhex(name) for name in tags],
        )
    except ValueError as error:
        raise _no_stub() from error
    names = [*hidden.slot_names, *hidden.tag_names]
    lengths = {len(hidden.content_hash), *map(len, names)}
    if len(hidden.operation_hash) != 32 or lengths != {8}:
        raise _no_stub()
    return hidden


def _no_stub() -> InvalidInputError:
    return InvalidInputError(
        "hidden is no stub of a redacted turn", field=HIDDEN_FIELD, hint="leave it out"
    )


def _lone_surrogate(body: Body) -> InvalidInputError:
    """Find the text that cannot be UTF-8."""
    field = "record"
    for name in ("content", *_TEXT_FIELDS, "to", "extra"):
        text: Any = getattr(body, name)
        texts: list[Any] = list(text) if isinstance(text, dict) else [text]  # pyright: ignore[reportUnknownArgumentType]
        for each in texts:
            if isinstance(each, str) and not _is_whole(each):
                field = name
                break
    return InvalidInputError(
        f"{field} holds half of a surrogate pair",
        field=field,
        hint="send whole characters",
        code="lone_surrogate",
    )


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_large(body: Body, size: int) -> InvalidInputError:
    text = body.content.encode() if isinstance(body.content, str) else body.parts
    return InvalidInputError(
        f"the record has {size} bytes, at most {RECORD_BYTES_MAX} are kept",
        field="content" if 2 * len(text or b"") > size else "record",
        hint="send larger parts by reference",
        code="too_large",
    )
