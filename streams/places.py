"""Open a store of objects by the name that a user gives it: a folder or a bucket."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from turnstate.schemas.errors import InvalidInputError, NotFoundError
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.storage.cold.objects import ObjectStore
from turnstate.storage.cold.s3_settings import S3Settings, open_s3

S3_SCHEME: Final = "s3://"

ENDPOINT_VARIABLE: Final = "TURNSTATE_S3_ENDPOINT"
"""Holds the address of an S3 server that is not AWS."""


_REGION: Final = "AWS_REGION"
_REGION_DEFAULT: Final = "us-east-1"
"""What servers other than AWS take, too."""

_ACCESS_KEY: Final = "AWS_ACCESS_KEY_ID"
_SECRET_KEY: Final = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - the variable's name
_SESSION: Final = "AWS_SESSION_TOKEN"
_VARIABLES: Final = (ENDPOINT_VARIABLE, _REGION, _ACCESS_KEY, _SECRET_KEY)

Access = Mapping[str, str]
"""The variables that say how S3 is reached; without keys boto3 looks for its own."""


def access_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what an environment says of S3, to be sent to the owner of a store.

    Keys that belong to a session are left to boto3, in the owner's environment.

    Example:
        >>> access_of({"TURNSTATE_S3_ENDPOINT": "http://127.0.0.1:9", "HOME": "/"})
        {'TURNSTATE_S3_ENDPOINT': 'http://127.0.0.1:9'}
    """
    names = _VARIABLES[:2] if environment.get(_SESSION) else _VARIABLES
    return {name: environment[name] for name in names if environment.get(name)}


def full_place(where: str) -> str:
    """Return a place in a form that means the same in every process.

    Raises:
        InvalidInputError: it is empty.

    Example:
        >>> full_place("s3://bucket/backups")
        's3://bucket/backups'
    """
    if not where:
        raise InvalidInputError(
            "the place has no name", field="where", hint="a folder, or s3://BUCKET/PREFIX"
        )
    return where if where.startswith(S3_SCHEME) else str(Path(where).absolute())


def open_place(where: str, access: Access) -> ObjectStore:
    """Return the objects at a place.

    Args:
        where: A folder, which is made, or `s3://BUCKET/PREFIX`.
        access: How S3 is reached, see `access_of`.

    Raises:
        InvalidInputError: it is no name of a place.
        UnavailableError: the folder cannot be made, or boto3 is not installed.
    """
    if not where.startswith(S3_SCHEME):
        return DirectoryObjects(Path(where))
    bucket, _, prefix = where.removeprefix(S3_SCHEME).partition("/")
    settings = S3Settings(
        endpoint=access.get(ENDPOINT_VARIABLE, ""),
        bucket=bucket,
        prefix=prefix.strip("/"),
        access_key=access.get(_ACCESS_KEY, ""),
        secret_key=access.get(_SECRET_KEY, ""),
        region=access.get(_REGION) or _REGION_DEFAULT,
    )
    return open_s3(settings)


@contextmanager
def opened_place(
    where: str, access: Access, *, may_make: bool = True
) -> Generator[ObjectStore]:
    """Give the objects at a place for as long as a block lasts, see `open_place`.

    Args:
        where: A folder, or `s3://BUCKET/PREFIX`.
        access: How S3 is reached.
        may_make: Make the folder where it is not there; else it is an error.

    Raises:
        InvalidInputError: it is no name of a place.
        NotFoundError: there is no such folder, and it may not be made.
        UnavailableError: the folder cannot be made, or boto3 is not installed.
    """
    if not may_make and not where.startswith(S3_SCHEME) and not Path(where).is_dir():
        raise NotFoundError(f"there is no folder {where}", field="where")
    objects = open_place(where, access)
    try:
        yield objects
    finally:
        if isinstance(objects, Closable):
            objects.close()


@runtime_checkable
class Closable(Protocol):
    """What holds connections until it is closed."""

    def close(self) -> None:
        """Let them go."""
        ...
