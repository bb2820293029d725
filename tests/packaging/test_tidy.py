"""The style of the house, as far as a machine can judge it."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.source import ROOT, module_name, source_files

LINES_MAX: Final = 400
FUNCTION_LINES_MAX: Final = 60
"""Statements and blanks, without the docstring; 50 is the aim."""

BANNED_NAMES: Final = frozenset(
    {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}
)
ROOMS: Final = ("schemas", "storage", "agents", "replay", "streams")
"""From the ground up: a room imports itself and those before it."""

PRINTING: Final = ("streams/cli/", "replay/bench/")
"""Doors whose job it is to print."""

PURE: Final = ("schemas/", "storage/frames/", "agents/session/step")
"""Values in, values out; what they may import is in pyproject.toml."""

OUTSIDE: Final = frozenset({"input", "now", "open", "today", "utcnow", "__import__"})
"""Calls that no import gives away."""

DEFINITION_MAY_IMPORT: Final = frozenset(
    {
        "turnstate.schemas.clocks",
        "turnstate.schemas.dialogue.folded",
        "turnstate.schemas.dialogue.phases",
        "turnstate.schemas.errors",
        "turnstate.schemas.ids",
        "turnstate.schemas.limits",
        "turnstate.schemas.operation",
        "turnstate.schemas.turn",
    }
)
"""What fold_set may share with the fold that is compared with it: types only."""

TEST_FILES: Final = tuple(sorted((ROOT / "tests").rglob("*.py")))
TEXT_FILES: Final = (
    *source_files(),
    *TEST_FILES,
    *(ROOT / "docs").rglob("*.md"),
    *ROOT.glob("*.md"),
    ROOT / "Makefile",
    ROOT / "pyproject.toml",
    ROOT / ".ci" / "run",
)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{named(path)}: relative import"
            yield node.module or ""


each_source = pytest.mark.parametrize("path", source_files(), ids=named)
each_module = pytest.mark.parametrize("path", [*source_files(), *TEST_FILES], ids=named)


@each_module
def test_a_module_says_its_one_job_in_its_first_line(path: Path) -> None:
    docstring = ast.get_docstring(tree_of(path))

    assert docstring, "no docstring"
    assert docstring.splitlines()[0].rstrip().endswith((".", ":", "?"))


@each_module
def test_a_module_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


@each_source
def test_a_function_is_short(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            has_text = ast.get_docstring(node) is not None
            body = node.body[1:] if has_text else node.body
            lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0

            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


@each_module
def test_a_module_is_named_by_its_job(path: Path) -> None:
    words = {word for part in path.relative_to(ROOT).parts for word in part.split("_")}

    assert not {word.removesuffix(".py") for word in words} & BANNED_NAMES


@each_source
def test_only_the_command_line_and_benches_print(path: Path) -> None:
    if named(path).startswith(PRINTING):
        return
    calls = [
        node.lineno
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]

    assert calls == []


@pytest.mark.parametrize(
    "path", [path for path in source_files() if named(path).startswith(PURE)], ids=named
)
def test_a_pure_room_opens_no_file_and_reads_no_clock(path: Path) -> None:
    calls = {
        node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name | ast.Attribute)
    }

    assert calls & OUTSIDE == set()


@each_source
def test_a_room_imports_downwards_only(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    if room == "infra":
        below: tuple[str, ...] = ("infra",)
    else:
        assert room in ROOMS, f"{room} is in no layer"
        below = ROOMS[: ROOMS.index(room) + 1]
        below += ("infra",) if room == "streams" else ()
    for name in imports_of(path):
        if name.split(".")[0] == "turnstate":
            assert name.split(".")[1] in below, f"{module_name(path)} imports {name}"


def test_the_definition_shares_only_types_with_the_fold() -> None:
    path = ROOT / "schemas" / "dialogue" / "fold_set.py"
    ours = {name for name in imports_of(path) if name.startswith("turnstate.")}

    assert ours - DEFINITION_MAY_IMPORT == set()


@pytest.mark.parametrize("path", TEXT_FILES, ids=named)
def test_no_path_of_one_machine_stands_in_a_file(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    homes = {str(ROOT.parent), str(Path.home())} - {"/", str(Path(sys.prefix).anchor)}
    general = re.findall(r"(?<![\w./])/(?:home|Users|root|work)/\w+", text)

    assert general == []
    assert not [home for home in homes if f"{home}/" in text]


@each_module
def test_nothing_is_left_for_later(path: Path) -> None:
    if path == Path(__file__):
        return
    text = path.read_text(encoding="utf-8")

    assert not re.search(r"\b(TODO|FIXME|XXX|NotImplementedError)\b", text)
