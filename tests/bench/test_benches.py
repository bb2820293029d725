"""Every bench runs in its small size with the tests, so that none can rot."""

import json

import pytest

from support.corpora import CORPORA_VARIABLE, corpora_folder
from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.bench import BENCHES, run_bench


@pytest.mark.parametrize("name", sorted(BENCHES))
def test_a_small_run_tells_figures_and_a_digest(name: str) -> None:
    """A bench says what it measured, how often, and what came of it."""
    report = run_bench(name, "small")
    assert report["name"] == name
    assert report["runs"] >= 1
    assert 0 < report["min"] <= report["median"] <= report["max"]
    assert len(bytes.fromhex(report["digest"])) == 16


def test_the_live_run_and_the_replay_come_to_one_digest() -> None:
    """The figures are of one job: publishing and replaying give equal states."""
    live = run_bench("throughput", "small")
    assert live["verified"] == "ok"
    assert run_bench("replay", "small")["digest"] == live["digest"]


def test_a_bounded_cache_changes_no_digest() -> None:
    """With room for few heads the states are those of the run with all."""
    cold = run_bench("interleaved-cold", "small")
    assert cold["hot_sessions"] < cold["sessions"] / 5
    assert run_bench("interleaved", "small")["digest"] == cold["digest"]


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    """The hint lists the benches."""
    with pytest.raises(InvalidInputError, match="append-flat"):
        run_bench("nope", "small")


@pytest.mark.bench
@pytest.mark.parametrize("name", sorted(BENCHES))
def test_the_figures(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Print what `turnstate bench NAME` does, of the whole corpora where they are."""
    folder = corpora_folder()
    if folder is not None:
        monkeypatch.setenv(CORPORA_VARIABLE, str(folder))
    report = run_bench(name, "large")
    with capsys.disabled():
        print(json.dumps(report, indent=1))
    assert report["digest"]
