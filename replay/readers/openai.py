"""Read OpenAI conversations: a line holds the messages of one session."""

from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from turnstate.replay.readers.faults import refuse_ambiguous, refused
from turnstate.replay.readers.lines import UTF8_MARK
from turnstate.schemas.turn import WIRE_FIELDS, OptionalRaw, Turn

DEFAULT_TENANT: Final = "default"
"""The tenant of a line that names none."""

_Content = str | list[Raw] | None | UnsetType


class _Message(Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    role: str
    content: _Content = UNSET
    tool_calls: OptionalRaw = None
    tool_call_id: str | None = None
    name: str | None = None


class _Conversation(Struct, frozen=True, gc=False):
    messages: list[Raw]
    tenant: str = DEFAULT_TENANT
    session: str | None = None


_decode_line: Final = msgspec.json.Decoder(_Conversation).decode
_decode_message: Final = msgspec.json.Decoder(_Message).decode
_decode_object: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_encode: Final = msgspec.json.Encoder().encode
_NULL: Final = Raw(b"null")
_LINE_FIELDS: Final = frozenset(_Conversation.__struct_fields__)
_MESSAGE_FIELDS: Final = frozenset(_Message.__struct_fields__)


class ConversationLines:
    """Turn `{"messages": […]}` into turns, one a message, ids by position.

    A line may carry `tenant` and `session`; else the tenant is `default` and
    the session is the hash of the first message with the line's number, so the
    same file read again names the same turns. The message stays as it was:
    `null` stays null, a key that is not there stays away, parts stay parts. A
    key that no chat message has goes on as an unknown field; but where it has
    the name of a turn's own field (`op`, `stamp`, `parent` …) it goes into
    `metadata`, so that a message can never act as an operation. Other keys of
    the line (`tools` …) go into the first turn's metadata under `conversation`.

    A line with one bad message is refused whole: half a conversation would
    show the rest of it at the wrong place once the line is mended.

    Example:
        >>> ConversationLines()(1, b'{"session":"s","messages":[{"role":"user",'
        ...     b'"content":"hi"}]}')[0].decode()
        '{"tenant":"default","session":"s","role":"user","turn_id":"0","content":"hi"}'
    """

    def __call__(self, number: int, line: bytes) -> tuple[bytes, ...]:
        """Return the turns of a line.

        Raises:
            InvalidInputError: it is no conversation. The field is named.
        """
        line = line.removeprefix(UTF8_MARK)
        try:
            refuse_ambiguous(line)
            conversation = _decode_line(line)
            whole = _decode_object(line)
        except (ValueError, RecursionError) as error:
            raise refused(line, error) from error
        messages = conversation.messages
        if not messages:
            return ()
        session = conversation.session
        if session is None:
            session = derived_session(bytes(messages[0]), number)
        about = {key: whole[key] for key in whole if key not in _LINE_FIELDS}
        return tuple(
            _turn(
                message,
                position,
                tenant=conversation.tenant,
                session=session,
                about=about if position == 0 else None,
            )
            for position, message in enumerate(messages)
        )


def derived_session(first_message: bytes, number: int) -> str:
    """Return the name of a session that its line does not name.

    Args:
        first_message: Its JSON bytes as they stand in the line.
        number: The line's number, from 1: equal conversations stay apart.

    Example:
        >>> derived_session(b'{"role":"user","content":"hi"}', 7)
        'f0253686eace54ce-7'
    """
    return f"{blake2b(first_message, digest_size=8).hexdigest()}-{number}"


def _turn(
    raw: Raw,
    position: int,
    *,
    tenant: str,
    session: str,
    about: dict[str, Raw] | None,
) -> bytes:
    line = bytes(raw)
    try:
        try:
            message = _decode_message(line)
            others: dict[str, Raw] = {}
        except msgspec.ValidationError:
            keys = _decode_object(line)
            others = {key: keys[key] for key in keys if key not in _MESSAGE_FIELDS}
            message = _decode_message(
                _encode({key: keys[key] for key in keys if key in _MESSAGE_FIELDS})
            )
    except (ValueError, RecursionError) as error:
        raise refused(line, error, prefix=f"messages[{position}]") from error
    unknown = {key: value for key, value in others.items() if key not in WIRE_FIELDS}
    metadata = {key: value for key, value in others.items() if key in WIRE_FIELDS}
    if about:
        metadata["conversation"] = Raw(_encode(about))
    turn = Turn(
        tenant,
        session,
        message.role,
        str(position),
        message.content,
        tool_calls=None if message.tool_calls == _NULL else message.tool_calls,
        tool_call_id=message.tool_call_id,
        name=message.name,
        metadata=Raw(_encode(metadata)) if metadata else None,
    )
    if not unknown:
        return _encode(turn)
    return _encode({**_decode_object(_encode(turn)), **unknown})
