"""Laws of backups: whatever is made, kept and collected, what is there is whole."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from support.memory_objects import MemoryObjects
from turnstate.storage.backup.manifest import (
    FILES,
    StoreFacts,
    manifests,
    numbers,
    read_manifest,
)
from turnstate.storage.backup.restore import fetch_backup
from turnstate.storage.backup.snapshot import check_backup, collect, take_backup
from turnstate.storage.log_names import LogNames, decode_log_names, encode_log_names

FACTS = StoreFacts("aa", "log", ["log"], 0)

CONTENTS = st.dictionaries(
    st.sampled_from([f"{number}.sst" for number in range(6)]),
    st.binary(max_size=3),
    max_size=5,
)
"""What a store's folder holds; contents meet again under other names."""


@settings(max_examples=60)
@given(st.lists(st.tuples(CONTENTS, st.integers(0, 3)), min_size=1, max_size=8))
def test_every_backup_that_is_there_is_what_was_backed_up(
    steps: list[tuple[dict[str, bytes], int]],
) -> None:
    """After any backups and collections; and no file lies there that none needs."""
    objects = MemoryObjects(lambda: 0)
    made: dict[int, dict[str, bytes]] = {}
    with tempfile.TemporaryDirectory() as place:
        for at, (contents, keep) in enumerate(steps):
            folder = Path(place) / f"checkpoint{at}"
            folder.mkdir()
            for name, data in contents.items():
                (folder / name).write_bytes(data)
            taken = take_backup(objects, folder, FACTS, at)
            made[taken.manifest.number] = contents
            if keep:
                collect(objects, keep=keep, now_ms=0)
                assert len(numbers(objects)) <= keep
        there = numbers(objects)
        assert there[-1] == len(steps) == read_manifest(objects).number
        for number in there:
            assert check_backup(objects, number)[1] == []
            _, found = fetch_backup(objects, Path(place) / f"store{number}", number)
            held = {path.name: path.read_bytes() for path in found.iterdir()}
            assert held == made[number]
    collect(objects, keep=len(there), now_ms=1 << 40)
    needed = {
        each.object_name for one in manifests(objects, there) for each in one.contents
    }
    assert needed == {name for name in objects.held if name.startswith(FILES)}


@given(st.lists(st.tuples(st.integers(0, 50), st.text(min_size=1, max_size=3))))
def test_names_of_a_log_are_those_that_were_given(
    renames: list[tuple[int, str]],
) -> None:
    """Up to each restore the names stay what they were; from it on there is one."""
    names = LogNames.always("log")
    for offset, name in sorted(renames, key=lambda pair: pair[0]):
        before = names
        names = names.renamed(offset, name)
        assert names.current == names.at(offset) == names.at(1 << 40) == name
        assert all(names.at(at) == before.at(at) for at in range(offset))
        assert decode_log_names(encode_log_names(names), "other") == names
