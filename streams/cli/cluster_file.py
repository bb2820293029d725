"""Tell where the services are: write cluster.toml, and keep what stood in it."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from turnstate.infra.services.folder import write_whole
from turnstate.schemas.errors import ConflictError, InvalidInputError

FILE_NAME: Final = "cluster.toml"

MARK: Final = "# Where the services are: written by `turnstate cluster up`.\n"
"""The first line of a file that may be written again."""

Sections = Mapping[str, Mapping[str, str]]

_DELETE: Final = {0x7F: "\\u007F"}
"""The one character that JSON leaves bare and TOML does not."""


def check_ours(data: Path) -> None:
    """Make sure that cluster.toml may be written.

    Raises:
        ConflictError: somebody wrote it, who may mean another cluster.
        InvalidInputError: it cannot be read.
    """
    path = data / FILE_NAME
    text = _text(path)
    if text and not text.startswith(MARK) and "kafka" in _read(path, text):
        raise ConflictError(
            f"{path} was not written by `turnstate cluster up`",
            field=FILE_NAME,
            hint="move it away, or give another --data",
        )


def write_connections(data: Path, sections: Sections) -> Path:
    """Write how services are reached; other sections and keys stay as they are.

    A file that says so already is not touched, so that comments stay.

    Args:
        data: The data folder.
        sections: Section → key → value.
    """
    path = data / FILE_NAME
    text = _text(path)
    found = _read(path, text)
    wanted = {name: {**found.get(name, {}), **sections[name]} for name in sections}
    document = {**found, **wanted}
    if document != found or not text.startswith(MARK):
        # It holds the secret of the S3 server.
        write_whole(path, MARK + toml(document), mode=0o600)
    return path


def toml(document: Mapping[str, Mapping[str, Any]]) -> str:
    r"""Return sections of plain values as TOML.

    Example:
        >>> print(toml({"kafka": {"bootstrap": "a:1", "partitions": 8}}))
        <BLANKLINE>
        [kafka]
        bootstrap = "a:1"
        partitions = 8
        <BLANKLINE>
    """
    lines: list[str] = []
    for section, values in document.items():
        lines += ["", f"[{_key(section)}]"]
        lines += [f"{_key(key)} = {_value(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    bare = name.replace("-", "").replace("_", "")
    return name if bare.isascii() and bare.isalnum() else _value(name)


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).translate(_DELETE)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error}", field=FILE_NAME, hint="move it away"
        ) from error


def _read(path: Path, text: str) -> dict[str, dict[str, Any]]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(
            f"{path} is no TOML: {error}", field=FILE_NAME, hint="mend it"
        ) from error
