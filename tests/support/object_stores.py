"""Open every kind of object store for a test, each in a place of its own."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import uuid4

from turnstate.infra.services.ports import HOST
from turnstate.infra.services.s3 import S3Server, start_s3
from turnstate.infra.services.server import Command
from turnstate.storage.cold.s3 import S3Objects
from turnstate.storage.cold.s3_settings import S3Settings

PART_BYTES: Final = 5 << 20
"""The least that S3 allows: a test of several parts stays small."""


def versity_program() -> Path | None:
    """Return versitygw, a second S3 server; None where nobody installed it."""
    found = shutil.which("versitygw") or shutil.which(
        "versitygw", path=str(Path.home() / "go" / "bin")
    )
    return Path(found) if found else None


class VersityServer(S3Server):
    """One versitygw on loopback, as the launcher runs other servers."""

    name: ClassVar[str] = "versitygw"
    port_names: ClassVar[tuple[str, ...]] = ("s3",)
    port_distance: ClassVar[int] = 0

    def command(self, ports: Mapping[str, int]) -> Command:
        """Return the command."""
        program = versity_program()
        assert program is not None
        data = self.folder.data / "versity"
        data.mkdir(parents=True, exist_ok=True)
        keys = self.keys
        return Command(
            [str(program), "--port", f"{HOST}:{ports['s3']}", "posix", str(data)],
            {
                **os.environ,
                "ROOT_ACCESS_KEY": keys.access_key,
                "ROOT_SECRET_KEY": keys.secret_key,
            },
        )


def start_versity(folder: Path) -> VersityServer:
    """Start versitygw in a folder; return when it answers."""
    server = VersityServer(folder)
    server.start()
    return server


SERVERS: Final[Mapping[str, Callable[[Path], S3Server]]] = {
    "s3": start_s3,
    **({"versitygw": start_versity} if versity_program() else {}),
}
"""What speaks S3 here, by name: a second server only where it is installed."""


def s3_settings(connection: Mapping[str, str], **changed: Any) -> S3Settings:
    """Return settings for a server's bucket, with a prefix that nobody else has."""
    fields: dict[str, Any] = {
        "prefix": f"test-{uuid4().hex[:12]}",
        "multipart_bytes": PART_BYTES,
        "timeout_ms": 20_000,
        **connection,
        **changed,
    }
    return S3Settings(**fields)


def s3_objects(connection: Mapping[str, str], **changed: Any) -> S3Objects:
    """Return objects in a server's bucket, below a prefix that nobody else has."""
    return S3Objects(s3_settings(connection, **changed))
