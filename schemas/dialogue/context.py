"""The messages that a model is shown: the newest that fit, pairs never parted."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

Message = dict[str, Any]
"""An OpenAI chat message; values may be `msgspec.Raw`."""

Estimate = Callable[[Message], int]
"""About how many tokens a message takes."""

BYTES_A_TOKEN: Final = 4
OVERHEAD_TOKENS: Final = 4
"""What each message costs beside its text: role, separators."""

LOST_RESULT: Final = '{"error": "no result came for this call"}'
"""What a model is told about a call that was never answered."""

_SYSTEM_ROLES: Final = ("system", "developer")
_FIELDS: Final = ("role", "content", "name", "tool_calls", "tool_call_id")


class ContextTurn(NamedTuple):
    """One message, and the turn that it comes from.

    Attributes:
        turn_id: The turn; None for a message that was added here.
        message: The OpenAI message.
        call_ids: The ids of the tool calls that it asks for.
        result_of: The call that it answers, "" where it does not say which;
            None where it is no tool's result.
    """

    turn_id: str | None
    message: Message
    call_ids: tuple[str, ...] = ()
    result_of: str | None = None


class _Call(msgspec.Struct):
    id: str


class Context(NamedTuple):
    """What fits.

    Attributes:
        messages: The messages, oldest first.
        tokens: What they take by the estimate; above the budget only where
            the system prompt alone is.
        left_out: The ids of the turns that are not among them, oldest first.
    """

    messages: list[Message]
    tokens: int
    left_out: list[str]


def estimated_tokens(message: Message) -> int:
    """Estimate: a token for four bytes of JSON, rounded up, and four for the frame.

    Without a tokenizer this is right within about a third for English; give
    `fit` the model's own counter where the budget is tight.

    Example:
        >>> estimated_tokens({"role": "user", "content": "hi"})
        12
    """
    size = len(msgspec.json.encode(message))
    return -(-size // BYTES_A_TOKEN) + OVERHEAD_TOKENS


def context_turns(turns: Sequence[dict[str, Any]]) -> Iterator[ContextTurn]:
    """Yield the messages of turn documents, parts behind the turn they continue.

    A redacted turn yields an empty message: `fit` leaves it out and says so.

    Args:
        turns: Turn documents as `turns` answers them, oldest first.
    """
    for turn in turns:
        if turn.get("redacted"):
            yield ContextTurn(turn["turn_id"], {})
            continue
        message: Message = {name: turn[name] for name in _FIELDS if name in turn}
        result_of = None
        if turn["role"] == "tool":
            result_of = turn.get("tool_call_id") or ""
        yield ContextTurn(
            turn["turn_id"], message, _call_ids(turn.get("tool_calls")), result_of
        )
        yield from context_turns(turn.get("parts", ()))


def _call_ids(tool_calls: Any) -> tuple[str, ...]:
    """Return the ids in a message's tool calls, which may be of any shape."""
    if isinstance(tool_calls, msgspec.Raw):
        tool_calls = msgspec.json.decode(tool_calls)
    try:
        calls = msgspec.convert(tool_calls, list[Any])
    except msgspec.ValidationError:
        return ()
    return tuple(id_ for call in calls for id_ in _id_of(call))


def _id_of(call: Any) -> tuple[str, ...]:
    try:
        return (msgspec.convert(call, _Call).id,)
    except msgspec.ValidationError:
        return ()


def fit(
    turns: Sequence[ContextTurn],
    budget_tokens: int,
    *,
    estimate: Estimate = estimated_tokens,
    complete_open_calls: bool = False,
) -> Context:
    """Return the newest messages that fit in a budget; what is stored stays.

    The system prompt (the system turns that the dialogue begins with) is
    always kept. The rest is taken from the newest back, without gaps. A tool
    call and its results stay together: where the cut would part them, both
    are left out. A result without its call is left out, too: models refuse
    it. Cutting the result again with the same budget changes nothing.

    Args:
        turns: The dialogue, oldest first; see `context_turns`.
        budget_tokens: What the messages may take.
        estimate: What one message takes.
        complete_open_calls: Add a result that says that none came, for each
            call without one.

    Example:
        >>> hi = {"role": "user", "content": "hi"}
        >>> said = [ContextTurn(str(number), hi) for number in range(9)]
        >>> cut = fit(said, 30)
        >>> len(cut.messages), cut.tokens, cut.left_out[-1]
        (2, 24, '6')
    """
    kept, orphans = _paired(turns, complete_open_calls=complete_open_calls)
    prompt = 0
    while prompt < len(kept) and kept[prompt][1].message["role"] in _SYSTEM_ROLES:
        prompt += 1
    tokens = sum(estimate(turn.message) for _, turn in kept[:prompt])
    begin = len(kept)
    for start, end in reversed(_groups(kept, prompt)):
        cost = sum(estimate(turn.message) for _, turn in kept[start:end])
        if tokens + cost > budget_tokens:
            break
        tokens += cost
        begin = start
    shown = kept[:prompt] + kept[begin:]
    left_out = orphans + [
        (place, turn) for place, turn in kept[prompt:begin] if turn.turn_id is not None
    ]
    left_out.sort(key=lambda pair: pair[0])
    return Context(
        [turn.message for _, turn in shown],
        tokens,
        [turn.turn_id for _, turn in left_out if turn.turn_id is not None],
    )


_Placed = tuple[int, ContextTurn]


def _paired(
    turns: Sequence[ContextTurn], *, complete_open_calls: bool
) -> tuple[list[_Placed], list[_Placed]]:
    """Divide turns into those a model can be shown and those it cannot.

    Results that do not say which call they answer get the oldest open one.
    """
    kept: list[_Placed] = []
    orphans: list[_Placed] = []
    open_calls: dict[str, int] = {}
    lost: set[tuple[int, str]] = set()
    for place, given in enumerate(turns):
        turn = given
        if not turn.message:
            orphans.append((place, turn))
            continue
        if turn.result_of is not None:
            call = turn.result_of or next(iter(open_calls), "")
            if call not in open_calls:
                orphans.append((place, turn))
                continue
            del open_calls[call]
            if not turn.result_of:
                message = {**turn.message, "tool_call_id": call}
                turn = turn._replace(message=message, result_of=call)
        for call in dict.fromkeys(turn.call_ids):
            # An id asked for twice: a result answers the later call.
            if call in open_calls:
                lost.add((open_calls.pop(call), call))
            open_calls[call] = place
        kept.append((place, turn))
    lost.update((place, call) for call, place in open_calls.items())
    if complete_open_calls and lost:
        kept = _completed(kept, lost)
    return kept, orphans


def _completed(kept: list[_Placed], lost: set[tuple[int, str]]) -> list[_Placed]:
    """Add a result for each open call, behind the results that came with it."""
    result: list[_Placed] = []
    waiting: list[_Placed] = []
    for place, turn in kept:
        if waiting and turn.result_of is None:
            result += waiting
            waiting = []
        result.append((place, turn))
        waiting += (
            (place, _lost_result(call))
            for call in dict.fromkeys(turn.call_ids)
            if (place, call) in lost
        )
    return result + waiting


def _lost_result(call: str) -> ContextTurn:
    message = {"role": "tool", "tool_call_id": call, "content": LOST_RESULT}
    return ContextTurn(None, message, (), call)


def _groups(kept: Sequence[_Placed], begin: int) -> list[tuple[int, int]]:
    """Return the spans that no cut may part: from a call to its last result."""
    last: dict[int, int] = {}
    asked: dict[str, int] = {}
    for at in range(begin, len(kept)):
        turn = kept[at][1]
        if turn.result_of is not None and turn.result_of in asked:
            last[asked[turn.result_of]] = at
        asked.update(dict.fromkeys(turn.call_ids, at))
    groups: list[tuple[int, int]] = []
    start = reach = begin
    for at in range(begin, len(kept)):
        if at > reach:
            groups.append((start, at))
            start = reach = at
        reach = max(reach, last.get(at, at))
    if begin < len(kept):
        groups.append((start, len(kept)))
    return groups
