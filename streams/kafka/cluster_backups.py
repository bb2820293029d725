"""Back up a cluster: each partition at its owner, all workers at the same time."""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from turnstate.schemas.errors import (
    InvalidInputError,
    NotFoundError,
    TurnstateError,
    UnavailableError,
)
from turnstate.storage.backup.manifest import Manifest, manifests, numbers
from turnstate.storage.backup.snapshot import check_backup
from turnstate.streams.documents import Document, error_document
from turnstate.streams.embedded.messages import error_of
from turnstate.streams.kafka.backup_place import backups_root, opened_backups
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.cluster_settings import ClusterSettings

_JOB_BYTES: Final = 8
_LOOK_S: Final = 0.2
_PAUSES_S: Final = (0.0, 0.5, 2.0, 8.0, 20.0)
"""So long waits each next try of a backup that a moving partition, one that is still
being restored, or a long round ended; after the last it has failed."""

_MOVED: Final = frozenset({"backup_beside", "busy", "not_fresh", "not_here"})
"""`backup_beside`: its last owner was still at it."""

Told = Callable[[int, int | None], None]
"""Is told how many files are done, and of how many."""


def checked_numbers(
    cluster: ClusterSettings, asked: Iterable[int] | None
) -> list[int]:
    """Return the partitions that were named; all of them for None.

    Raises:
        InvalidInputError: there is no such partition.
    """
    if asked is None:
        return list(range(cluster.partitions))
    wanted = sorted(set(asked))
    for number in wanted:
        if not 0 <= number < cluster.partitions:
            raise InvalidInputError(
                f"there is no partition {number}",
                field="partition",
                hint=f"0 to {cluster.partitions - 1}",
            )
    return wanted


def back_up(
    reader: ClusterReader,
    partitions: Sequence[int] | None = None,
    *,
    where: str = "",
    keep: int | None = None,
    progress: Told | None = None,
) -> Document:
    """Have the owners of partitions back them up; what fails does not stop others.

    Args:
        reader: Finds the owners.
        partitions: Which; None = all.
        where: The place; as the workers' settings say where empty.
        keep: Backups of each partition that stay, older ones are removed.
        progress: Is told how many files are done.

    Returns:
        `where`, `partitions` (a row each, `status` `made` or `failed` with its
        `error`), how many were `made` and have `failed`, `files_new`,
        `bytes_new`, `seconds`.

    Raises:
        InvalidInputError: there is no such partition.
        UnavailableError: no place is named.
    """
    options = {"where": where, "keep": keep, "replaces": False}
    return _Backups(reader, options, progress).run(partitions)


def replace_backups(
    reader: ClusterReader, partitions: Sequence[int], *, where: str = ""
) -> Document:
    """Make new backups in the place of all that there are of some partitions.

    For an erase: once what it erased is in no file of the owners' stores any
    more. The older backups go, and all files that only they have, whatever
    their age. A partition that was never backed up there stays so.

    Args:
        reader: Finds the owners.
        partitions: Which.
        where: The place; as the settings say where empty. Without one there is
            nothing to be done.

    Returns:
        As `back_up`; a row's `status` is `none` where there was no backup.
        Those that `failed` still hold what was erased.
    """
    if not where and not reader.cluster.backups:
        return _report("", [], 0.0)
    options = {"where": where, "keep": None, "replaces": True}
    return _Backups(reader, options, None).run(partitions)


class _Backups:
    """One job: it begins all backups, then asks how far they are."""

    def __init__(
        self, reader: ClusterReader, options: Document, progress: Told | None
    ) -> None:
        self._reader = reader
        self._options = options
        self._progress = progress
        self._jobs: dict[int, str] = {}
        self._tried: dict[int, int] = {}
        self._begins_at: dict[int, float] = {}
        self._files: dict[int, tuple[int, int]] = {}
        self._rows: list[Document] = []

    def run(self, partitions: Sequence[int] | None) -> Document:
        began = time.monotonic()
        root = backups_root(self._reader.cluster, self._options["where"])
        wanted = checked_numbers(self._reader.cluster, partitions)
        self._tried = dict.fromkeys(wanted, 0)
        for number in wanted:
            self._begin(number)
        while self._tried:
            time.sleep(_LOOK_S)
            for number in list(self._tried):
                self._look(number)
        self._rows.sort(key=lambda row: row["partition"])
        return _report(root, self._rows, time.monotonic() - began)

    def _look(self, number: int) -> None:
        if number not in self._begins_at:
            self._ask(number, "backup_state")
        elif time.monotonic() >= self._begins_at[number]:
            del self._begins_at[number]
            self._begin(number)

    def _begin(self, number: int) -> None:
        # A new name each time, else a worker tells what came of the try before.
        self._jobs[number] = secrets.token_hex(_JOB_BYTES)
        self._ask(number, "backup_start")

    def _ask(self, number: int, method: str) -> None:
        arguments: Document = {"partition": number, "job": self._jobs[number]}
        if method == "backup_start":
            arguments |= self._options
        try:
            answer: Document = self._reader.ask(number, method, arguments)
        except TurnstateError as error:
            self._failed(number, error)
            return
        state = answer.pop("state")
        if state == "made":
            status = "none" if answer["number"] is None else "made"
            self._end(number, {"status": status, **answer})
        elif state == "running":
            self._files[number] = answer["done"], answer["total"]
            self._tell()
        else:
            self._again(number, answer)

    def _again(self, number: int, answer: Document) -> None:
        """Begin anew where the partition has another owner, or had no time."""
        error = error_of(answer["error"]) if "error" in answer else _lost(number)
        tried = self._tried[number]
        if tried == len(_PAUSES_S) or error.code not in _MOVED:
            self._failed(number, error)
            return
        self._tried[number] += 1
        self._begins_at[number] = time.monotonic() + _PAUSES_S[tried]

    def _failed(self, number: int, error: TurnstateError) -> None:
        self._end(number, {"status": "failed", **error_document(error)})
        self._rows[-1]["exit_code"] = error.exit_code

    def _end(self, number: int, row: Document) -> None:
        del self._tried[number]
        self._rows.append({"partition": number, **row})

    def _tell(self) -> None:
        if self._progress is not None:
            done = sum(each[0] for each in self._files.values())
            self._progress(done, sum(each[1] for each in self._files.values()))


def listing(
    cluster: ClusterSettings,
    partitions: Sequence[int] | None = None,
    *,
    where: str = "",
) -> Document:
    """Return the backups of partitions; no worker is asked.

    Raises:
        CorruptDataError: a manifest is damaged.
        UnavailableError: no place is named, or it cannot be reached.
    """
    rows = [
        _row(number, manifest)
        for number in checked_numbers(cluster, partitions)
        for manifest in _manifests(cluster, number, where)
    ]
    return {"where": backups_root(cluster, where), "backups": rows}


def check(
    cluster: ClusterSettings,
    partitions: Sequence[int] | None = None,
    *,
    where: str = "",
    number: int | None = None,
    progress: Told | None = None,
) -> Document:
    """Read backups whole and say what is missing or damaged; no worker is asked.

    Args:
        cluster: Names the place.
        partitions: Which; None = all that have backups.
        where: Another place.
        number: Of the backups; the latest ones where None.
        progress: Is told how many files were read.

    Returns:
        `where`, `backups` (a row each, with `bad`), and how many are `bad`.

    Raises:
        NotFoundError: a partition that was named has no such backup.
        CorruptDataError: a manifest is damaged.
    """
    rows: list[Document] = []
    for at in checked_numbers(cluster, partitions):
        try:
            with opened_backups(cluster, at, where) as objects:
                manifest, faults = check_backup(objects, number, progress)
        except NotFoundError:
            if partitions is not None or number is not None:
                raise
            continue
        rows.append({**_row(at, manifest), "bad": faults})
    return {
        "where": backups_root(cluster, where),
        "backups": rows,
        "bad": sum(1 for row in rows if row["bad"]),
    }


def _manifests(cluster: ClusterSettings, number: int, where: str) -> list[Manifest]:
    try:
        with opened_backups(cluster, number, where) as objects:
            return list(manifests(objects, numbers(objects)))
    except NotFoundError:
        return []  # it was never backed up there


def _row(partition: int, manifest: Manifest) -> Document:
    facts = manifest.partition
    return {
        "partition": partition,
        "number": manifest.number,
        "time_ms": manifest.time_ms,
        "position": manifest.facts.position,
        "offset": None if facts is None else facts.offset,
        "sessions": manifest.facts.sessions,
        "files": len(manifest.files),
        "bytes": manifest.bytes,
    }


def _report(root: str, rows: Sequence[Document], seconds: float) -> Document:
    made = [row for row in rows if row["status"] == "made"]
    return {
        "where": root,
        "partitions": list(rows),
        "made": len(made),
        "failed": sum(1 for row in rows if row["status"] == "failed"),
        "files_new": sum(row["files_new"] for row in made),
        "bytes_new": sum(row["bytes_new"] for row in made),
        "seconds": round(seconds, 3),
    }


def _lost(number: int) -> UnavailableError:
    return UnavailableError(
        f"partition {number} went to another worker while it was backed up",
        field="partition",
        hint="make the backup again once the group has settled",
        code="not_here",
    )
