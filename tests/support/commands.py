"""Call the command line as a user does, and know what it should say."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

COMMAND = [sys.executable, "-m", "turnstate.streams"]
TIMEOUT_S = 120

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


def line(session: str, turn: int, text: str = "hi", **more: Any) -> bytes:
    turn_fields = {"turn_id": f"t{turn}", "role": "user", "content": text}
    return json.dumps(
        {"tenant": "acme", "session": session} | turn_fields | more
    ).encode()


def lines(*given: bytes) -> bytes:
    return b"".join(each + b"\n" for each in given)


GOOD = lines(
    line("a", 1, "a table for two", slots={"set": {"people": 2}}),
    line("a", 2, "for three", slots={"set": {"people": 3}}, usage={"tokens": 9}),
    line("b", 1, "北京"),
)


SHAPES = {
    "state acme a": [
        "tenant",
        "session",
        "incarnation",
        "version",
        "clock",
        "branch",
        "branches",
        "phase",
        "phase_error",
        "turns",
        "turn_count",
        "slots",
        "tags",
        "usage",
        "open_tool_calls",
        "gaps",
        "conflicts",
        "ended",
        "tier",
        "digest",
    ],
    "state acme a --since 1": ["from", "to", "patch"],
    "turns acme a": ["turns", "next"],
    "history acme a": ["versions"],
    "context acme a --budget-tokens 100": [
        "messages",
        "tokens",
        "budget_tokens",
        "left_out",
    ],
    "sessions": ["sessions"],
    "stats": [
        "sessions",
        "turns",
        "text_bytes",
        "log_bytes",
        "state_bytes",
        "disk_bytes",
        "tiers",
        "dead_letters",
    ],
    "verify": ["sessions", "frames", "bad"],
    "seal": ["sealed"],
    "settings": ["settings"],
    "dead-letters list": ["dead_letters"],
    "rollback acme a 1": ["verdict", "version", "turn"],
    "fork acme a other --version 1": ["verdict", "version", "turn"],
    "end acme a --to b": ["verdict", "version", "turn"],
    "export all.tsrec": ["operations", "sessions", "bytes"],
    "erase acme --session b --dry-run": [
        "sessions",
        "turns",
        "scanned",
        "found_after",
        "not_covered",
    ],
}
"""Command → keys that its document has, whatever is added (design §13)."""
