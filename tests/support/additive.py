"""Compare two versions of a protobuf file: what would break readers of the older."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from support.source import ROOT

PROTO: Final = "schemas/wire/proto/turnstate.proto"
"""The file that is looked at, from the root of the checkout."""

IMPORT_NAME: Final = f"turnstate/{PROTO}"
"""Its name in descriptors, as `make proto` gives it."""


def compiled(source: str) -> FileDescriptorProto:
    """Return the descriptor of a .proto text, by protoc.

    Raises:
        ValueError: it is no protobuf; what protoc said.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder, IMPORT_NAME)
        path.parent.mkdir(parents=True)
        path.write_text(source, encoding="utf-8")
        out = Path(folder, "set.binpb")
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I", folder]
        command += [f"--descriptor_set_out={out}", IMPORT_NAME]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(done.stderr)
        (file,) = FileDescriptorSet.FromString(out.read_bytes()).file
    for message in file.message_type:
        _leave_out_json_names(message)
    return file


def _leave_out_json_names(message: DescriptorProto) -> None:
    """Names that protoc makes of the others; generated code leaves them out."""
    for field in message.field:
        field.ClearField("json_name")
    for inner in message.nested_type:
        _leave_out_json_names(inner)


def committed_before() -> list[tuple[str, str]]:
    """Return (ref, text) of the file in the commits that a change starts from.

    That is where the branch left `main`, the last commit, and the one before;
    of those that are there and have the file. A tarball has none.
    """
    found: dict[str, str] = {}
    refs = [_git("merge-base", "HEAD", name) for name in ("origin/main", "main")]
    for ref in (*refs, "HEAD", "HEAD^"):
        text = _git("show", f"{ref}:{PROTO}") if ref else None
        commit = _git("rev-parse", ref) if ref and text else None
        if commit and text:
            found[commit.strip()] = text
    return list(found.items())


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *[each.strip() for each in arguments]],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def breaks(base: FileDescriptorProto, now: FileDescriptorProto) -> list[str]:
    """Return what a reader or writer of the older version would stumble over.

    A number keeps its name, type, label and choice for ever; what goes leaves
    its number and its name reserved; what is reserved stays so.
    """
    found: list[str] = []
    if (base.package, base.syntax) != (now.package, now.syntax):
        found.append("package or syntax changed")
    found += _messages(base.message_type, now.message_type, "")
    found += _enums(base.enum_type, now.enum_type, "")
    return found


def _messages(
    base: Iterable[DescriptorProto], now: Iterable[DescriptorProto], place: str
) -> Iterator[str]:
    by_name = {message.name: message for message in now}
    for before in base:
        name = place + before.name
        after = by_name.get(before.name)
        if after is None:
            yield f"{name} is gone"
            continue
        yield from _fields(before, after, name)
        yield from _messages(before.nested_type, after.nested_type, f"{name}.")
        yield from _enums(before.enum_type, after.enum_type, f"{name}.")


def _fields(
    before: DescriptorProto, after: DescriptorProto, name: str
) -> Iterator[str]:
    reserved = _numbers((span.start, span.end) for span in after.reserved_range)
    names = set(after.reserved_name)
    fields = {field.number: field for field in after.field}
    for field in before.field:
        place = f"{name}.{field.name} = {field.number}"
        same = fields.get(field.number)
        if same is None:
            if field.number not in reserved:
                yield f"{place} is gone, its number is not reserved"
            if field.name not in names:
                yield f"{place} is gone, its name is not reserved"
        elif same.name != field.name:
            yield f"{place} is used again, by {same.name}"
        else:
            kept = _kept(before, field), _kept(after, same)
            changed = [what for what in kept[0] if kept[0][what] != kept[1][what]]
            if changed:
                yield f"{place} has another {', '.join(changed)}"
    spans = [(span.start, span.end) for span in before.reserved_range]
    for number in sorted(_numbers(spans) - reserved):
        yield f"{name}: {number} is no longer reserved"
    for lost in sorted(set(before.reserved_name) - names):
        yield f"{name}: {lost!r} is no longer reserved"


def _kept(message: DescriptorProto, field: FieldDescriptorProto) -> dict[str, object]:
    """Return what may never change of a field."""
    choice = None
    if field.HasField("oneof_index") and not field.proto3_optional:
        choice = message.oneof_decl[field.oneof_index].name
    return {
        "type": (field.type, field.type_name),
        "label": (field.label, field.proto3_optional),
        "choice": choice,
        "packing": field.options.packed if field.options.HasField("packed") else None,
    }


def _enums(
    base: Iterable[EnumDescriptorProto], now: Iterable[EnumDescriptorProto], place: str
) -> Iterator[str]:
    by_name = {enum.name: enum for enum in now}
    for before in base:
        name = place + before.name
        after = by_name.get(before.name)
        if after is None:
            yield f"{name} is gone"
            continue
        # The end of an enum's range is inclusive, unlike that of a message's.
        reserved = _numbers((span.start, span.end + 1) for span in after.reserved_range)
        names = set(after.reserved_name)
        values = {value.number: value.name for value in after.value}
        for value in before.value:
            same = values.get(value.number)
            gone = same is None
            if gone and not (value.number in reserved and value.name in names):
                yield f"{name}.{value.name} is gone, and not reserved"
            if not gone and same != value.name:
                yield f"{name}.{value.name} is used again, by {same}"
        spans = ((span.start, span.end + 1) for span in before.reserved_range)
        for number in sorted(_numbers(spans) - reserved):
            yield f"{name}: {number} is no longer reserved"
        for lost in sorted(set(before.reserved_name) - names):
            yield f"{name}: {lost!r} is no longer reserved"


def _numbers(spans: Iterable[tuple[int, int]]) -> set[int]:
    """Return what half-open spans hold; `to max` is cut at a million."""
    return {number for start, end in spans for number in range(start, min(end, 10**6))}
