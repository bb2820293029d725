"""The contract of an object store: immutable objects, each created once."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol


class ObjectInfo(NamedTuple):
    """What a list says of an object.

    Attributes:
        name: Its name, with `/` between parts, without the store's own prefix.
        size: Its length in bytes.
        modified_ms: When the store says that it was made, epoch milliseconds.
    """

    name: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    """Hold objects by name. One suite holds for a directory and for S3.

    Nothing is ever overwritten: whoever creates a name first has it, so that
    creating an object can be a commit. Calls block, and may be made from
    several threads at once; callers on an event loop use a pool of threads.

    Every method may raise `UnavailableError` once its bounded retries are
    used up, with a hint that says what to look at (credentials, bucket, disk),
    and `InvalidInputError` for a name that some store could not hold
    (`object_names`). No name may be a folder in another one's, not even after
    a deletion: `a` and `a/b` exclude each other where objects are files, which
    is refused or not as the server has it.
    """

    def create(self, name: str, data: bytes) -> bool:
        """Create an object durably; False where the name is taken.

        Of all calls that create one name, whatever their bytes, one returns
        True. A time-out after success is recognised: a call whose object
        arrived although the answer did not still returns True. After a call
        that raised, the object may be there, whole: a later call returns
        False, and whoever must know whose it is compares the bytes.
        """
        ...

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return an object's bytes, or a range of them, in one request.

        A range that ends behind the object gives what is there.

        Raises:
            NotFoundError: there is no such object.
        """
        ...

    def read_end(self, name: str, length: int) -> bytes:
        """Return the last bytes of an object, all of it where it is shorter.

        Raises:
            NotFoundError: there is no such object.
        """
        ...

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """Yield objects whose names start with a prefix, in name order.

        Args:
            prefix: What names begin with; it may end within a part.
            after: Names up to and with it are passed over.

        Servers that keep folders sort by parts (`a/b` before `a-b`), others by
        characters (`-` before `/`). So page by `after` only where no part of a
        name is the beginning of a part beside it, as below one folder of names
        of one length.
        """
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; those that are not there count as removed."""
        ...
