"""Plan an erase: which lives end, and in whose other sessions a user spoke."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from turnstate.schemas.clocks import Dot
from turnstate.storage.rewrite import said_by
from turnstate.storage.session_reader import operations
from turnstate.storage.stored_head import StoredHead

if TYPE_CHECKING:
    from turnstate.streams.embedded.store import EmbeddedStore


@dataclass(slots=True)
class ErasePlan:
    """What is to be erased.

    Attributes:
        tenant: The tenant.
        user: The user, None where a session is erased.
        lives: session key → the life that ends, or ended last.
        ending: Those of them that have not ended yet.
        spoken: session key → turns of the user that are not redacted yet.
        rewritten: Sessions of others in which the user spoke.
        sessions: How many lives end.
        turns: Turns that go.
    """

    tenant: str
    user: str | None = None
    lives: dict[bytes, int] = field(default_factory=dict[bytes, int])
    ending: list[bytes] = field(default_factory=list[bytes])
    spoken: dict[bytes, list[Dot]] = field(default_factory=dict[bytes, list[Dot]])
    rewritten: set[bytes] = field(default_factory=set[bytes])
    sessions: int = 0
    turns: int = 0

    def add_session(self, key: bytes, stored: StoredHead) -> None:
        """Plan to erase a session whole."""
        life = stored.head.incarnation
        if stored.is_tombstone:
            self.lives[key] = life - 1
        else:
            self.lives[key] = life
            self.ending.append(key)
            self.sessions += 1
            self.turns += stored.head.turn_count


def user_plan(store: "EmbeddedStore", tenant: str, user: str) -> ErasePlan:
    """Plan to erase what a user owns, and to hide what they said elsewhere.

    Reads every session of the tenant: who speaks where is in no index.

    Raises:
        CorruptDataError: a session cannot be read: repair it first.
    """
    plan = ErasePlan(tenant, user)
    for key, stored in store.stored_heads(tenant):
        if stored.owner == user:
            plan.add_session(key, stored)
        elif not stored.is_tombstone:
            _note_spoken(store, plan, key, stored)
    return plan


def _note_spoken(
    store: "EmbeddedStore", plan: ErasePlan, key: bytes, stored: StoredHead
) -> None:
    assert plan.user is not None
    ops = [op for _, op in operations(store.warm, key, stored)]
    if not any(op.body.user == plan.user for op in ops):
        return
    plan.rewritten.add(key)
    plan.spoken[key] = said_by(ops, plan.user, stored.head.redacted)
    plan.turns += len(plan.spoken[key])
