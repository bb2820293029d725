"""Doors that lead through a recording of what one store folded."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from hostile.contract import ERASE, Door, Sent
from hostile.doors import STORED, StoreDoor

from turnstate.replay.engine import fold_recording
from turnstate.replay.recording_json import item_from_json, json_line
from turnstate.schemas.ids import SessionName
from turnstate.schemas.operation import MAIN
from turnstate.streams.embedded.exchange import export_items, import_items
from turnstate.streams.embedded.owner import OwnedStore
from turnstate.streams.settings import Settings


class ImportDoor(StoreDoor):
    """A recording of what one store folded, taken in by another."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._second: OwnedStore | None = None

    @contextmanager
    def _imported(self) -> Generator[None]:
        """Read from a store that took in what the first one has by now."""
        if self._second is None:
            self._second = self._filled()
        first, self.owned = self.owned, self._second
        try:
            yield
        finally:
            self.owned = first

    def _filled(self) -> OwnedStore:
        """Write all as JSON lines, read them, fold them in a second store."""
        lines = [json_line(item) for item in export_items(self.owned)]
        folder = Path(mkdtemp(dir=self.folder))
        second = OwnedStore(Settings(data=folder, fsync="never"), serving=False)
        report = import_items(second, [item_from_json(line) for line in lines])
        wrong = (report["refused"], report["conflicts"], report["dropped"])
        assert wrong == (0, 0, 0)
        return second

    def _forget(self) -> None:
        """Close the second store: the first has changed."""
        if self._second is not None:
            self._second.close()
            self._second = None

    def send(self, lines: Sequence[bytes]) -> Sent:
        self._forget()
        return super().send(lines)

    def seal(self) -> None:
        self._forget()
        super().seal()

    def turns(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> list[dict[str, Any]]:
        expected = super().turns(session, tenant=tenant, branch=branch)
        with self._imported():
            found = super().turns(session, tenant=tenant, branch=branch)
        assert found == expected
        return found

    def state(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> dict[str, Any]:
        expected = super().state(session, tenant=tenant, branch=branch)
        with self._imported():
            found = super().state(session, tenant=tenant, branch=branch)
        # What a tier knows beside the state may differ; the state may not.
        assert found | {"tier": ""} == expected | {"tier": ""}
        return found

    def close(self) -> None:
        self._forget()
        super().close()


class ReplayDoor(StoreDoor):
    """A recording of what the store folded, folded again in memory, shuffled."""

    def state(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> dict[str, Any]:
        found = super().state(session, tenant=tenant, branch=branch)
        for seed in (None, 1, 2):
            items = list(export_items(self.owned))
            folded = fold_recording(
                items, self.owned.graph, self.settings.log_name, shuffle=seed
            )
            again = folded.sessions[SessionName(tenant, session).key()]
            assert again.digest.hex() == found["digest"]
            assert again.operations == found["version"]
        return found


NOT_AGAIN: Final = (
    "the same store as behind `store`: what is erased is looked for there"
)

RECORDED_DOORS: Final = (
    Door("import", ImportDoor, STORED, {ERASE: NOT_AGAIN}),
    Door("replay", ReplayDoor, STORED, {ERASE: NOT_AGAIN}),
)
"""Those that need no service, either."""
