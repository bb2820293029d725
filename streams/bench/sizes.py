"""Bytes of sealed state for each byte of text: corpora, and random words."""

from collections.abc import Iterable, Iterator
from random import Random
from string import ascii_lowercase
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
)
from turnstate.schemas.dialogue.head import digest
from turnstate.storage.warm.tables import FRAMES, HEADS, INDEX, SEGMENTS
from turnstate.streams.bench.publishing import bench_store, published
from turnstate.streams.embedded import upkeep

RANDOM_TURNS: Final = {"small": 40, "large": 250}
RANDOM_BYTES: Final = 2_000
_TABLES: Final = (HEADS, FRAMES, SEGMENTS, INDEX)


def random_words(turns: int, size: int = RANDOM_BYTES, seed: int = 1) -> list[str]:
    """Return texts of words of random letters: nothing in them comes twice.

    Example:
        >>> [len(text) for text in random_words(2, 50)]
        [50, 50]
    """
    chance = Random(seed)
    return [
        "".join(_letters(chance, size))[:size].rstrip().ljust(size, "x")
        for _ in range(turns)
    ]


def _letters(chance: Random, size: int) -> Iterator[str]:
    left = size
    while left > 0:
        length = chance.randint(2, 9)
        yield "".join(chance.choices(ascii_lowercase, k=length)) + " "
        left -= length + 1


def random_turns(turns: int) -> list[bytes]:
    """Return one session that says random words, the two sides in turn."""
    return [
        msgspec.json.encode(
            {
                "tenant": "random",
                "session": "words",
                "role": "assistant" if at % 2 else "user",
                "turn_id": f"t{at}",
                "content": text,
            }
        )
        for at, text in enumerate(random_words(turns))
    ]


def sizes(size: Size, progress: Progress) -> Report:
    """Measure each corpus, all of them together, and random words, each sealed."""
    small = size == "small"
    found = dialogues(small=small)
    rows: dict[str, Report] = {}
    names: list[tuple[bytes, bytes]] = []
    for corpus in [] if small else sorted({each.corpus for each in found}):
        turns = in_file_order(each for each in found if each.corpus == corpus)
        rows[corpus], _ = _sealed(turns, progress)
    rows["all"], every = _sealed(in_file_order(found), progress)
    rows["random_words"], words = _sealed(random_turns(RANDOM_TURNS[size]), progress)
    names = [*every, *words]
    ratio = rows["all"]["state_by_text"]
    return figure([ratio], "state bytes a byte of text, all corpora") | {
        "rows": rows,
        "digest": digest_of(names),
    }


def _sealed(
    turns: Iterable[bytes], progress: Progress
) -> tuple[Report, list[tuple[bytes, bytes]]]:
    """Publish, seal, and tell what the table files hold."""
    with bench_store() as store:
        done = published(store, turns, progress=progress)
        upkeep.seal(store)
        told = upkeep.stats(store)
        row = {
            "turns": done.turns,
            "sessions": told["sessions"],
            "text_bytes": told["text_bytes"],
            "state_bytes": told["state_bytes"],
            "log_bytes": told["log_bytes"],
            "state_by_text": rounded(told["state_bytes"] / told["text_bytes"]),
        }
        row |= {f"{name}_bytes": store.warm.table_bytes([name]) for name in _TABLES}
        heads = [(key, digest(each.head)) for key, each in store.stored_heads()]
    return row, heads
