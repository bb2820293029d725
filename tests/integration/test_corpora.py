"""Real dialogues through the whole store: every turn, every slot, every digest."""

import json
from pathlib import Path

import msgspec
import pytest

from support.corpora import corpus_paths, expected_slots, snapshot_paths
from turnstate.replay.readers import read_file
from turnstate.schemas.ids import SessionName
from turnstate.streams.cli.publishing import publish_files
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings


@pytest.mark.parametrize("path", snapshot_paths(), ids=lambda path: path.name)
def test_final_slots_are_those_of_the_corpus(path: Path, tmp_path: Path) -> None:
    expected = expected_slots(path)
    settings = Settings(data=tmp_path, fsync="never")
    with EmbeddedStore(settings) as store:
        counts = publish_files(store, [str(path)], "corpus")
        assert (counts.refused, counts.conflicts, counts.duplicates) == (0, 0, 0)
        tenant = path.name.partition(".")[0]
        for session, slots in expected.items():
            state = store.head(tenant, session).branch_state("main")
            assert state is not None
            found = {
                name: json.loads(entries[0][3]) for name, entries in state.slots.items()
            }
            assert found == slots, session
            assert all(len(entries) == 1 for entries in state.slots.values())


def test_every_corpus_goes_in_once_and_adds_nothing_the_second_time(
    tmp_path: Path,
) -> None:
    paths = [str(path) for path in corpus_paths()]
    lines = [
        turn
        for path in paths
        for turn in read_file(path, "corpus")
        if isinstance(turn, bytes)
    ]
    names = {
        SessionName(each["tenant"], each["session"])
        for each in map(msgspec.json.decode, lines)
    }
    with EmbeddedStore(Settings(data=tmp_path, fsync="never")) as store:
        first = publish_files(store, paths, "corpus")
        before = [row["digest"] for row in store.sessions()]
        again = publish_files(store, paths, "corpus")

        assert (first.accepted, len(first.sessions)) == (len(lines), len(names))
        assert (again.accepted, again.duplicates) == (0, len(lines))
        assert [row["digest"] for row in store.sessions()] == before
        assert upkeep.verify(store)["bad"] == []
