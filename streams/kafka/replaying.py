"""Fold a range of a topic of turns again, partitions divided over processes."""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from turnstate.replay.engine import PROCESSES_MAX, FoldedSession
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.streams.kafka.replay_loop import FoldedShare, Share, folded_share
from turnstate.streams.kafka.replay_plan import Plan
from turnstate.streams.kafka.replay_range import Source
from turnstate.streams.process import tune_process

SMALL_RECORDS: Final = 20_000
"""Fewer are folded before other processes have started."""

_LOOK_S: Final = 0.2

Told = Callable[[int, int], None]
"""Told how many records are folded, of how many."""


@dataclass(frozen=True, slots=True)
class FoldedTopic:
    """What a range of a topic folded to; its stores are there while it is open.

    Attributes:
        plan: What was folded.
        folder: Below it lie the scratch stores, `PARTITION/store`.
        sessions: Session key → what it folded to; erased ones are left out.
        touched: The sessions of which the range changed something.
        turns: Operations of the range that were folded, copies not among them.
        refused: Reason → how many turns of the range were refused.
        seconds: How long it took.
        cpu_s: Processor time of it, of all processes.
    """

    plan: Plan
    folder: Path
    sessions: Mapping[bytes, FoldedSession]
    touched: frozenset[bytes]
    turns: int
    refused: Mapping[str, int]
    seconds: float
    cpu_s: float


@contextmanager
def folded_topic(
    source: Source,
    plan: Plan,
    graph: DialogueGraph,
    log_name: str,
    *,
    rate: float | None = None,
    shuffle: int | None = None,
    processes: int | None = None,
    told: Told | None = None,
) -> Generator[FoldedTopic]:
    """Fold what was planned, as a worker would, and give what came of it.

    Each turn goes through the agent of a worker, with its checks, at the
    position where it lies in the log, at the time when it got there. So turns
    without a stamp get the stamps that they have in the live state.

    Args:
        source: Where the turns are.
        plan: Which of them.
        graph: The dialogue graph.
        log_name: The name under which unstamped turns are stamped.
        rate: Turns folded a second at most; then in one process.
        shuffle: Take partitions in an order that this seed decides.
        processes: How many share the partitions; None = one a core, at most
            four, and one for few records.
        told: Is told of progress.

    Raises:
        InvalidInputError: the rate is none.
        UnavailableError: the brokers stay away, or turns were deleted
            meanwhile.
    """
    if rate is not None and not 0 < rate < float("inf"):
        raise InvalidInputError(
            f"--rate is {rate}", field="rate", hint="turns a second, above 0"
        )
    with tempfile.TemporaryDirectory(prefix="turnstate-replay-") as folder:
        share = Share(
            source.settings,
            source.topic,
            plan,
            Path(folder),
            graph,
            log_name,
            rate,
            shuffle,
            tuple(plan.spans),
        )
        began = time.monotonic()
        shares = divided(share, _process_count(plan, rate, processes))
        done = _in_processes(shares, told) if len(shares) > 1 else [_here(share, told)]
        seconds = time.monotonic() - began
        yield _merged(plan, Path(folder), done, seconds)


def _merged(
    plan: Plan, folder: Path, shares: Sequence[FoldedShare], seconds: float
) -> FoldedTopic:
    sessions: dict[bytes, FoldedSession] = {}
    refused: Counter[str] = Counter()
    for each in shares:
        sessions |= each.sessions
        refused.update(each.refused)
    return FoldedTopic(
        plan,
        folder,
        sessions,
        frozenset().union(*(each.touched for each in shares)),
        sum(each.turns for each in shares),
        dict(sorted(refused.items())),
        seconds,
        sum(each.cpu_s for each in shares),
    )


def _process_count(plan: Plan, rate: float | None, asked: int | None) -> int:
    if rate is not None:
        return 1
    if asked is not None:
        return asked
    if plan.records < SMALL_RECORDS:
        return 1
    return min(os.cpu_count() or 1, PROCESSES_MAX)


def divided(share: Share, count: int) -> list[Share]:
    """Return a share divided into at most `count`, of about as many records each."""
    sizes = {
        number: span.end - span.first for number, span in share.plan.spans.items()
    }
    parts: list[list[int]] = [[] for _ in range(max(1, min(count, len(sizes))))]
    for number in sorted(sizes, key=lambda each: -sizes[each]):
        min(parts, key=lambda part: sum(sizes[each] for each in part)).append(number)
    return [share._replace(numbers=tuple(part)) for part in parts if part]


def _here(share: Share, told: Told | None) -> FoldedShare:
    total = share.plan.records

    def count(done: int) -> None:
        if told is not None:
            told(done, total)

    return folded_share(share, count)


def _in_processes(shares: Sequence[Share], told: Told | None) -> list[FoldedShare]:
    total = shares[0].plan.records
    context = get_context("spawn")
    # Numbers alone, each written by one process, so no lock: how many records
    # each share has done, and last whether one has failed.
    counts = context.Array("Q", len(shares) + 1, lock=False)
    failed: BaseException | None = None
    with ProcessPoolExecutor(
        len(shares), mp_context=context, initializer=_begin, initargs=(counts,)
    ) as pool:
        jobs = [pool.submit(_in_process, share, at) for at, share in enumerate(shares)]
        waiting: set[Future[FoldedShare]] = set(jobs)
        while waiting:
            done, waiting = wait(waiting, timeout=_LOOK_S)
            if told is not None:
                told(sum(counts[: len(shares)]), total)
            for job in done:
                failed = failed or job.exception()
            counts[len(shares)] = failed is not None
    if failed is not None:
        raise failed
    return [job.result() for job in jobs]


_counts: Any = None
"""In a process that folds a share: what `_in_processes` shares with it."""


def _begin(counts: Any) -> None:
    global _counts  # noqa: PLW0603 - shared memory cannot ride with a job
    _counts = counts
    tune_process()


def _in_process(share: Share, at: int) -> FoldedShare:
    def count(done: int) -> None:
        _counts[at] = done
        if _counts[-1]:
            raise UnavailableError("another part of the replay has failed")

    return folded_share(share, count)
