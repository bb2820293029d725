"""Find the dialogue corpora, or what ships of them, and their own final states."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

from turnstate.replay.samples import sample_paths

CORPORA_VARIABLE = "TURNSTATE_DATA_CORPORA"
"""Environment variable: the folder that holds `*.jsonl.gz` of the corpora."""

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"

SNAPSHOT_TENANTS = ("sgd", "multiwoz21", "crosswoz")
"""Corpora whose annotation tells a session's whole final slots."""


def corpora_folder() -> Path | None:
    """Return the folder of the whole corpora, or None where it is absent.

    Raises:
        FileNotFoundError: the environment names a folder that has none.
    """
    named = os.environ.get(CORPORA_VARIABLE)
    folder = Path(named) if named else _BESIDE
    if any(folder.glob("*.jsonl.gz")):
        return folder
    if named:
        raise FileNotFoundError(f"{CORPORA_VARIABLE}={named} holds no *.jsonl.gz")
    return None


def corpus_paths() -> list[Path]:
    """Return the corpora, or the samples that ship, so that no test is skipped."""
    folder = corpora_folder()
    return sorted(folder.glob("*.jsonl.gz")) if folder else sample_paths()


def snapshot_paths() -> list[Path]:
    """Return those of `corpus_paths` that `expected_slots` can judge."""
    return [path for path in corpus_paths() if corpus_name(path) in SNAPSHOT_TENANTS]


def corpus_name(path: Path) -> str:
    """Return the tenant that a corpus file is named after."""
    return path.name.partition(".")[0]


def corpus_lines(path: Path) -> list[dict[str, Any]]:
    """Return the decoded lines of a corpus file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def expected_slots(path: Path) -> dict[str, dict[str, Any]]:
    """Return each session's final slots as the corpus itself has them.

    Straight from the annotation (`ATTRIBUTION.md` of the samples has the rules
    in short), by none of the reader's code:

    - sgd: a turn tells the state of the services that it names, so the final
      state is the latest snapshot of each service, put together.
    - multiwoz21: snapshots are cumulative: the last one.
    - crosswoz: two writers. A user turn bears the query as the user stated it,
      an assistant turn the wizard's query after it with the results selected.
      Each role's snapshot is cumulative and each turn changes only what differs
      from that role's own last one, so of a name's changes (given, altered,
      withdrawn) the latest by either role counts. A session ends with an
      assistant turn, and where both roles withdraw or restate as they do here,
      that gives the wizard's last query exactly: `latest_changes` computes it
      by the rule, this function by the query, and a test holds that they agree.

    Args:
        path: A corpus file of one of `SNAPSHOT_TENANTS`.
    """
    name = corpus_name(path)
    assert name in SNAPSHOT_TENANTS, name
    final: dict[str, dict[str, Any]] = {}
    by_service: dict[str, dict[str, dict[str, Any]]] = {}
    for line in corpus_lines(path):
        session, slots = line["session"], line["slots"]
        final.setdefault(session, {})
        if slots is None:
            continue
        if name == "sgd":
            services = by_service.setdefault(session, {})
            for service in line["services"]:
                services[service] = {
                    slot: value
                    for slot, value in slots.items()
                    if slot.startswith(f"{service}.")
                }
            final[session] = {
                slot: value
                for snapshot in services.values()
                for slot, value in snapshot.items()
            }
        else:
            final[session] = slots
    return final


def latest_changes(path: Path) -> dict[str, dict[str, Any]]:
    """Return final slots by the rule of two writers: a name's latest change.

    For each name and role the series of its values is looked at, absent being
    a value; the later of the two roles' last changes decides.
    """
    sessions: dict[str, list[dict[str, Any]]] = {}
    for line in corpus_lines(path):
        sessions.setdefault(line["session"], []).append(line)
    final: dict[str, dict[str, Any]] = {}
    for session, lines in sessions.items():
        final[session] = {}
        told = [line for line in lines if line["slots"] is not None]
        for name in {name for line in told for name in line["slots"]}:
            last_change, last_value = -1, None
            for role in ("user", "assistant"):
                before = None
                for line in told:
                    if line["role"] != role:
                        continue
                    value = line["slots"].get(name)
                    if value != before and line["turn"] > last_change:
                        last_change, last_value = line["turn"], value
                    before = value
            if last_value is not None:
                final[session][name] = last_value
    return final
