"""The messages for a model out of a stored session, in the shape of design §13."""

from typing import Protocol

from turnstate.schemas.dialogue.context import context_turns, fit
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.operation import MAIN
from turnstate.streams.documents import Document

_ALL_TURNS = 1 << 40


class HasTurns(Protocol):
    """Whoever lists the turns of a session."""

    def turns(
        self,
        tenant: str,
        session: str,
        *,
        version: int | None = None,
        branch: str = MAIN,
        at: int = 0,
        limit: int = 1000,
    ) -> Document:
        """Return turns of a branch in order, a page of them."""
        ...


def context(
    store: HasTurns,
    tenant: str,
    session: str,
    *,
    budget_tokens: int,
    version: int | None = None,
    branch: str = MAIN,
    complete_open_calls: bool = False,
) -> Document:
    """Return the newest messages of a branch that fit in a budget.

    Raises:
        NotFoundError: no such session, version or branch.
        InvalidInputError: the budget is no positive number.
    """
    if budget_tokens < 1:
        raise InvalidInputError(
            f"a budget of {budget_tokens} tokens holds nothing",
            field="budget_tokens",
            hint="at least 1",
        )
    shown = store.turns(
        tenant, session, version=version, branch=branch, limit=_ALL_TURNS
    )
    found = fit(
        list(context_turns(shown["turns"])),
        budget_tokens,
        complete_open_calls=complete_open_calls,
    )
    return {
        "messages": found.messages,
        "tokens": found.tokens,
        "budget_tokens": budget_tokens,
        "left_out": found.left_out,
    }
