"""The wheel holds what the checkout has, and works where the checkout is not."""

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from support.source import FOLDERS, ROOT, source_files


def config() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_on_disk_is_listed() -> None:
    on_disk = {
        ".".join(("turnstate", *path.parent.relative_to(ROOT).parts))
        for path in source_files()
    }

    assert on_disk == set(config()["tool"]["setuptools"]["packages"])


def test_every_folder_with_modules_is_a_package() -> None:
    bare = {
        str(path.parent.relative_to(ROOT))
        for path in source_files()
        if not (path.parent / "__init__.py").exists()
    }

    assert bare == set()


def test_every_folder_says_that_it_is_typed_and_is_linked_for_type_checkers() -> None:
    for folder in FOLDERS:
        link = ROOT / ".importroot" / "turnstate" / folder

        assert (ROOT / folder / "py.typed").exists()
        assert link.readlink() == Path("..", "..", folder)


def test_every_dependency_has_a_lower_bound_and_no_upper_one() -> None:
    for dependency in config()["project"]["dependencies"]:
        assert ">=" in dependency
        assert "<" not in dependency
        assert "==" not in dependency


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from an sdist, as an index would get it."""
    given = os.environ.get("WHEEL_DIR")
    place = ROOT / given if given else tmp_path_factory.mktemp("dist")
    for old in place.glob("turnstate-*"):
        old.unlink()
    command = [sys.executable, "-m", "build", "--outdir", str(place), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = place.glob("turnstate-*.whl")
    return built


@pytest.mark.wheel
def test_the_wheel_holds_every_module_and_every_data_file(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    modules = {
        str(PurePosixPath("turnstate", *path.relative_to(ROOT).parts))
        for path in source_files()
    }
    data = {
        str(PurePosixPath("turnstate", *path.relative_to(ROOT).parts))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
        and path.suffix not in {".py", ".pyc"}
        and not path.name.startswith("FORMAT")  # for readers of the source
    }

    assert modules - held == set()
    assert data - held == set()
    assert "turnstate/schemas/dialogue/graphs/default.toml" in held
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in held)


@pytest.mark.wheel
def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    for name in zipfile.ZipFile(wheel).namelist():
        top, *rest = PurePosixPath(name).parts

        assert top == "turnstate" or top.endswith(".dist-info"), name
        assert top.endswith(".dist-info") or rest[0] in FOLDERS, name
        assert "tests" not in rest, name
        assert not name.endswith(".pyc"), name


@pytest.mark.wheel
def test_the_wheel_works_in_a_fresh_place(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", str(wheel)]
    subprocess.run(install, check=True, cwd=tmp_path)
    program = (
        "import turnstate.schemas, turnstate.schemas.dialogue.phases as phases;"
        "print(phases.default_graph().start, turnstate.schemas.__file__)"
    )

    said = subprocess.run(
        [python, "-c", program],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    ).stdout

    assert said.startswith("open ")
    assert str(home) in said
