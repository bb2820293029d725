"""Doors into a store all of whose sessions are cold whenever they are read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hostile.contract import ERASE, Door, Sent
from hostile.doors import STORED, StoreDoor

from support.cooling import Cooling
from support.object_stores import s3_objects
from turnstate.schemas.operation import MAIN
from turnstate.storage.cold.objects import ObjectStore
from turnstate.streams.tiers.reads import READ_TWICE_MS


class ColdDoor(StoreDoor):
    """A store whose cold tier is a directory: what is sent wakes, what is read is cold.

    Before the first read after each batch everything moves to the cold tier; reads
    are so slow that nothing comes back for them. So each batch is let in by heads
    that lie in packs.
    """

    objects: ObjectStore | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open()

    def _open(self) -> None:
        self.cooling = Cooling(self.folder / "data", self.objects)
        self.owned = self.cooling.store
        self._is_cold = False

    def send(self, lines: Sequence[bytes]) -> Sent:
        self._cool()
        self._is_cold = False
        return super().send(lines)

    def turns(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> list[dict[str, Any]]:
        self._cool()
        return super().turns(session, tenant=tenant, branch=branch)

    def state(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> dict[str, Any]:
        self._cool()
        found = super().state(session, tenant=tenant, branch=branch)
        assert found["tier"] == "cold"
        return found

    def context(self, budget_tokens: int, **options: Any) -> dict[str, Any]:
        self._cool()
        return super().context(budget_tokens, **options)

    def erase(self, tenant: str, **which: Any) -> dict[str, Any]:
        self._cool()
        self._is_cold = False
        return super().erase(tenant, **which)

    def _cool(self) -> None:
        self.cooling.clock.advance(2 * READ_TWICE_MS)
        if not self._is_cold:
            self.cooling.cool()
            self._is_cold = True
            tiers = self.cooling.tiers()
            assert (tiers["hot"], tiers["warm"]) == (0, 0)

    def reopen(self) -> None:
        self._cool()
        self.cooling.close()
        self._open()

    def close(self) -> None:
        self.cooling.close()


class BucketDoor(ColdDoor):
    """The same over a bucket: names are keys of objects nowhere."""

    def __init__(self, folder: Path, connection: Mapping[str, str]) -> None:
        self._bucket = s3_objects(connection)
        self.objects = self._bucket
        super().__init__(folder)

    def files(self) -> list[Path]:
        """Return local files, and a copy of each object."""
        copies = self.folder / "bucket"
        copies.mkdir(exist_ok=True)
        local = [path for path in super().files() if copies not in path.parents]
        for number, info in enumerate(self._bucket.list()):
            path = copies / f"{number}"
            path.write_bytes(info.name.encode() + self._bucket.read(info.name))
            local.append(path)
        return local

    def close(self) -> None:
        super().close()
        self._bucket.close()


COLD_DOORS: Final = (
    Door("cold", ColdDoor, STORED | {ERASE}, {}),
    Door(
        "cold-s3",
        BucketDoor,
        STORED | {ERASE},
        {},
        services=("s3_server",),
        rows=frozenset({6, 22, 23, 24, 25}),
    ),
)
"""A bucket gets the rows that are about names and erasing."""
