"""Benches by name: those of the embedded engine, and those that replay needs."""

from collections.abc import Mapping
from importlib import import_module
from typing import Final, cast

from turnstate.replay.bench.figures import Bench, Progress, Report, Size
from turnstate.schemas.errors import InvalidInputError

__all__ = ["BENCHES", "Bench", "Progress", "Report", "Size", "run_bench"]

BENCHES: Final[Mapping[str, str]] = {
    "append-flat": "streams.bench.flat:append_flat",
    "frames": "replay.bench.frames:frames",
    "hit-rate": "replay.bench.hit_rate:hit_rate",
    "interleaved": "streams.bench.throughput:interleaved_sessions",
    "interleaved-cold": "streams.bench.throughput:interleaved_cold",
    "large": "streams.bench.large:large",
    "large-cold": "streams.bench.large:large_cold",
    "read-flat": "streams.bench.flat:read_flat",
    "replay": "replay.bench.replaying:replay",
    "sizes": "streams.bench.sizes:sizes",
    "stages": "streams.bench.stages:stages",
    "throughput": "streams.bench.throughput:throughput",
    "tier-reads": "streams.bench.tier_reads:tier_reads",
    "view": "replay.bench.view:view",
}
"""Name → where it is; imported when it is run, so that a list costs nothing."""


def run_bench(name: str, size: Size, progress: Progress = None) -> Report:
    """Run one bench and return its figures, with its name.

    Raises:
        InvalidInputError: there is none of that name.

    Example:
        >>> run_bench("nope", "small")
        Traceback (most recent call last):
        ...
        turnstate.schemas.errors.InvalidInputError: there is no bench 'nope' (one of \
append-flat, frames, hit-rate, interleaved, interleaved-cold, large, large-cold, \
read-flat, replay, sizes, stages, throughput, tier-reads, view)
    """
    where = BENCHES.get(name)
    if where is None:
        raise InvalidInputError(
            f"there is no bench {name!r}",
            field="name",
            hint=f"one of {', '.join(sorted(BENCHES))}",
        )
    module, _, function = where.partition(":")
    bench = cast("Bench", getattr(import_module(f"turnstate.{module}"), function))
    return {"name": name, "size": size} | bench(size, progress)
