"""What an archive keeps of a session: counts, names and proofs, and no text."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import groupby, pairwise
from typing import Final

import msgspec
from msgspec import UNSET, Struct

from turnstate.agents.archive.deidentify import Deidentifier, clean
from turnstate.agents.archive.languages import language_of
from turnstate.schemas.clocks import Dot
from turnstate.schemas.crdt import counter, slot_map
from turnstate.schemas.dialogue.head import NodeState, digest
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import MAIN, Op
from turnstate.schemas.wire.tool_calls import calls_of
from turnstate.storage.stored_head import StoredHead

FORMAT: Final = 1

OTHER: Final = "[other]"
"""In the place of a label that may be text: too long, or with words in it."""

KEY_BYTES_MIN: Final = 16
"""Of the secret under which sessions and users are named."""

_PSEUDONYM_BYTES: Final = 16
_LABEL: Final = re.compile(r"[^\W_][\w.:/@+-]{0,63}")
"""One word: a name that a program gave, not a sentence."""

_SENTENCE_ZH: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{9}")
"""Scripts that put no spaces between words: so many signs may be a sentence."""


class SummaryRules(Struct, frozen=True):
    """What goes into summaries.

    Attributes:
        slots_kept: Slots of which the values are kept, cleaned; of all others
            only the name is.
        pseudonym_key: The secret under which sessions and users are named;
            who has it finds the summary of a session, who has not cannot.
    """

    pseudonym_key: bytes
    slots_kept: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse a key that could be guessed."""
        assert len(self.pseudonym_key) >= KEY_BYTES_MIN, "the caller checks it"


class SessionSummary(Struct, frozen=True):
    """One session as the archive keeps it.

    Attributes:
        format: Of the summary.
        tenant: Whose session it was; an organisation, no person.
        session: Pseudonym of the session.
        owner: Pseudonym of the first user that it named.
        incarnation: Which life of the session.
        version: How many operations were folded.
        turn_count: Turns of the dialogue.
        roles: Turns by role.
        operations: Operations that are no turn, by kind.
        languages: Turns by the language of their text, as its script shows it.
        text_bytes: How long the text was.
        phases: The phases that the dialogue went through, in order.
        actions: Actions by name.
        intents: Intents by name.
        tools: Tool calls by the tool's name.
        slots: Names of the slots at the end.
        slot_values: Values of the slots that the rules keep.
        tags: Tags at the end.
        usage: Usage in all.
        first_day: Day of the first turn that says a time, in UTC.
        duration_ms: From the first such turn to the last.
        longest_pause_ms: The longest time between two of them.
        redacted: Turns whose text was taken out.
        conflicts: Turns whose id another turn answers to.
        ended: Whether a branch was ended.
        digest: Of the state, hexadecimal.
        link: The last link of the chain over all frames, hexadecimal.
        position: Offset of the last operation in its log.
        archived_ms: When this was made, epoch milliseconds.
        deidentified_by: What cleaned the labels and values.
        removed: How many identifiers it took out, by kind.
    """

    format: int
    tenant: str
    session: str
    owner: str | None
    incarnation: int
    version: int
    turn_count: int
    roles: dict[str, int]
    operations: dict[str, int]
    languages: dict[str, int]
    text_bytes: int
    phases: list[str]
    actions: dict[str, int]
    intents: dict[str, int]
    tools: dict[str, int]
    slots: list[str]
    slot_values: dict[str, list[str]]
    tags: list[str]
    usage: dict[str, int]
    first_day: str | None
    duration_ms: int | None
    longest_pause_ms: int | None
    redacted: int
    conflicts: int
    ended: bool
    digest: str
    link: str
    position: int | None
    archived_ms: int
    deidentified_by: str
    removed: dict[str, int]


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(SessionSummary)


def encode_summary(summary: SessionSummary) -> bytes:
    """Return a summary as one line of JSON; equal ones have equal bytes."""
    return _encoder.encode(summary) + b"\n"


def decode_summary(line: bytes) -> SessionSummary:
    """Invert `encode_summary`."""
    return _decoder.decode(line)


def pseudonym(key: bytes, *parts: str) -> str:
    """Return the name under which an archive knows a session or a user.

    Example:
        >>> pseudonym(bytes(16), "acme", "s") == pseudonym(bytes(16), "acmes")
        False
    """
    hashed = blake2b(digest_size=_PSEUDONYM_BYTES, key=key[:64])
    for part in parts:
        data = part.encode()
        hashed.update(len(data).to_bytes(4, "big") + data)
    return hashed.hexdigest()


def summarise(
    name: SessionName,
    stored: StoredHead,
    ops: Iterable[Op],
    phases: Sequence[str],
    *,
    rules: SummaryRules,
    deidentifier: Deidentifier,
    now_ms: int,
) -> SessionSummary:
    """Return what the archive keeps of a session. Pure.

    No text of a turn, no argument of a tool, no value of a slot gets in,
    whatever it says; but for slots that the rules name. Names that programs
    give (intents, tools, slots, tags) get in if they are one word in which no
    identifier is found, else as `[other]`.

    Args:
        name: The session.
        stored: Its head.
        ops: All its operations, in version order.
        phases: The phase after each of its turns, in the order of turns.
        rules: What is kept.
        deidentifier: Cleans labels and values.
        now_ms: The present.
    """
    seen = _Seen(deidentifier)
    for op in ops:
        seen.take(op)
    head = stored.head
    state = head.branch_state(MAIN)
    slots = state.slots if state else {}
    values = {
        slot: [seen.value(entry[3]) for entry in slot_map.shown(slots[slot])]
        for slot in sorted(rules.slots_kept & set(slots))
    }
    key = rules.pseudonym_key
    owner = stored.owner
    first, duration, pause = _times(seen.times_ms)
    return SessionSummary(
        format=FORMAT,
        tenant=name.tenant,
        session=pseudonym(key, name.tenant, name.session),
        owner=None if owner is None else pseudonym(key, name.tenant, "user", owner),
        incarnation=head.incarnation,
        version=head.version,
        turn_count=head.turn_count,
        roles=seen.counted(seen.roles),
        operations=dict(sorted(seen.operations.items())),
        languages=dict(sorted(seen.languages.items())),
        text_bytes=stored.text_bytes,
        phases=[phase for phase, _ in groupby(phases)],
        actions=seen.counted(seen.actions),
        intents=seen.counted(seen.intents),
        tools=seen.counted(seen.tools),
        slots=sorted({seen.label(slot) for slot in slots}),
        slot_values=values,
        tags=sorted({seen.label(tag) for tag in state.tags} if state else ()),
        usage=seen.counted(Counter(counter.values(head.usage))),
        first_day=first,
        duration_ms=duration,
        longest_pause_ms=pause,
        redacted=len(head.redacted),
        conflicts=len(head.conflicts()),
        ended=bool(head.ended),
        digest=digest(head).hex(),
        link=stored.link.hex(),
        position=None if stored.position is None else stored.position.offset,
        archived_ms=now_ms,
        deidentified_by=deidentifier.name,
        removed=dict(sorted(seen.removed.items())),
    )


def phases_along(
    ops: Iterable[Op], states: Mapping[Dot, NodeState]
) -> list[str]:
    """Return the phase after each turn, as `summarise` takes them.

    Args:
        ops: All operations, in version order.
        states: The state at each of them, as `fold_all` has them.
    """
    return [states[op.dot].phase for op in ops if op.dot in states]


class _Seen:
    """What was counted over the operations of a session."""

    def __init__(self, deidentifier: Deidentifier) -> None:
        self._deidentifier = deidentifier
        self._labels: dict[str, str] = {}
        self.roles: Counter[str] = Counter()
        self.operations: Counter[str] = Counter()
        self.languages: Counter[str] = Counter()
        self.actions: Counter[str] = Counter()
        self.intents: Counter[str] = Counter()
        self.tools: Counter[str] = Counter()
        self.times_ms: list[int] = []
        self.removed: Counter[str] = Counter()

    def take(self, op: Op) -> None:
        """Count one operation."""
        body = op.body
        if body.op is not None:
            self.operations[body.op] += 1
            return
        self.roles[body.role] += 1
        if isinstance(body.content, str):
            self.languages[language_of(body.content)] += 1
        elif body.content is not UNSET or body.parts is not None:
            self.languages["none"] += 1
        if body.action is not None:
            self.actions[body.action] += 1
        if body.intent is not None:
            self.intents[body.intent] += 1
        if body.tool_calls is not None:
            self.tools.update(tool for _, tool in calls_of(body.tool_calls))
        time_ms = _time_ms(op.time)
        if time_ms is not None:
            self.times_ms.append(time_ms)

    def label(self, text: str) -> str:
        """Return a name that a program gave, `[other]` where it may be text."""
        known = self._labels.get(text)
        if known is None:
            found = self._deidentifier.find(text)
            self.removed.update(finding.kind for finding in found)
            is_label = _LABEL.fullmatch(text) and not _SENTENCE_ZH.search(text)
            known = text if is_label and not found else OTHER
            self._labels[text] = known
        return known

    def counted(self, counts: "Counter[str]") -> dict[str, int]:
        """Return counts by label."""
        merged: Counter[str] = Counter()
        for text, count in counts.items():
            merged[self.label(text)] += count
        return dict(sorted(merged.items()))

    def value(self, data: bytes) -> str:
        """Return a slot's value as cleaned text."""
        value = msgspec.json.decode(data)
        text = value if isinstance(value, str) else data.decode()
        cleaned = clean(text, self._deidentifier)
        self.removed.update(cleaned.removed)
        return cleaned.text


def _time_ms(time: int | str | None) -> int | None:
    if not isinstance(time, str):
        return time
    try:
        return int(datetime.fromisoformat(time).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _times(times_ms: Sequence[int]) -> tuple[str | None, int | None, int | None]:
    if not times_ms:
        return None, None, None
    ordered = sorted(times_ms)
    pauses = [after - at for at, after in pairwise(ordered)]
    try:
        day = datetime.fromtimestamp(ordered[0] / 1000, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        day = None
    return day, ordered[-1] - ordered[0], max(pauses, default=0)
