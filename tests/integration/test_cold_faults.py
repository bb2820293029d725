"""The cold tier away, torn, swapped, full or set wrong: told, and nothing lost."""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.commands import line, lines
from support.cooling import Cooling, real_lines
from support.faulty_objects import FaultyObjects, Mishap
from support.kept import log_records
from support.memory_objects import MemoryObjects
from support.object_stores import s3_objects
from turnstate.schemas.errors import CorruptDataError, UnavailableError
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.streams.clock import VirtualClock

Told = Callable[..., tuple[int, Any]]

LATER = "2030-01-01T00:00:00Z"
NOW_MS = 1_800_000_000_000


@pytest.fixture(name="world")
def fixture_world(tmp_path: Path) -> Iterator[Cooling]:
    clock = VirtualClock(NOW_MS)
    objects = MemoryObjects(clock.now_ms)
    with Cooling(tmp_path, objects, clock=clock) as world:
        world.publish([line("a", 1), line("a", 2), line("b", 1)])
        world.cool()
        yield world


def away(world: Cooling, is_away: bool = True) -> None:
    assert isinstance(world.objects, MemoryObjects)
    world.objects.is_away = is_away
    world.use(world.packs())


# -- away ------------------------------------------------------------------------


def test_turns_for_a_cold_session_are_refused_while_its_tier_is_away(
    world: Cooling,
) -> None:
    store = world.store
    logged = len([record for record in log_records(store) if record])
    away(world)
    answers = store.publish([line("a", 3), line("new", 1), line("b", 2)])

    for answer in (answers[0], answers[2]):
        assert isinstance(answer.error, UnavailableError)
        assert answer.version == 0
    assert answers[1].error is None
    assert store.dead_letters()["dead_letters"] == []
    records = [record for record in log_records(store) if record]
    assert records[logged:] == [line("new", 1)]
    away(world, is_away=False)
    assert store.state("acme", "a")["turn_count"] == 2
    assert store.verify()["bad"] == []
    answers = store.publish([line("a", 3), line("new", 1), line("b", 2)])
    assert [answer.error for answer in answers] == [None] * 3
    assert [answer.verdict.value for answer in answers] == [
        "accepted",
        "duplicate",
        "accepted",
    ]
    assert store.state("acme", "a")["turn_count"] == 3
    assert store.verify()["bad"] == []


def test_what_was_refused_stays_refused_after_a_restart(tmp_path: Path) -> None:
    clock = VirtualClock(NOW_MS)
    objects = MemoryObjects(clock.now_ms)
    with Cooling(tmp_path, objects, clock=clock) as world:
        world.publish([line("a", 1)])
        world.cool()
        away(world)
        assert world.store.publish([line("a", 2)])[0].error is not None
        away(world, is_away=False)
    with Cooling(tmp_path, objects, clock=clock) as world:
        assert world.store.state("acme", "a")["turn_count"] == 1
        assert world.store.verify()["bad"] == []
        assert world.store.publish([line("a", 2)])[0].error is None


def test_readers_jobs_and_verification_are_told_that_it_is_away(
    world: Cooling,
) -> None:
    world.publish(real_lines(1))
    before = dict(world.cold())
    away(world)
    for read in (
        lambda: world.store.state("acme", "a"),
        lambda: world.store.turns("acme", "a"),
        lambda: world.store.history("acme", "a"),
        world.store.verify,
        world.store.repair,
        lambda: list(world.store.export_items()),
        lambda: world.job().move(next(iter(before)), "warm"),
        world.cool,
        world.compact,
        world.collect,
    ):
        with pytest.raises(UnavailableError):
            read()
        assert dict(world.cold()) == before
    assert len(world.names()) == 3


@pytest.mark.parametrize("call", range(1, 16))
@pytest.mark.parametrize("mishap", [Mishap.REFUSED, Mishap.LOST, Mishap.TORN])
def test_a_fault_while_packing_leaves_every_session_where_it_was(
    tmp_path: Path, call: int, mishap: Mishap
) -> None:
    clock = VirtualClock(NOW_MS)
    objects = MemoryObjects(clock.now_ms)
    with Cooling(tmp_path, objects, clock=clock) as world:
        world.publish(real_lines(2, turns_max=10))
        said = world.told()
        faulty = FaultyObjects(objects, {call: mishap})
        with suppress(UnavailableError, CorruptDataError):
            world.cool(objects=faulty)
        assert faulty.met or call > 9, "a run asks at least nine times"
        assert world.told() == said
        clock.advance(2 * 3_600_000)
        if mishap is Mishap.TORN and faulty.met and is_torn(objects, "manifest/"):
            # A bucket that lies; only a copy of it helps, and reading goes on.
            with pytest.raises(
                CorruptDataError, match=r"manifest/.* copy of the bucket"
            ):
                world.cool(holder="next")
            assert world.told() == said
            return
        world.cool(holder="next")
        world.job().sweep(at_ms=clock.now_ms() + 2 * 3_600_000)
        assert world.tiers()["cold"] == 2
        for _ in range(2):
            world.compact()
            world.collect()
        assert list(world.unsaid()) == []
        assert world.told() == said


def is_torn(objects: MemoryObjects, prefix: str) -> bool:
    newest = max(name for name in objects.held if name.startswith(prefix))
    return not objects.held[newest][0].endswith(b"}\n")


def test_a_full_disk_stops_a_run_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cooling(tmp_path) as world:
        world.publish(real_lines(4))
        said = world.told()
        write = os.write

        def full(file: int, data: bytes) -> int:
            if len(data) > 1000:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(file, data)

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(UnavailableError) as raised:
            world.cool()
        assert "space" in str(raised.value).lower()
        monkeypatch.undo()
        assert world.told() == said
        assert world.tiers()["cold"] == 0
        world.publish([line("more", 1)])
        assert world.cool()["moved"]["warm>cold"] == 5
        world.compact()
        world.collect()
        assert list(world.unsaid()) == []
        told = world.told()
        assert {name: told[name] for name in said} == said


# -- damaged -----------------------------------------------------------------------


def pack_of(folder: Path) -> Path:
    (pack,) = (folder / ".turnstate" / "cold" / "packs").iterdir()
    return pack


def damaged(pack: Path, kind: str) -> None:
    data = pack.read_bytes()
    pack.chmod(0o600)
    if kind == "torn":
        pack.write_bytes(data[: len(data) // 2])
    else:
        pack.unlink()


@pytest.mark.parametrize("kind", ["torn", "gone"])
def test_a_damaged_pack_is_named_and_rebuilt_from_the_log(
    filled: Told, tmp_path: Path, kind: str
) -> None:
    said = {s: filled("turns", "acme", s)[1] for s in ("a", "b")}
    before = {r["session"]: r["digest"] for r in filled("sessions")[1]["sessions"]}
    filled("tiers", "run", "--now", LATER)
    damaged(pack_of(tmp_path), kind)
    code, document = filled("verify")
    assert code == 5
    assert {(b["session"], b["tier"]) for b in document["bad"]} >= {("b", "cold")}
    code, document = filled("state", "acme", "b")
    assert (code, bool(document["error"]["hint"])) == (5, True)
    code, document = filled("publish", "-", "--strict", stdin=lines(line("b", 5)))
    assert code != 0
    assert filled("dead-letters", "list")[1]["dead_letters"] == []
    code, document = filled("verify", "--repair")
    assert (code, document["bad"], document["failed"]) == (0, [], [])
    assert {row["session"] for row in document["repaired"]} >= {"b"}
    after = {r["session"]: r["digest"] for r in filled("sessions")[1]["sessions"]}
    assert after == before
    assert {s: filled("turns", "acme", s)[1] for s in ("a", "b")} == said
    assert filled("verify")[1]["bad"] == []
    assert filled("publish", "-", stdin=lines(line("b", 5)))[1]["accepted"] == 1
    filled("tiers", "run", "--now", LATER)
    assert filled("tiers", "status")[1]["tiers"]["cold"]["sessions"] == 2
    assert filled("verify")[1]["bad"] == []


def test_a_log_that_lost_turns_does_not_replace_a_cold_session(
    filled: Told, tmp_path: Path
) -> None:
    filled("publish", "-", stdin=lines(line("b", 2)))
    filled("tiers", "run", "--now", LATER)
    pack = pack_of(tmp_path)
    good = pack.read_bytes()
    with Cooling(tmp_path / ".turnstate") as world:
        assert world.store.trim_log(world.store.engine.log.end - 1)["begin"] == 3
    damaged(pack, "torn")
    code, document = filled("verify", "--repair")
    assert code == 5
    assert document["repaired"] == []
    assert [row["session"] for row in document["failed"]] == ["b"]
    assert "the log holds no offset 0" in document["failed"][0]["why"]
    pack.write_bytes(good)
    assert filled("verify")[0] == 0
    assert filled("state", "acme", "a")[1]["turn_count"] == 2


# -- set wrong, over S3 -------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"secret_key": "wrong"}, "secret"),
        ({"bucket": "nobodys-bucket"}, "bucket"),
    ],
    ids=["secret", "bucket"],
)
def test_a_wrong_secret_or_bucket_is_one_clear_line(
    s3_server: dict[str, str], tmp_path: Path, changed: dict[str, str], word: str
) -> None:
    good = s3_objects(s3_server)
    wrong = s3_objects(s3_server, **changed)
    with Cooling(tmp_path, good) as world:
        world.publish(real_lines(2))
        said = world.told()
        began = time.monotonic()
        with pytest.raises(UnavailableError) as raised:
            world.cool(objects=wrong)
        assert time.monotonic() - began < 20
        assert word in str(raised.value).lower()
        assert raised.value.hint
        assert world.tiers()["cold"] == 0
        assert world.told() == said
        world.cool()
        world.use(world.packs(wrong))
        name = world.names()[0]
        with pytest.raises(UnavailableError):
            world.store.state(*name)
        began = time.monotonic()
        turn = b'{"tenant":"%b","session":"%b","role":"user","turn_id":"n"}' % (
            name.tenant.encode(),
            name.session.encode(),
        )
        answer = world.store.publish([turn])[0]
        assert isinstance(answer.error, UnavailableError)
        assert time.monotonic() - began < 20
        world.use(world.packs())
        assert world.told() == said
    good.close()
    wrong.close()


def test_an_image_that_a_directory_lost_is_no_other_sessions(tmp_path: Path) -> None:
    """Two packs that changed places: every image is checked for whose it is."""
    objects = DirectoryObjects(tmp_path / "cold")
    with Cooling(tmp_path, objects, cold_pack_bytes=2048) as world:
        world.publish(real_lines(6))
        world.cool()
        packs = sorted((tmp_path / "cold" / "packs").iterdir())
        assert len(packs) > 1
        first, second = packs[0].read_bytes(), packs[1].read_bytes()
        for path, data in ((packs[0], second), (packs[1], first)):
            path.chmod(0o600)
            path.write_bytes(data)
        world.use(world.packs())
        swapped = {f"packs/{path.name}" for path in packs[:2]}
        hit = {k for k, c in world.cold().items() if c.pointer.pack in swapped}
        bad = world.store.verify()["bad"]
        assert {(b["tenant"], b["session"]) for b in bad} == {
            tuple(name) for name in world.names() if name.key() in hit
        }
        for name in world.names():
            if name.key() in hit:
                with pytest.raises(CorruptDataError):
                    world.store.turns(*name)
