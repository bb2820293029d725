"""The process of the large run: `large_child TURNS DATA HOT_BYTES`, JSON on stdout."""

import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from turnstate.replay.bench.figures import Report, rounded
from turnstate.streams.bench.publishing import checked, fsync_ms, published
from turnstate.streams.embedded import upkeep
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.process import tune_process
from turnstate.streams.settings import Settings

TENTHS: Final = 10
_MIB: Final = 1 << 20


def main(lines: str, data: str, hot_bytes: str) -> None:
    """Publish a file of turns, seal, verify; print the report."""
    tune_process()
    settings = Settings(data=Path(data))
    if int(hot_bytes):
        settings = replace(settings, hot_bytes=int(hot_bytes))
    total = sum(1 for _ in _turns(lines))
    ends = [total * tenth // TENTHS for tenth in range(1, TENTHS + 1)]
    seen: list[tuple[int, float, float]] = []
    with EmbeddedStore(settings) as store:
        start = time.perf_counter()

        def look(done: int) -> None:
            if done >= ends[min(len(seen), TENTHS - 1)]:
                seen.append((done, time.perf_counter() - start, _rss_mib()))

        done = published(store, _turns(lines), after_batch=look)
        peak = _peak_mib()
        report: Report = {
            "turns": done.turns,
            "turns_per_s": rounded(done.turns_per_s),
            "cpu_us_a_turn": rounded(done.cpu_us),
            "fsyncs_per_s": rounded(done.syncs / done.seconds),
            "fsync_ms": rounded(fsync_ms(settings.data)),
            "turns_per_s_by_tenth": _rates(seen),
            "rss_mib_by_tenth": [rounded(each[2]) for each in seen],
            "peak_mib_publishing": rounded(peak),
            "hot_sessions": len(store.engine.hot),
            "room_bytes": settings.hot_bytes,
        }
        rates = report["turns_per_s_by_tenth"]
        report["last_tenth_by_first"] = rounded(rates[-1] / rates[0]) if rates else 0
        report |= _sealed(store)
        proved = checked(store)
        report |= {
            "sessions": proved.sessions,
            "verified": "ok",
            "folded_by_definition": proved.by_definition,
            "peak_mib": rounded(_peak_mib()),
            "digest": proved.digest,
        }
    sys.stdout.buffer.write(msgspec.json.encode(report))


def _turns(lines: str) -> Iterator[bytes]:
    with Path(lines).open("rb") as file:
        for line in file:
            yield line[:-1]


def _rates(seen: list[tuple[int, float, float]]) -> list[float]:
    before, rates = (0, 0.0, 0.0), list[float]()
    for each in seen:
        if each[1] > before[1]:
            rates.append(rounded((each[0] - before[0]) / (each[1] - before[1])))
        before = each
    return rates


def _sealed(store: EmbeddedStore) -> Report:
    """Seal everything; state is all but the log, which is told beside it."""
    start = time.perf_counter()
    upkeep.seal(store)
    seconds = time.perf_counter() - start
    told = upkeep.stats(store)
    trimmed = upkeep.trim_log(store, store.engine.log.end)
    after = upkeep.stats(store)
    return {
        "seal_seconds": rounded(seconds),
        "text_bytes": told["text_bytes"],
        "state_bytes": told["state_bytes"],
        "log_bytes": told["log_bytes"],
        "log_bytes_trimmed": after["log_bytes"],
        "log_begin": trimmed["begin"],
        "disk_bytes_trimmed": after["disk_bytes"],
        "state_by_text": rounded(told["state_bytes"] / told["text_bytes"]),
    }


def _rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / _MIB


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
