from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Operation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_UNSPECIFIED: _ClassVar[Operation]
    OPERATION_EDIT: _ClassVar[Operation]
    OPERATION_REDACT: _ClassVar[Operation]
    OPERATION_ROLLBACK: _ClassVar[Operation]
    OPERATION_FORK: _ClassVar[Operation]
    OPERATION_END: _ClassVar[Operation]
    OPERATION_ERASE: _ClassVar[Operation]

class FrameKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FRAME_KIND_UNSPECIFIED: _ClassVar[FrameKind]
    FRAME_KIND_HEAD: _ClassVar[FrameKind]
    FRAME_KIND_FRAME: _ClassVar[FrameKind]
    FRAME_KIND_SEGMENT: _ClassVar[FrameKind]
OPERATION_UNSPECIFIED: Operation
OPERATION_EDIT: Operation
OPERATION_REDACT: Operation
OPERATION_ROLLBACK: Operation
OPERATION_FORK: Operation
OPERATION_END: Operation
OPERATION_ERASE: Operation
FRAME_KIND_UNSPECIFIED: FrameKind
FRAME_KIND_HEAD: FrameKind
FRAME_KIND_FRAME: FrameKind
FRAME_KIND_SEGMENT: FrameKind

class Turn(_message.Message):
    __slots__ = ("tenant", "session", "role", "turn_id", "content_text", "content_parts", "content_null", "slots", "metadata", "parent_ids", "parent_null", "time_text", "time_ms", "stamp", "tool_calls", "name", "confidence", "intent", "action", "tool_call_id", "tags", "usage", "user", "branch", "continues", "stage", "request_id", "if_version", "op", "target", "to_session", "to_clock", "incarnation", "extra")
    class UsageEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class ExtraEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TEXT_FIELD_NUMBER: _ClassVar[int]
    CONTENT_PARTS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_NULL_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PARENT_IDS_FIELD_NUMBER: _ClassVar[int]
    PARENT_NULL_FIELD_NUMBER: _ClassVar[int]
    TIME_TEXT_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    IF_VERSION_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TO_SESSION_FIELD_NUMBER: _ClassVar[int]
    TO_CLOCK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    session: str
    role: str
    turn_id: str
    content_text: str
    content_parts: Parts
    content_null: Null
    slots: Slots
    metadata: bytes
    parent_ids: References
    parent_null: Null
    time_text: str
    time_ms: int
    stamp: Stamp
    tool_calls: bytes
    name: str
    confidence: float
    intent: str
    action: str
    tool_call_id: str
    tags: Tags
    usage: _containers.ScalarMap[str, int]
    user: str
    branch: str
    continues: str
    stage: str
    request_id: str
    if_version: int
    op: Operation
    target: str
    to_session: str
    to_clock: Clock
    incarnation: int
    extra: _containers.ScalarMap[str, bytes]
    def __init__(self, tenant: _Optional[str] = ..., session: _Optional[str] = ..., role: _Optional[str] = ..., turn_id: _Optional[str] = ..., content_text: _Optional[str] = ..., content_parts: _Optional[_Union[Parts, _Mapping]] = ..., content_null: _Optional[_Union[Null, _Mapping]] = ..., slots: _Optional[_Union[Slots, _Mapping]] = ..., metadata: _Optional[bytes] = ..., parent_ids: _Optional[_Union[References, _Mapping]] = ..., parent_null: _Optional[_Union[Null, _Mapping]] = ..., time_text: _Optional[str] = ..., time_ms: _Optional[int] = ..., stamp: _Optional[_Union[Stamp, _Mapping]] = ..., tool_calls: _Optional[bytes] = ..., name: _Optional[str] = ..., confidence: _Optional[float] = ..., intent: _Optional[str] = ..., action: _Optional[str] = ..., tool_call_id: _Optional[str] = ..., tags: _Optional[_Union[Tags, _Mapping]] = ..., usage: _Optional[_Mapping[str, int]] = ..., user: _Optional[str] = ..., branch: _Optional[str] = ..., continues: _Optional[str] = ..., stage: _Optional[str] = ..., request_id: _Optional[str] = ..., if_version: _Optional[int] = ..., op: _Optional[_Union[Operation, str]] = ..., target: _Optional[str] = ..., to_session: _Optional[str] = ..., to_clock: _Optional[_Union[Clock, _Mapping]] = ..., incarnation: _Optional[int] = ..., extra: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class Null(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Parts(_message.Message):
    __slots__ = ("part",)
    PART_FIELD_NUMBER: _ClassVar[int]
    part: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, part: _Optional[_Iterable[bytes]] = ...) -> None: ...

class References(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[_Iterable[str]] = ...) -> None: ...

class Slots(_message.Message):
    __slots__ = ("set", "delete")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    SET_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    set: _containers.ScalarMap[str, bytes]
    delete: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, set: _Optional[_Mapping[str, bytes]] = ..., delete: _Optional[_Iterable[str]] = ...) -> None: ...

class Tags(_message.Message):
    __slots__ = ("add", "remove")
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    add: _containers.RepeatedScalarFieldContainer[str]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, add: _Optional[_Iterable[str]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class Stamp(_message.Message):
    __slots__ = ("dot", "lamport", "seen", "incarnation")
    class SeenEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Spans
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Spans, _Mapping]] = ...) -> None: ...
    DOT_FIELD_NUMBER: _ClassVar[int]
    LAMPORT_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    dot: Dot
    lamport: int
    seen: _containers.MessageMap[str, Spans]
    incarnation: int
    def __init__(self, dot: _Optional[_Union[Dot, _Mapping]] = ..., lamport: _Optional[int] = ..., seen: _Optional[_Mapping[str, Spans]] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Dot(_message.Message):
    __slots__ = ("replica", "counter")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    replica: str
    counter: int
    def __init__(self, replica: _Optional[str] = ..., counter: _Optional[int] = ...) -> None: ...

class Clock(_message.Message):
    __slots__ = ("spans",)
    class SpansEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Spans
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Spans, _Mapping]] = ...) -> None: ...
    SPANS_FIELD_NUMBER: _ClassVar[int]
    spans: _containers.MessageMap[str, Spans]
    def __init__(self, spans: _Optional[_Mapping[str, Spans]] = ...) -> None: ...

class Spans(_message.Message):
    __slots__ = ("up_to", "intervals")
    UP_TO_FIELD_NUMBER: _ClassVar[int]
    INTERVALS_FIELD_NUMBER: _ClassVar[int]
    up_to: int
    intervals: Intervals
    def __init__(self, up_to: _Optional[int] = ..., intervals: _Optional[_Union[Intervals, _Mapping]] = ...) -> None: ...

class Intervals(_message.Message):
    __slots__ = ("bounds",)
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    bounds: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, bounds: _Optional[_Iterable[int]] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("tenant", "session", "incarnation", "from_version", "to_version", "kind", "time_ms", "frame", "traceparent")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FROM_VERSION_FIELD_NUMBER: _ClassVar[int]
    TO_VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    session: str
    incarnation: int
    from_version: int
    to_version: int
    kind: FrameKind
    time_ms: int
    frame: bytes
    traceparent: str
    def __init__(self, tenant: _Optional[str] = ..., session: _Optional[str] = ..., incarnation: _Optional[int] = ..., from_version: _Optional[int] = ..., to_version: _Optional[int] = ..., kind: _Optional[_Union[FrameKind, str]] = ..., time_ms: _Optional[int] = ..., frame: _Optional[bytes] = ..., traceparent: _Optional[str] = ...) -> None: ...
