"""Many readers at once see consistent states while turns come and seals go on."""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.told import turn
from turnstate.schemas.ids import SessionName
from turnstate.streams.documents import to_json
from turnstate.streams.embedded.access import open_store
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.settings import Settings

SESSIONS = ("s0", "s1", "s2")
SECONDS = 4.0
READERS = 6


def said(number: int, session: str) -> bytes:
    """Return a turn that leaves every slot at its own number."""
    both = {"set": {"a": number, "b": {"n": number}}}
    return turn(number, session=session, slots=both)


def plain(document: Any) -> Any:
    return msgspec.json.decode(to_json(document))


def check_state(state: dict[str, Any], digests: dict[tuple[str, int], str]) -> None:
    """Compare the parts of one state with each other, and with what others saw."""
    version = state["version"]
    number = version - 1
    assert state["turn_count"] == version
    assert state["clock"] == {"log": version}
    assert state["slots"]["a"]["value"] == number
    assert state["slots"]["b"]["value"] == {"n": number}
    shown = [one["version"] for one in state["turns"]]
    assert shown == list(range(version - len(shown) + 1, version + 1))
    assert state["branches"]["main"] == f"{state['session']}-{number}"
    key = (state["session"], version)
    assert digests.setdefault(key, state["digest"]) == state["digest"]


class Readers:
    """Read in many ways until told to stop; keep the first failure of each."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.stopped = threading.Event()
        self.digests: dict[tuple[str, int], str] = {}
        self.failed: list[BaseException] = []
        self.reads = 0

    def run(self, seed: int) -> None:
        chance = random.Random(seed)
        ways: list[Callable[[str, int], None]] = [self.now, self.then, self.turns]
        last: dict[str, int] = dict.fromkeys(SESSIONS, 1)
        try:
            while not self.stopped.is_set():
                session = chance.choice(SESSIONS)
                top = self.top(session)
                assert top >= last[session], "a reader went back in time"
                last[session] = top
                chance.choice(ways)(session, chance.randint(1, top))
                self.reads += 1
        except BaseException as error:
            self.failed.append(error)
            raise

    def top(self, session: str) -> int:
        state = plain(self.store.state("t", session))
        check_state(state, self.digests)
        return int(state["version"])

    def now(self, session: str, _: int) -> None:
        check_state(plain(self.store.state("t", session)), self.digests)

    def then(self, session: str, version: int) -> None:
        state = plain(self.store.state("t", session, version=version))
        assert state["version"] == version
        check_state(state, self.digests)

    def turns(self, session: str, version: int) -> None:
        shown = plain(self.store.turns("t", session, version=version))["turns"]
        assert [one["turn_id"] for one in shown] == [
            f"{session}-{n}" for n in range(version)
        ]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.filterwarnings("default::pytest.PytestUnhandledThreadExceptionWarning")
def test_readers_see_whole_states_while_turns_come_and_seals_go_on(
    tmp_path: Path, *, beside: bool
) -> None:
    settings = Settings(data=tmp_path, fsync="never", hot_bytes=40_000)
    with OwnedStore(settings) as owned, open_store(settings) as other:
        owned.publish([said(0, session) for session in SESSIONS])
        readers = Readers(other if beside else owned)
        threads = [
            threading.Thread(target=readers.run, args=(seed,))
            for seed in range(READERS)
        ]
        for thread in threads:
            thread.start()
        keys = [SessionName("t", session).key() for session in SESSIONS]
        number, until = 1, time.monotonic() + SECONDS
        while time.monotonic() < until and not readers.failed:
            size = 1 + number % 9
            numbers = range(number, number + size)
            owned.publish([said(n, session) for n in numbers for session in SESSIONS])
            number += size
            if number % 2 == 0:
                owned.engine.call(lambda: owned.engine.seal(keys)).result()
            time.sleep(0.005)
        readers.stopped.set()
        for thread in threads:
            thread.join(30)
        print(f"{readers.reads} reads, {number} turns a session")
        if readers.failed:
            raise readers.failed[0]
        assert readers.reads > READERS
        for session in SESSIONS:
            assert owned.state("t", session)["version"] == number
        assert owned.verify()["bad"] == []
