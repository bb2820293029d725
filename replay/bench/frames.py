"""Bytes of one turn's frame against LZ4 of the whole state after that turn."""

from typing import Final, NamedTuple

from turnstate.replay.bench.corpora import Dialogue, dialogues
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
from turnstate.schemas.dialogue.head import digest, encode_head
from turnstate.storage.frames.header import HEADER_BYTES
from turnstate.storage.frames.native import lz4_compress

CORPORA: Final = ("sgd", "taubench_airline", "irc", "multiwoz21")
"""SGD does not ship (its licence is share-alike); MultiWOZ stands beside it."""


class _Sums(NamedTuple):
    turns: int = 0
    text: int = 0
    frames: int = 0
    full: int = 0


def frames(size: Size, progress: Progress) -> Report:
    """Fold turn by turn; compare what each step writes.

    Delta: the frame as it is stored, header (93 bytes) included. Full: LZ4 of
    the head and of all the session's records up to that turn, without any
    header: the least that a program keeps which writes its state at each step.
    """
    found = dialogues(CORPORA, small=size == "small")
    sums: dict[str, _Sums] = {}
    names: list[tuple[bytes, bytes]] = []
    for number, dialogue in enumerate(found):
        sums[dialogue.corpus], name = _added(
            sums.get(dialogue.corpus, _Sums()), dialogue
        )
        names.append(name)
        tell(progress, number + 1, len(found))
    rows = {corpus: _row(each) for corpus, each in sums.items()}
    ratios = [row["full_by_frame"] for row in rows.values()]
    return figure(ratios, "times smaller, one value a corpus") | {
        "rows": rows,
        "digest": digest_of(names),
    }


def _added(sums: _Sums, dialogue: Dialogue) -> tuple[_Sums, tuple[bytes, bytes]]:
    folder = Folder()
    turns, text, frame_bytes, full_bytes = sums
    said = b""
    for turn in dialogue.turns:
        (change,) = (folded := folder.fold([turn])).changes
        said += b"".join(op.record for op in folded.ops[0])
        assert change.frame is not None, "a turn leaves a frame"
        frame_bytes += len(change.frame)
        full = encode_head(change.after.head) + said
        full_bytes += len(lz4_compress(full, store_size=False))
        turns += 1
    ((key, stored),) = folder.heads()
    return (
        _Sums(turns, text + stored.text_bytes, frame_bytes, full_bytes),
        (key, digest(stored.head)),
    )


def _row(sums: _Sums) -> Report:
    return {
        "turns": sums.turns,
        "text_bytes_a_turn": rounded(sums.text / sums.turns),
        "frame_bytes_a_turn": rounded(sums.frames / sums.turns),
        "header_bytes": HEADER_BYTES,
        "full_bytes_a_turn": rounded(sums.full / sums.turns),
        "full_by_frame": rounded(sums.full / sums.frames),
    }
