"""The samples are whole sessions of the corpora that may ship, and small."""

from support.corpora import corpora_folder, corpus_lines, corpus_name
from turnstate.replay.samples import sample_paths
from turnstate.replay.samples.cut import SESSIONS, cut

PACKED_BYTES_MAX = 1_000_000


def test_the_samples_are_those_that_are_attributed() -> None:
    paths = sample_paths()
    attribution = (paths[0].parent / "ATTRIBUTION.md").read_text(encoding="utf-8")

    assert [corpus_name(path) for path in paths] == sorted(SESSIONS)
    assert "sgd" not in SESSIONS  # share-alike
    for path in paths:
        lines = corpus_lines(path)
        sessions = len({line["session"] for line in lines})
        row = next(
            row
            for row in attribution.splitlines()
            if f"| `{corpus_name(path)}` |" in row
        )
        numbers = row.replace(" ", "").split("|")[-3:-1]
        assert numbers == [str(sessions), str(len(lines))]


def test_the_samples_are_small_and_enough() -> None:
    lines = [line for path in sample_paths() for line in corpus_lines(path)]

    assert sum(path.stat().st_size for path in sample_paths()) <= PACKED_BYTES_MAX
    assert len({(line["tenant"], line["session"]) for line in lines}) >= 1_000
    assert len(lines) >= 15_000
    assert max(line["turn"] for line in lines) == 491
    assert {"user", "assistant", "system", "tool"} == {line["role"] for line in lines}


def test_sessions_are_whole() -> None:
    for path in sample_paths():
        following: dict[str, int] = {}
        for line in corpus_lines(path):
            assert line["turn"] == following.get(line["session"], 0)
            following[line["session"]] = line["turn"] + 1


def test_cutting_takes_the_longest_and_whole_sessions_in_their_order() -> None:
    lines = [
        b'{"session":"%c","turn":%d}\n' % (name, turn)
        for name, turns in ((65, 2), (66, 5), (67, 2), (68, 2))
        for turn in range(turns)
    ]
    kept = cut(b"".join(lines), 2).splitlines(keepends=True)

    assert kept == [line for line in lines if line in kept]
    assert sum(line.startswith(b'{"session":"B"') for line in kept) == 5
    assert len(kept) == 7


def test_the_samples_are_what_the_script_cuts() -> None:
    folder = corpora_folder()
    for path in sample_paths():
        shipped = corpus_lines(path)
        whole = corpus_lines(folder / path.name) if folder else shipped
        names = {line["session"] for line in shipped}
        assert [line for line in whole if line["session"] in names] == shipped
        assert len(names) == SESSIONS[corpus_name(path)]
