"""Cut the samples out of the whole corpora: `python -m turnstate.replay.samples.cut`.

Takes whole sessions, so many of each corpus, in the order of a hash of their
name; the longest session of each corpus is always one of them. The same corpora
give the same bytes.
"""

import gzip
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

SESSIONS: Final = {
    "bfcl_multi_turn": 120,
    "crosswoz": 200,
    "irc": 10,
    "kdconv": 60,
    "mtbench": 30,
    "mtbench101": 150,
    "multiwoz21": 260,
    "taskmaster4": 150,
    "taubench_airline": 30,
}
"""How many of each corpus. `sgd` is share-alike and stays out."""

_GZIP_LEVEL: Final = 9


class _Line(Struct):
    session: str


def cut(corpus: bytes, count: int) -> bytes:
    """Return the lines of so many sessions, as they stand and in their order."""
    sessions: dict[str, list[bytes]] = {}
    decode = msgspec.json.Decoder(_Line).decode
    for line in corpus.splitlines(keepends=True):
        sessions.setdefault(decode(line).session, []).append(line)
    by_hash = sorted(sessions, key=lambda name: (blake2b(name.encode()).digest(), name))
    longest = max(by_hash, key=lambda name: len(sessions[name]))
    chosen = {longest, *by_hash[:count]}
    if len(chosen) > count:
        chosen.remove(by_hash[count - 1])
    return b"".join(
        b"".join(lines) for name, lines in sessions.items() if name in chosen
    )


def main(source: Path, target: Path) -> None:
    """Write the samples of the corpora in `source` into `target`."""
    for corpus, count in SESSIONS.items():
        name = f"{corpus}.jsonl.gz"
        lines = cut(gzip.decompress((source / name).read_bytes()), count)
        # No time stamp and no file name: equal lines give equal bytes.
        packed = gzip.compress(lines, compresslevel=_GZIP_LEVEL, mtime=0)
        (target / name).write_bytes(packed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
