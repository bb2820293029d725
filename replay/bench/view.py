"""Reading a few fields of an encoded head against decoding all of it."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from turnstate.replay.bench.corpora import dialogues, in_file_order
from turnstate.replay.bench.figures import (
    Progress,
    Report,
    Size,
    digest_of,
    figure,
    rounded,
    tell,
)
from turnstate.replay.bench.folding import Folder
from turnstate.schemas.wire.head_view import HeadView, view_stored_head
from turnstate.storage.row_checksum import CHECKSUM_BYTES
from turnstate.storage.stored_head import StoredHead, encode_stored_head

RUNS: Final = {"small": 3, "large": 21}
BATCH_TURNS: Final = 4096


def view(size: Size, progress: Progress) -> Report:
    """Measure both on the stored head of every session, pair by pair.

    Both without the row's checksum, which costs them the same.
    """
    heads = _encoded_heads(size)
    decode = msgspec.msgpack.Decoder(StoredHead).decode
    reads: dict[str, Callable[[bytes], object]] = {
        "numbers": view_stored_head,
        "numbers_usage": lambda data: view_stored_head(data).usage_totals(),
        "numbers_heads": lambda data: view_stored_head(data).heads(),
        "numbers_phase": lambda data: view_stored_head(data).phase(),
    }
    ratios: dict[str, list[float]] = {name: [] for name in reads}
    times: dict[str, list[float]] = {name: [] for name in ("decode", *reads)}
    for run in range(RUNS[size]):
        tell(progress, run, RUNS[size])
        full = _us_each(decode, heads)
        times["decode"].append(full)
        for name, read in reads.items():
            mine = _us_each(read, heads)
            times[name].append(mine)
            ratios[name].append(full / mine)
    return figure(ratios["numbers"], "times faster than decoding all") | {
        "ratios": {n: figure(each, "times")["median"] for n, each in ratios.items()},
        "us": {name: rounded(min(each)) for name, each in times.items()},
        "heads": len(heads),
        "bytes_a_head": rounded(sum(map(len, heads)) / len(heads)),
        "digest": digest_of((data, _told(view_stored_head(data))) for data in heads),
    }


def _encoded_heads(size: Size) -> Sequence[bytes]:
    folder = Folder()
    turns = in_file_order(dialogues(small=size == "small"))
    for begin in range(0, len(turns), BATCH_TURNS):
        folder.fold(turns[begin : begin + BATCH_TURNS])
    return [
        encode_stored_head(stored)[CHECKSUM_BYTES:] for _, stored in folder.heads()
    ]


def _told(seen: HeadView) -> bytes:
    return repr((seen.version, seen.turn_count, seen.heads(), seen.phase())).encode()


def _us_each(call: Callable[[bytes], object], heads: Sequence[bytes]) -> float:
    start = time.process_time()
    for head in heads:
        call(head)
    return 1e6 * (time.process_time() - start) / len(heads)
