"""Each write of a run fails once: who waits is told, and a new start goes on."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
import pytest

from support.dialogues import endless_turns, sample_sessions
from support.kept import digests
from turnstate.agents.session.step import Answer
from turnstate.schemas.admission import Verdict
from turnstate.schemas.errors import UnavailableError
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import draft_from_json, turn_to_json
from turnstate.storage.session_reader import operations
from turnstate.storage.warm.batch import Batch
from turnstate.storage.warm.rocksdb import WarmStore
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.settings import Settings

WAIT_S: Final = 20.0
"""Whoever waits longer for an answer hangs."""

GROUP_TURNS: Final = 40
"""Turns in one commit: some submissions of a burst wait for the next one."""

FAILURES_MAX: Final = 3
"""One write fails, and perhaps what waited for it; no more."""

Submission = list[bytes]


@cache
def bursts() -> list[list[Submission]]:
    """Return submissions by burst: real dialogues, one long enough to be sealed."""
    long = max(sample_sessions().values(), key=len)[:150]
    lines = [msgspec.json.encode(turn) for turn in long]
    others = list(islice(endless_turns(5, open_sessions=5), 60))
    name = (long[0]["tenant"], long[0]["session"])
    operations = [
        Turn(*name, "system", turn_id="f", op="fork", branch="b", target="3"),
        Turn(*name, "system", turn_id="e", op="edit", target="4", content="new"),
        Turn(*name, "system", turn_id="r", op="redact", target="5"),
        Turn(*name, "system", turn_id="b", op="rollback", to={"log": 60}),
    ]
    return [
        [lines[:10], others[:10], lines[10:30], others[10:20]],
        [lines[30:66], others[20:25], lines[66:70]],
        [[turn_to_json(turn) for turn in operations], others[25:40]],
        [lines[70:100], lines[100:140], others[40:60]],
        [lines[140:]],
    ]


class Faulty:
    """Let the n-th write of a folder's store fail, before it is made or after."""

    def __init__(
        self, patch: pytest.MonkeyPatch, data: Path, number: int, *, after: bool
    ) -> None:
        self.count = 0
        write = WarmStore.write

        def counted(store: WarmStore, batch: Batch, *, sync: bool) -> None:
            # A store that other tests share may seal what is idle meanwhile.
            if not store.path.is_relative_to(data):
                write(store, batch, sync=sync)
                return
            self.count += 1
            fails = self.count == number
            if not fails or after:
                write(store, batch, sync=sync)
            if fails:
                raise UnavailableError("RocksDB: IO error: as the test wants it")

        patch.setattr(WarmStore, "write", counted)


class Publisher:
    """Publish all bursts; after a failure open again and send the rest again."""

    def __init__(self, data: Path) -> None:
        self.settings = Settings(data=data, batch_turns_max=GROUP_TURNS)
        self.acknowledged: list[tuple[bytes, int]] = []
        self.left = [list(burst) for burst in bursts()]
        self.failures = 0

    def run(self) -> dict[tuple[str, str], str]:
        """Return the digests once everything is acknowledged."""
        last = ""
        while self.failures <= FAILURES_MAX:
            try:
                with EmbeddedStore(self.settings) as store:
                    if self._publish(store):
                        self._check(store)
                        return digests(store)
            except UnavailableError as error:
                self.failures += 1
                last = str(error)
        raise AssertionError(f"it does not come up again: {last}")

    def _publish(self, store: EmbeddedStore) -> bool:
        while self.left:
            burst = self.left[0]
            futures = submitted_at_once(store, burst)
            for submission, future in zip(tuple(burst), futures, strict=True):
                try:
                    answers = future.result(WAIT_S)
                except UnavailableError:
                    self.failures += 1
                    check_stopped(store, futures)
                    return False
                self._take(submission, answers)
                burst.pop(0)
            self.left.pop(0)
            # Whatever the engine does after its answers is done, or has failed.
            try:
                store.engine.call(lambda: None).result(WAIT_S)
            except UnavailableError:
                self.failures += 1
                return False
        return True

    def _take(self, submission: Submission, answers: Sequence[Answer]) -> None:
        for line, answer in zip(submission, answers, strict=True):
            assert answer.verdict in {Verdict.ACCEPTED, Verdict.DUPLICATE}
            self.acknowledged.append((line, answer.version))

    def _check(self, store: EmbeddedStore) -> None:
        """Every acknowledged turn is there, once, at the version that was told."""
        assert upkeep.verify(store)["bad"] == []
        told: dict[bytes, list[tuple[str | None, int]]] = {}
        for line, version in self.acknowledged:
            draft = draft_from_json(line)
            told.setdefault(draft.key, []).append((draft.turn_id, version))
        for key, turns in told.items():
            stored = store.engine.head(key)
            assert stored is not None
            ids = [op.turn_id for _, op in operations(store.warm, key, stored)]
            assert {ids.count(turn_id) for turn_id, _ in turns} == {1}
            assert all(ids[version - 1] == turn_id for turn_id, version in turns)


def submitted_at_once(
    store: EmbeddedStore, burst: Sequence[Submission]
) -> "list[Future[list[Answer]]]":
    """Submit while the engine is busy, so that groups are the same each time."""
    gate = threading.Event()
    store.engine.call(gate.wait)
    futures = [store.engine.submit(submission) for submission in burst]
    gate.set()
    return futures


def check_stopped(
    store: EmbeddedStore, futures: "Sequence[Future[list[Answer]]]"
) -> None:
    """After a failure everyone is answered, and no one may publish any more."""
    for future in futures:
        error = future.exception(WAIT_S)
        assert error is None or isinstance(error, UnavailableError)
    with pytest.raises(UnavailableError):
        store.engine.submit([b"{}"]).result(WAIT_S)


def quiet_run(data: Path) -> tuple[dict[tuple[str, str], str], int]:
    """Return the digests of a run without failures, and how many writes it made."""
    with pytest.MonkeyPatch.context() as patch:
        faulty = Faulty(patch, data, 0, after=False)
        found = Publisher(data).run()
    return found, faulty.count


@pytest.mark.parametrize("after", [False, True], ids=["not-made", "made"])
def test_every_write_fails_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    wanted, writes = quiet_run(tmp_path / "quiet")
    assert writes >= 10
    for number in range(1, writes + 1):
        with monkeypatch.context() as patch:
            data = tmp_path / f"data{number}"
            Faulty(patch, data, number, after=after)
            publisher = Publisher(data)
            found = publisher.run()
        assert publisher.failures, f"write {number} did not fail"
        assert found == wanted, f"write {number}"
    print(f"{writes} writes failed, one at a time")


@pytest.mark.parametrize("after", [False, True], ids=["not-made", "made"])
def test_a_seal_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Asked to seal, the engine fails: publishing goes on, or stops, but is right."""
    settings = Settings(data=tmp_path / "data")
    lines = list(islice(endless_turns(2, open_sessions=2), 30))
    with EmbeddedStore(settings) as store:
        store.publish(lines[:20])
        with monkeypatch.context() as patch:
            Faulty(patch, settings.data, 1, after=after)
            with pytest.raises(UnavailableError):
                upkeep.seal(store)
        _publish_or_stop(lambda: store.publish(lines[20:]))
    with EmbeddedStore(settings) as store:
        store.publish(lines[20:])
        assert upkeep.verify(store)["bad"] == []
        found = digests(store)
    with EmbeddedStore(Settings(data=tmp_path / "quiet")) as store:
        store.publish(lines)
        assert digests(store) == found


def _publish_or_stop(publish: Callable[[], object]) -> None:
    try:
        publish()
    except UnavailableError:
        return


def test_who_submits_while_the_engine_stops_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look whether it runs and the inbox, the engine may stop."""
    line = next(endless_turns(1))
    with EmbeddedStore(Settings(data=tmp_path / "data")) as store:
        engine = store.engine
        looked = engine._check_running

        def and_then_it_stops() -> None:
            looked()
            hook.undo()
            with pytest.raises(UnavailableError):
                submitted_at_once(store, [[line]])[0].result(WAIT_S)
            engine._thread.join(WAIT_S)

        with monkeypatch.context() as patch, pytest.MonkeyPatch.context() as hook:
            Faulty(patch, tmp_path, 1, after=False)
            hook.setattr(engine, "_check_running", and_then_it_stops)
            with pytest.raises(UnavailableError):
                engine.submit([line]).result(5.0)
