"""The protobuf schema only grows, and the committed code is what it says."""

from pathlib import Path
from typing import Final

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from support.additive import IMPORT_NAME, PROTO, breaks, committed_before, compiled
from support.source import ROOT
from turnstate.schemas.wire.proto import turnstate_pb2

GOLDEN: Final = ROOT / "tests" / "compat" / "golden" / "proto"
RELEASED: Final = sorted(GOLDEN.glob("*.binpb"))
"""Descriptor sets of released versions, never touched again."""

NEVER_FIRST: Final = frozenset(
    b' \t\n\r{["-0123456789tfnNI\x1f\x89\x93\xc1\xef\xfe\xff'
)
"""What begins JSON, gzip, a frame, a recorded or packed record, a byte order mark."""

_MOVED: Final = ["package or syntax changed", "Turn.extra = 7 has another type"]

BASE: Final = """
syntax = "proto3";
package turnstate.v1;
message Turn {
  reserved 1, 20 to 22;
  reserved "old";
  optional string tenant = 2;
  string session = 3;
  repeated uint64 counts = 4;
  oneof content { string text = 5; bytes parts = 6; }
  map<string, bytes> extra = 7;
}
enum Kind { KIND_NONE = 0; KIND_EDIT = 1; reserved 9; }
"""


def current() -> FileDescriptorProto:
    return compiled((ROOT / PROTO).read_text(encoding="utf-8"))


def test_the_committed_code_is_that_of_the_schema() -> None:
    committed = FileDescriptorProto.FromString(turnstate_pb2.DESCRIPTOR.serialized_pb)

    assert committed.name == IMPORT_NAME
    assert committed == current(), "run `make proto`"


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.stem)
def test_the_schema_adds_to_each_released_version(path: Path) -> None:
    (released,) = FileDescriptorSet.FromString(path.read_bytes()).file

    assert breaks(released, current()) == []


def test_there_are_released_versions() -> None:
    assert [path.stem for path in RELEASED][:1] == ["v1"]


def test_the_schema_adds_to_what_is_committed() -> None:
    now = current()

    for commit, text in committed_before():
        assert breaks(compiled(text), now) == [], commit


def test_no_field_of_a_turn_begins_as_something_else_does() -> None:
    (turn,) = [each for each in current().message_type if each.name == "Turn"]
    for field in turn.field:
        wire = 1 if field.type == field.TYPE_DOUBLE else 0
        if field.type in (field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_MESSAGE):
            wire = 2
        tag = field.number << 3 | wire
        first = tag if tag < 128 else tag & 127 | 128
        assert first not in NEVER_FIRST, field.name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("tenant = 2", "owner = 2"), ["Turn.tenant = 2 is used again, by owner"]),
        (
            ("optional string tenant = 2;", "optional bytes tenant = 2;"),
            ["Turn.tenant = 2 has another type"],
        ),
        (
            ("optional string tenant = 2;", "repeated string tenant = 2;"),
            ["Turn.tenant = 2 has another label"],
        ),
        (
            ("  string session", "  optional string session"),
            ["Turn.session = 3 has another label"],
        ),
        (
            ("  string session = 3;\n", ""),
            [
                "Turn.session = 3 is gone, its number is not reserved",
                "Turn.session = 3 is gone, its name is not reserved",
            ],
        ),
        (
            ("  string session = 3;\n", "  reserved 3;\n"),
            ["Turn.session = 3 is gone, its name is not reserved"],
        ),
        (
            ("  string session = 3;\n", '  reserved "session";\n'),
            ["Turn.session = 3 is gone, its number is not reserved"],
        ),
        (
            ("  string session = 3;\n", "  string session = 8;\n"),
            [
                "Turn.session = 3 is gone, its number is not reserved",
                "Turn.session = 3 is gone, its name is not reserved",
            ],
        ),
        (
            ("string text = 5; bytes", "string text = 5; } oneof other { bytes"),
            ["Turn.parts = 6 has another choice"],
        ),
        (
            ("counts = 4;", "counts = 4 [packed = false];"),
            ["Turn.counts = 4 has another packing"],
        ),
        (
            ("map<string, bytes>", "map<string, string>"),
            ["Turn.ExtraEntry.value = 2 has another type"],
        ),
        (("20 to 22", "20, 22"), ["Turn: 21 is no longer reserved"]),
        (('  reserved "old";\n', ""), ["Turn: 'old' is no longer reserved"]),
        (("KIND_EDIT", "KIND_CUT"), ["Kind.KIND_EDIT is used again, by KIND_CUT"]),
        (("KIND_EDIT = 1;", ""), ["Kind.KIND_EDIT is gone, and not reserved"]),
        ((" reserved 9;", ""), ["Kind: 9 is no longer reserved"]),
        (("enum Kind", "enum Sort"), ["Kind is gone"]),
        (("message Turn", "message Round"), ["Turn is gone"]),
        (("turnstate.v1", "turnstate.v2"), _MOVED),
        # What may be done:
        (
            (
                "  string session = 3;\n",
                '  reserved 3; reserved "session";\n  string more = 8;\n',
            ),
            [],
        ),
        (("bytes parts = 6;", "bytes parts = 6; bytes sound = 9;"), []),
        (("KIND_EDIT = 1;", "KIND_EDIT = 1; KIND_CUT = 2;"), []),
        (("KIND_EDIT = 1;", 'reserved 1; reserved "KIND_EDIT";'), []),
        (("reserved 1, 20", "reserved 1, 19, 20"), []),
    ],
)
def test_what_breaks_a_reader_is_caught(
    change: tuple[str, str], said: list[str]
) -> None:
    assert change[0] in BASE

    assert breaks(_base(), compiled(BASE.replace(*change))) == said


def test_the_same_breaks_nothing() -> None:
    assert breaks(_base(), _base()) == []


def test_what_is_no_schema_is_said() -> None:
    with pytest.raises(ValueError, match="Expected"):
        compiled("no schema")


def _base() -> FileDescriptorProto:
    return compiled(BASE)
