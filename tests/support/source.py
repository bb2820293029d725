"""Find the project's own source files and the names they are imported by."""

import functools
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("agents", "infra", "replay", "schemas", "storage", "streams")


@functools.cache
def source_files() -> tuple[Path, ...]:
    """Return every module of the package, sorted."""
    return tuple(
        sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    )


def module_name(path: Path) -> str:
    """Return what a source file is imported as."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("turnstate", *(part for part in parts if part != "__init__")))


def module_names() -> list[str]:
    """Return the names of all modules that may be imported without running."""
    return [module_name(path) for path in source_files() if path.name != "__main__.py"]
