"""Run the main job on the sample dialogues and gather what it did and cost."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from turnstate.agents.tiering.budget import RunBudget
from turnstate.replay.report import ReplayReport
from turnstate.replay.samples import sample_paths
from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.cli.doors import settings_of, store_of
from turnstate.streams.cli.exporting import export_to
from turnstate.streams.cli.progress import bar
from turnstate.streams.cli.publishing import Counts, publish_files
from turnstate.streams.cli.render import Block, Pairs, Table
from turnstate.streams.cli.replaying import replay_report
from turnstate.streams.clock import SystemClock
from turnstate.streams.documents import Document
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.opening import OpenedTiers

SHOWN: Final = ("multiwoz21", "crosswoz")
"""One session of each is shown: English and Chinese."""

REPLAY_PROCESSES: Final = 2

_STEPS: Final = 7

_COOLED_AFTER_MS: Final = 30 * 24 * 3600 * 1000
"""A month from now nobody has said anything: by then everything has cooled."""


def run_demo(settings: Settings | None) -> Document:
    """Publish, seal, read back, verify, export and replay; return what came of it.

    Args:
        settings: Whose folder to use; None = one that is removed afterwards.

    Raises:
        InvalidInputError: the samples are not there.
    """
    paths = sample_paths()
    if not paths:
        raise InvalidInputError(
            "the sample dialogues are not there", hint="install turnstate again"
        )
    with ExitStack() as stack:
        aside = Path(tempfile.mkdtemp(prefix="turnstate-demo-"))
        stack.callback(shutil.rmtree, aside, ignore_errors=True)
        if settings is None:
            settings = settings_of(str(aside / "data"), None)
        step = stack.enter_context(bar("demo"))

        def done(count: int) -> None:
            if step is not None:
                step(count, _STEPS)

        recording = aside / "demo.tsrec"
        with store_of(settings) as store:
            counts = publish_files(store, [str(path) for path in paths], "corpus")
            done(1)
            store.seal()
            done(2)
            document = _read_back(store, counts)
            done(3)
            document["verify"] = _checked(store.verify())
            done(4)
            exported = export_to(str(recording), store.export_items(), force=True)
            exported.pop("file")
            document["export"] = exported
            done(5)
            document["cold"] = _cooled(settings, store)
            done(6)
        report = _replayed(recording, settings)
        document["replay"] = report.as_json() | {"processes": REPLAY_PROCESSES}
        cold = document["cold"]
        document["holds"] = (
            report.holds
            and not document["verify"]["bad"]
            and cold["equal"] == cold["sessions"] == document["sessions"]
        )
        done(7)
    return document


def _read_back(store: Any, counts: Counts) -> Document:
    totals = store.stats()
    text, state = totals["text_bytes"], totals["state_bytes"]
    return {
        "publish": counts.document(waited=True),
        "sessions": totals["sessions"],
        "turns": totals["turns"],
        "text_bytes": text,
        "state_bytes": state,
        "ratio": round(state / text, 3) if text else None,
        "log_bytes": totals["log_bytes"],
        "syncs": totals.get("syncs"),
        "samples": [_sample(store, tenant) for tenant in SHOWN],
    }


def _cooled(settings: Settings, store: Any) -> Document:
    """Let a month pass, move what cools to the cold folder, read it from there."""
    before = {
        (row["tenant"], row["session"]): row["digest"] for row in store.sessions()
    }
    clock = SystemClock()
    opened = OpenedTiers(settings, store, clock)
    later_ms = clock.now_ms() + _COOLED_AFTER_MS
    report = opened.job.run(RunBudget(), at_ms=later_ms).document()
    start = time.perf_counter()
    states = [store.state(*name) for name in before]
    took = time.perf_counter() - start
    equal = sum(
        state["digest"] == before[state["tenant"], state["session"]]
        for state in states
        if state["tier"] == "cold"
    )
    packs = opened.packs.manifests.latest().packs
    return {
        "moved": report["moved"],
        "why": report["moved_why"],
        "sessions": len(before),
        "equal": equal,
        "packs": len(packs),
        "bytes": sum(each.bytes for each in packs.values()),
        "warm_bytes": store.stats()["tiers"]["warm"]["bytes"],
        "read_ms": round(1000 * took / len(before), 3),
    }


def _checked(found: Document) -> Document:
    return {name: found[name] for name in ("sessions", "frames", "bad")}


def _sample(store: Any, tenant: str) -> Document:
    """Read one session back: now, half-way, and how it is stored."""
    rows = store.sessions(tenant=tenant)
    session = max(rows, key=lambda row: (row["turn_count"], row["session"]))["session"]
    start = time.perf_counter()
    now = store.state(tenant, session)
    took = time.perf_counter() - start
    half = store.state(tenant, session, version=now["version"] // 2)
    said = store.turns(tenant, session, at=0, limit=2)["turns"]
    return {
        "tenant": tenant,
        "session": session,
        "version": now["version"],
        "slots": {name: slot["value"] for name, slot in now["slots"].items()},
        "half_way": {
            "version": half["version"],
            "slots": {name: slot["value"] for name, slot in half["slots"].items()},
        },
        "first_turns": [
            {"role": turn["role"], "content": turn["content"]} for turn in said
        ],
        "history": store.history(tenant, session)["versions"],
        "read_ms": round(took * 1000, 3),
    }


def _replayed(recording: Path, settings: Settings) -> ReplayReport:
    """Replay in other processes, against the store as it now lies on disk."""
    return replay_report(
        os.fspath(recording),
        replace(settings),
        against=os.fspath(settings.data),
        processes=REPLAY_PROCESSES,
    )


def demo_blocks(document: Document) -> Iterator[Block]:
    """Yield the demo's report for a reader."""
    for sample in document["samples"]:
        yield from _sample_blocks(sample)
    published, verified = document["publish"], document["verify"]
    cold = document["cold"]
    replayed = document["replay"]
    bad = len(verified["bad"])
    differing = len(replayed["different"]) + len(replayed["missing"])
    yield Pairs(
        "turnstate demo",
        [
            ("sessions", f"{document['sessions']:,}"),
            ("turns", f"{document['turns']:,}"),
            ("published, turns/s", f"{published['turns_per_s']:,.0f}"),
            ("bytes of text", f"{document['text_bytes']:,}"),
            ("bytes stored, sealed", f"{document['state_bytes']:,}"),
            ("ratio", document["ratio"]),
            ("fsyncs", document["syncs"]),
            (
                "verify",
                f"{verified['frames']:,} frames and segments, "
                + (f"{bad} bad" if bad else "all good"),
            ),
            (
                "cooled into packs",
                _cooled_words(cold),
            ),
            (
                "read back from cold, digests equal",
                f"{cold['equal']:,} of {cold['sessions']:,}, {cold['read_ms']} ms each",
            ),
            (
                f"replay in {replayed['processes']} processes, turns/s",
                f"{replayed['turns_per_s']:,.0f}",
            ),
            (
                "replay digests equal",
                f"{replayed['equal']:,} of {document['sessions']:,}"
                + (f", {differing} differ" if differing else ""),
            ),
        ],
    )


def _cooled_words(cold: Document) -> str:
    packed = f"{cold['sessions']:,} sessions in {cold['packs']}"
    return f"{packed}, {cold['bytes']:,} bytes; {cold['warm_bytes']:,} stay in warm"


def _sample_blocks(sample: Document) -> Iterator[Block]:
    title = f"{sample['tenant']} / {sample['session']}, version {sample['version']}"
    yield Table(
        f"{title}: how it begins",
        ("role", "content"),
        [(turn["role"], turn["content"]) for turn in sample["first_turns"]],
    )
    before, half = sample["half_way"]["slots"], sample["half_way"]["version"]
    yield Table(
        f"{title}: slots",
        ("slot", "now", f"at version {half}"),
        [
            (name, _json(value), _json(before.get(name)))
            for name, value in sample["slots"].items()
        ],
    )
    columns = ("from", "to", "kind", "codec", "raw_bytes", "bytes")
    yield Table(
        f"{title}: how it is stored (state read in {sample['read_ms']} ms)",
        columns,
        [[row.get(name) for name in columns] for row in sample["history"]],
    )


def _json(value: Any) -> Any:
    import msgspec

    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
