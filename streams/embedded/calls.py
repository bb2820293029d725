"""The methods that a store answers by name, as plain Python methods."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from turnstate.agents.dead_letters import DeadLetter
from turnstate.agents.session.step import Answer
from turnstate.replay.recording import RecordedItem
from turnstate.schemas.dialogue.head import Head
from turnstate.schemas.operation import MAIN
from turnstate.streams.documents import Document


class Calls(ABC):
    """Who performs methods by name; what most of them return is known by type."""

    @abstractmethod
    def call(self, method: str, **arguments: Any) -> Any:
        """Perform a method by name."""

    def _document(self, method: str, **arguments: Any) -> Document:
        document: Document = self.call(method, **arguments)
        return document

    def _answer(self, method: str, **arguments: Any) -> Answer:
        answer: Answer = self.call(method, **arguments)
        return answer


class SessionCalls(Calls):
    """What is asked about one session, of a store that others own."""

    def rollback(
        self, tenant: str, session: str, version: int, branch: str = MAIN
    ) -> Answer:
        """Go back to what a branch was at a version; nothing is dropped."""
        return self._answer(
            "rollback", tenant=tenant, session=session, version=version, branch=branch
        )

    def fork(self, tenant: str, session: str, branch: str, **options: Any) -> Answer:
        """Begin a branch at a version, at a turn, or where main stands."""
        return self._answer(
            "fork", tenant=tenant, session=session, branch=branch, **options
        )

    def end(self, tenant: str, session: str, **options: Any) -> Answer:
        """Mark a branch as ended; `to` names the session that goes on."""
        return self._answer("end", tenant=tenant, session=session, **options)

    def state(self, tenant: str, session: str, **options: Any) -> Document:
        """Return the state of a session, at any version that it ever had."""
        return self._document("state", tenant=tenant, session=session, **options)

    def turns(self, tenant: str, session: str, **options: Any) -> Document:
        """Return turns of a branch in order, a page of them."""
        return self._document("turns", tenant=tenant, session=session, **options)

    def history(self, tenant: str, session: str) -> Document:
        """Return how the session is stored: one row a frame or segment."""
        return self._document("history", tenant=tenant, session=session)

    def head(self, tenant: str, session: str, version: int | None = None) -> Head:
        """Return the head of a session at a version, for programs."""
        head: Head = self.call("head", tenant=tenant, session=session, version=version)
        return head


class StoreCalls(Calls):
    """The methods that a store answers by name, as plain Python methods.

    One way to call them whether the store is owned by this process
    (`OwnedStore`) or by another one (`RemoteStore`).
    """

    def subscribe(
        self,
        tenant: str | None = None,
        session: str | None = None,
        *,
        token: str | None = None,
        follow: bool = True,
        stopped: Callable[[], bool] | None = None,
    ) -> Generator[Document]:
        """Yield the events of a session, or of all; see `feed.subscribe`."""
        arguments: dict[str, Any] = {} if stopped is None else {"stopped": stopped}
        result: Generator[Document] = self.call(
            "subscribe",
            tenant=tenant,
            session=session,
            token=token,
            follow=follow,
            **arguments,
        )
        return result

    def entities(
        self,
        tenant: str | None = None,
        *,
        token: str | None = None,
        follow: bool = True,
        stopped: Callable[[], bool] | None = None,
    ) -> Generator[Document]:
        """Yield entity upserts of a tenant, or of all; see `entities.entities`."""
        arguments: dict[str, Any] = {} if stopped is None else {"stopped": stopped}
        result: Generator[Document] = self.call(
            "entities", tenant=tenant, token=token, follow=follow, **arguments
        )
        return result

    def context(self, tenant: str, session: str, **options: Any) -> Document:
        """Return messages for a model; see `context.context`."""
        return self._document("context", tenant=tenant, session=session, **options)

    def patch(self, tenant: str, session: str, **options: Any) -> Document:
        """Return what changed since a version; see `patches.patch`."""
        return self._document("patch", tenant=tenant, session=session, **options)

    def reach(self, **options: Any) -> Document:
        """Wait until a session or the log is as far as said; see `reach.reach`."""
        return self._document("reach", **options)

    def stats(self) -> Document:
        """Return the totals of the store."""
        return self._document("stats")

    def verify(
        self, tenant: str | None = None, progress: Callable[..., Any] | None = None
    ) -> Document:
        """Check everything that is stored; another owner reports no progress."""
        return self._document("verify", tenant=tenant, progress=progress)

    def repair(self, **options: Any) -> Document:
        """Rebuild what is damaged from the log."""
        return self._document("repair", **options)

    def seal(self, tenant: str | None = None) -> Document:
        """Seal sessions now."""
        return self._document("seal", tenant=tenant)

    def erase(self, tenant: str, **options: Any) -> Document:
        """Erase a session or a user, with the report."""
        return self._document("erase", tenant=tenant, **options)

    def dead_letters(self) -> Document:
        """List what was refused."""
        return self._document("dead_letters")

    def dead_letter(self, number: str) -> DeadLetter:
        """Return one dead letter whole."""
        letter: DeadLetter = self.call("dead_letter", number=number)
        return letter

    def redrive(self, numbers: Sequence[str] | None = None) -> Document:
        """Send dead letters again; None = all of them."""
        return self._document("redrive", numbers=numbers)

    def discard(self, numbers: Sequence[str]) -> Document:
        """Remove dead letters for good."""
        return self._document("discard", numbers=numbers)

    def trim_log(self, below: int) -> Document:
        """Remove the log below an offset."""
        return self._document("trim_log", below=below)

    def backup(self, where: str, **options: Any) -> Document:
        """Back the whole store up; see `backups.backup`."""
        return self._document("backup", where=where, **options)

    def savepoint(self, where: str, name: str, **options: Any) -> Document:
        """Export everything under a name; see `backups.savepoint`."""
        return self._document("savepoint", where=where, name=name, **options)

    def export_items(self, tenant: str | None = None) -> Iterator[RecordedItem]:
        """Yield everything stored, as items of a recording."""
        items: Iterator[RecordedItem] = self.call("export_items", tenant=tenant)
        return items

    def import_items(self, items: Iterator[RecordedItem]) -> Document:
        """Fold the items of a recording."""
        return self._document("import_items", items=items)
