"""Real dialogues for benches: turns as JSON, under many session ids, interleaved."""

import os
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from turnstate.replay.readers import Refusal, read_file
from turnstate.replay.samples import sample_paths
from turnstate.schemas.errors import NotFoundError

CORPORA_VARIABLE: Final = "TURNSTATE_DATA_CORPORA"
"""Environment variable: a folder with whole corpora (`*.jsonl.gz`, format
`corpus`). Without it the samples that ship are measured."""

SMALL_DIALOGUES: Final = 3
"""Of each sample file in a small run."""

_SESSION_FIELD: Final = b'"session":"'


class Dialogue(NamedTuple):
    """One session of a corpus.

    Attributes:
        corpus: The corpus, which is its tenant.
        session: Its id.
        turns: Turns as JSON, in order.
    """

    corpus: str
    session: str
    turns: Sequence[bytes]

    def copy(self, number: int) -> "Dialogue":
        """Return the same dialogue under another session id; 0 = itself.

        Example:
            >>> Dialogue("c", "s", [b'{"tenant":"c","session":"s"}']).copy(2).turns
            [b'{"tenant":"c","session":"2~s"}']
        """
        if not number:
            return self
        renamed = _SESSION_FIELD + b"%d~" % number
        return Dialogue(
            self.corpus,
            f"{number}~{self.session}",
            [turn.replace(_SESSION_FIELD, renamed, 1) for turn in self.turns],
        )


class _Named(msgspec.Struct):
    session: str


_decode_name: Final = msgspec.json.Decoder(_Named).decode


def corpus_files(*, small: bool = False) -> list[Path]:
    """Return the corpora: the folder that the environment names, or the samples.

    A small run always takes the samples, so that its digest is the same
    everywhere.

    Raises:
        NotFoundError: the folder that is named holds none.
    """
    named = os.environ.get(CORPORA_VARIABLE)
    if small or not named:
        return sample_paths()
    files = sorted(Path(named).glob("*.jsonl.gz"))
    if not files:
        raise NotFoundError(
            f"{CORPORA_VARIABLE}={named} holds no *.jsonl.gz",
            field=CORPORA_VARIABLE,
            hint="unset it, and the samples that ship are taken",
        )
    return files


def dialogues(
    names: Iterable[str] | None = None, *, small: bool = False
) -> list[Dialogue]:
    """Return the sessions of the corpora, in file order.

    Args:
        names: Only these corpora; one that is not there is left out.
        small: A few sessions of each sample.
    """
    wanted = None if names is None else set(names)
    found: list[Dialogue] = []
    for path in corpus_files(small=small):
        corpus = path.name.partition(".")[0]
        if wanted is None or corpus in wanted:
            found += islice(_sessions(path, corpus), SMALL_DIALOGUES if small else None)
    return found


def _sessions(path: Path, corpus: str) -> Iterator[Dialogue]:
    session: str | None = None
    turns: list[bytes] = []
    for line in read_file(path, "corpus"):
        assert not isinstance(line, Refusal), "the corpora hold turns only"
        name = _decode_name(line).session
        if name != session:
            if session is not None:
                yield Dialogue(corpus, session, turns)
            session, turns = name, []
        turns.append(line)
    if session is not None:
        yield Dialogue(corpus, session, turns)


def multiplied(found: Sequence[Dialogue], sessions: int) -> Iterator[Dialogue]:
    """Yield that many sessions: the dialogues again and again under new ids."""
    for at in range(sessions):
        yield found[at % len(found)].copy(at // len(found))


def in_file_order(found: Iterable[Dialogue]) -> list[bytes]:
    """Return the turns session by session."""
    return [turn for each in found for turn in each.turns]


def interleaved(found: Sequence[Dialogue]) -> Iterator[bytes]:
    """Yield the turns of all sessions mixed, each session's in its order.

    Every session lasts the whole time, its turns spread evenly over it: turn
    i of n comes at (i + r) / n, r a hash of the session's name. So all
    sessions are live from the first turn to the last, the worst for a cache;
    taking turns round robin would leave only the long ones at the end.
    """
    waiting: list[tuple[float, int, int]] = []
    for at, each in enumerate(found):
        share = crc32(f"{each.corpus}/{each.session}".encode()) / 2**32
        waiting.append((share / len(each.turns), at, 0))
    heapify(waiting)
    while waiting:
        when, at, place = waiting[0]
        turns = found[at].turns
        yield turns[place]
        if place + 1 < len(turns):
            heapreplace(waiting, (when + 1 / len(turns), at, place + 1))
        else:
            heappop(waiting)
