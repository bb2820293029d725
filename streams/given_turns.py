"""Turns as a program hands them over: as dicts, as `Turn`s, or as JSON bytes."""

import json
from typing import Any

from turnstate.agents.session.step import Answer
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.turn import Turn
from turnstate.schemas.wire.json import turn_to_json

AnyTurn = dict[str, Any] | Turn | bytes
"""A turn as a dict, a `Turn`, or its JSON bytes."""


def turn_bytes(turn: AnyTurn) -> bytes:
    """Return a turn as JSON bytes; what JSON cannot say exactly is refused.

    Raises:
        InvalidInputError: a dict holds something that is no JSON. (NaN and
            halves of surrogate pairs are named by the door itself.)

    Example:
        >>> turn_bytes({"role": "user"})
        b'{"role": "user"}'
    """
    if isinstance(turn, bytes):
        return turn
    if isinstance(turn, Turn):
        return turn_to_json(turn)
    try:
        return json.dumps(turn).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"the turn cannot be written as JSON: {error}",
            hint="use dicts, lists, text, numbers, booleans and None",
            code="not_json",
        ) from error


def raised(answer: Answer) -> Answer:
    """Return an answer, or raise the error that it carries."""
    if answer.error is not None:
        raise answer.error
    return answer
