"""Ask the owners of partitions to erase; note those that cannot be reached."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from turnstate.schemas.clocks import Dot
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.operation import Op
from turnstate.storage.warm.erase_marks import Mark
from turnstate.streams.embedded.erase_plan import ErasePlan
from turnstate.streams.kafka.erase_queries import KEYS_MAX, RECORDS_MAX, Found
from turnstate.streams.kafka.member_reader import MemberReader
from turnstate.streams.kafka.partitioning import partition_of

WORK_S: Final = 900.0
"""How long a worker may take to rewrite a session, or the files of a store."""

_PARTIAL: Final = frozenset({"hot_away", "keys_away", "too_long_to_rewrite"})
"""Codes of errors after which the rest of a partition can be cleaned all the same."""

_T = TypeVar("_T")


class ErasingOwners:
    """Have each owner do its part.

    Args:
        reader: Finds them.

    Attributes:
        unreached: Partition → why its owner could not do all.
        troubles: What else was not cleaned, and why.
    """

    def __init__(self, reader: MemberReader) -> None:
        self.reader = reader
        self.unreached: dict[int, str] = {}
        self.troubles: dict[str, None] = {}

    def home(self, key: bytes) -> int:
        """Return the partition of a session."""
        return partition_of(key, self.reader.cluster.partitions)

    def homes(self, keys: Iterable[bytes]) -> dict[int, list[bytes]]:
        """Return sessions by partition, in order."""
        found: dict[int, list[bytes]] = {}
        for key in sorted(keys):
            found.setdefault(self.home(key), []).append(key)
        return found

    def at(self, number: int, call: Callable[[], _T]) -> _T | None:
        """Do something at a partition; None where its owner cannot be reached."""
        if number in self.unreached:
            return None
        try:
            return call()
        except UnavailableError as error:
            if error.code in _PARTIAL:
                self.troubles[f"partition {number}: {error}"] = None
            else:
                self.unreached[number] = str(error)
            return None

    # -- what there is ----------------------------------------------------------------

    def look(self, plan: ErasePlan, keys: Sequence[bytes] = ()) -> None:
        """Find what an erase is about, and enter it into its plan.

        Args:
            plan: Of a user, unless `keys` name sessions.
            keys: Those.
        """
        numbers: Iterable[int] = range(self.reader.cluster.partitions)
        by_home = self.homes(keys)
        for number in by_home if keys else numbers:
            asked = {
                "tenant": plan.tenant,
                "user": plan.user,
                "keys": by_home.get(number, []),
            }
            for found in self.at(number, partial(self._found, number, asked)) or ():
                enter(plan, found)

    def _found(self, number: int, asked: dict[str, Any]) -> list[Found]:
        return [
            found
            for page in self.reader.pages(number, "erase_plan", asked)
            for found in msgspec.convert(
                page["found"], list[Found], builtin_types=(bytes,)
            )
        ]

    def scan(self, plan: ErasePlan) -> tuple[dict[str, int], int]:
        """Count rows of the sessions in all stores, and those that have to be gone."""
        seen: dict[str, int] = {}
        found = 0
        for number, lives, rewritten in self._parts(plan):
            options = {"lives": lives, "rewritten": rewritten, "user": plan.user}
            answer = self.at(number, partial(self._ask, number, "scan", options))
            if answer is not None:
                for table, count in answer["rows"].items():
                    seen[table] = seen.get(table, 0) + count
                found += answer["found"]
        return seen, found

    # -- cleaning ---------------------------------------------------------------------

    def mark(self, plan: ErasePlan, mark: Mark) -> None:
        """Note at the owners how far an erase has come."""
        for number, lives, rewritten in self._parts(plan):
            marks = [
                *(
                    (key, msgspec.structs.replace(mark, life=life))
                    for key, life in lives
                ),
                *((key, mark) for key in rewritten),
            ]
            self.at(number, partial(self._ask, number, "mark", {"marks": marks}))

    def rewrite(self, plan: ErasePlan) -> dict[tuple[bytes, Dot], Op]:
        """Have sessions of others written anew; return the stubs that stand there."""
        stubs: dict[tuple[bytes, Dot], Op] = {}
        for number, keys in self.homes(plan.rewritten).items():
            for key in keys:
                options = {"key": key, "user": plan.user}
                answer = self.at(
                    number,
                    partial(self._until_done, number, "rewrite", options),
                )
                for record in answer["stubs"] if answer is not None else ():
                    op = Op.decode(record)
                    stubs[key, op.dot] = op
        return stubs

    def clear_hot(self, plan: ErasePlan) -> tuple[int, int]:
        """Clean Redis; return sessions looked at, and those that are there still."""
        seen = found = 0
        for number, lives, rewritten in self._parts(plan):
            options = {"lives": lives, "rewritten": rewritten}
            answer = self.at(number, partial(self._ask, number, "hot", options))
            if answer is not None:
                seen += len(lives) + len(rewritten)
                found += answer["found"]
        return seen, found

    def bury(self, records: dict[int, list[bytes]]) -> None:
        """Have records of the changelog buried that no store has rows of."""
        for number, keys in records.items():
            for begin in range(0, len(keys), RECORDS_MAX):
                part = {"records": keys[begin : begin + RECORDS_MAX]}
                self.at(number, partial(self._ask, number, "bury", part))

    def destroy_keys(self, plan: ErasePlan, job: bytes) -> int:
        """Have the data keys of ended lives destroyed; return how many there were."""
        destroyed = 0
        for number, lives, _ in self._parts(plan):
            if lives:
                options = {"job": job, "lives": lives}
                answer = self.at(
                    number,
                    partial(self._until_done, number, "keys", options),
                )
                destroyed += answer["destroyed"] if answer is not None else 0
        return destroyed

    def purge(self, numbers: Iterable[int], job: bytes) -> None:
        """Have the files of stores rewritten that held what went."""
        for number in numbers:
            answer = self.at(
                number,
                partial(self._until_done, number, "purge", {"job": job}),
            )
            for left in answer["left"] if answer is not None else ():
                self.troubles[f"partition {number}: {left}"] = None

    def remove_folders(self, numbers: Iterable[int]) -> int:
        """Have workers remove what they have of partitions that are others' now."""
        removed = 0
        asked = {"partitions": sorted(numbers)}
        for address in self.reader.members():
            try:
                answer = self.reader.ask_at(address, "erase_folders", asked)
            except UnavailableError as error:
                self.troubles[f"stores of the worker at {address}: {error}"] = None
                continue
            removed += answer["removed"]
        return removed

    # -- inside -----------------------------------------------------------------------

    def _ask(self, number: int, method: str, options: dict[str, Any]) -> Any:
        arguments = {"partition": number, **options}
        return self.reader.ask(number, f"erase_{method}", arguments)

    def _until_done(self, number: int, method: str, options: dict[str, Any]) -> Any:
        end = time.monotonic() + WORK_S
        while True:
            answer = self._ask(number, method, options)
            if answer["done"]:
                return answer
            if time.monotonic() > end:
                raise UnavailableError(
                    f"the worker of partition {number} takes longer than {WORK_S:g} s",
                    hint="erase again",
                )

    def _parts(
        self, plan: ErasePlan
    ) -> Iterator[tuple[int, list[tuple[bytes, int]], list[bytes]]]:
        """Yield (partition, lives, rewritten sessions), some at a time."""
        for number, keys in self.homes({*plan.lives, *plan.rewritten}).items():
            for begin in range(0, len(keys), KEYS_MAX):
                part = keys[begin : begin + KEYS_MAX]
                lives = [(key, plan.lives[key]) for key in part if key in plan.lives]
                others = plan.rewritten.difference(plan.lives)
                yield number, lives, [key for key in part if key in others]


def enter(plan: ErasePlan, found: Found) -> None:
    r"""Enter a session that was found into a plan.

    Example:
        >>> plan, key = ErasePlan("t", "u"), b"\x00\x01ts"
        >>> enter(plan, Found(key, 1, False, True, 7))
        >>> plan.lives == {key: 1}, plan.ending == [key], plan.turns
        (True, True, 7)
    """
    if not found.is_whole:
        plan.rewritten.add(found.key)
        if found.spoken:
            plan.spoken[found.key] = found.spoken
            plan.turns += len(found.spoken)
        return
    life = found.incarnation - found.is_over
    plan.lives[found.key] = max(life, plan.lives.get(found.key, 0))
    if not found.is_over and found.key not in plan.ending:
        plan.ending.append(found.key)
        plan.sessions += 1
        plan.turns += found.turn_count
