"""Run one S3 server on loopback, SeaweedFS or MinIO, with a bucket in it."""

import json
import os
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, Final

from turnstate.infra.services import programs
from turnstate.infra.services.folder import write_whole
from turnstate.infra.services.ports import HOST
from turnstate.infra.services.s3_protocol import Keys, ask
from turnstate.infra.services.server import Command, Server

BUCKET: Final = "turnstate"

_SOCKETS: Final = Path("/tmp")  # noqa: S108 - where SeaweedFS puts them
_GRPC_DISTANCE: Final = 10_000


class S3Server(Server):
    """One server with keys of its own and one bucket; its data survives every end."""

    name: ClassVar[str] = "s3"
    port_names: ClassVar[tuple[str, ...]] = ("s3", "master", "volume", "filer", "admin")
    port_distance: ClassVar[int] = _GRPC_DISTANCE

    @property
    def endpoint(self) -> str:
        """What a client is given."""
        return f"http://{HOST}:{self.port('s3')}"

    @property
    def keys(self) -> Keys:
        """Who may ask; made when it is first looked at."""
        return keys_of(self.folder.path)

    @property
    def connection(self) -> dict[str, str]:
        """Endpoint, keys and bucket."""
        return connection(self.port("s3"), self.keys)

    def answers(self, ports: Mapping[str, int]) -> bool:
        """Say whether it knows the keys and has the bucket, which is made if not."""
        return has_bucket(ports["s3"], self.keys)

    def command(self, ports: Mapping[str, int]) -> Command:
        """Return the command.

        Raises:
            MissingProgramError: no S3 server is here.
        """
        program = programs.s3()
        if program.name == "minio":
            return self._minio(program, ports)
        return self._seaweedfs(program, ports)

    def leftovers(self, ports: Mapping[str, int]) -> list[Path]:
        """Return the sockets that SeaweedFS leaves behind."""
        return [
            socket
            for port in self.all_ports(ports)
            for socket in _SOCKETS.glob(f"seaweedfs-*-{port}.sock")
        ]

    def _data(self, kind: str) -> str:
        """Return the folder of this kind of server: none reads another's data.

        It is relative: SeaweedFS takes a comma in a path for the end of it.
        """
        folder = self.folder.data / kind
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder.relative_to(self.folder.path))

    def _seaweedfs(self, program: Path, ports: Mapping[str, int]) -> Command:
        numbers = [f"-{name}.port={port}" for name, port in ports.items()]
        keys = self.keys
        return Command(
            [
                *(str(program), "-logtostderr=true", "mini"),
                *(f"-dir={self._data('seaweedfs')}", f"-ip={HOST}", f"-ip.bind={HOST}"),
                *numbers,
                *("-admin.ui=false", "-webdav=false"),
                *("-s3.port.iceberg=0", "-s3.port.lance=0"),
                # Statistics of a store stay here.
                "-master.telemetry=false",
            ],
            {
                **os.environ,
                "AWS_ACCESS_KEY_ID": keys.access_key,
                "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            },
        )

    def _minio(self, program: Path, ports: Mapping[str, int]) -> Command:
        keys = self.keys
        return Command(
            [
                *(str(program), "server", self._data("minio")),
                *("--address", f"{HOST}:{ports['s3']}"),
                *("--console-address", f"{HOST}:{ports['admin']}"),
            ],
            {
                **os.environ,
                "MINIO_ROOT_USER": keys.access_key,
                "MINIO_ROOT_PASSWORD": keys.secret_key,
                "MINIO_UPDATE": "off",
            },
        )


def keys_of(folder: Path) -> Keys:
    """Return the keys that a folder keeps, made at the first call."""
    path = folder / "keys.json"
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        return Keys(str(found["access_key"]), str(found["secret_key"]))
    except (OSError, ValueError, KeyError, TypeError):
        made = Keys("turnstate", secrets.token_hex(20))
        write_whole(path, json.dumps(made._asdict()), mode=0o600)
        return made


def connection(port: int, keys: Keys) -> dict[str, str]:
    """Return what a client is given."""
    return {"endpoint": f"http://{HOST}:{port}", **keys._asdict(), "bucket": BUCKET}


def has_bucket(port: int, keys: Keys) -> bool:
    """Say whether a server knows the keys and has the bucket, made where it is not."""
    path = f"/{BUCKET}"
    status = ask("HEAD", path, port=port, keys=keys)
    if status == HTTPStatus.NOT_FOUND:
        status = ask("PUT", path, port=port, keys=keys)
    return status == HTTPStatus.OK


def start_s3(folder: Path) -> S3Server:
    """Start an S3 server in a folder, unless it runs there; return when it answers.

    Raises:
        MissingProgramError: with the command that brings what is missing.
        ServiceError: it does not start; its log is named.
    """
    server = S3Server(folder)
    server.start()
    return server
