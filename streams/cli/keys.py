"""The commands about keys: keys init, status, rotate."""

from pathlib import Path
from typing import Annotated

import typer

from turnstate.streams.cli.options import Data, Json, Profile
from turnstate.streams.cli.render import Pairs, answer, note

KeyPath = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="The new file; on another disk than the data, and in no backup of it.",
    ),
]
NewMaster = Annotated[
    str,
    typer.Argument(
        metavar="keyfile:PATH", help="What the setting encryption is going to be."
    ),
]


def init(
    path: KeyPath,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Make a master key: a new file that only you may read (mode 0600).

    No store is opened or changed: TURNSTATE_ENCRYPTION turns encryption on.
    """
    del data, profile
    from turnstate.storage.encryption.key_file import KEY_FILE, make_key_file

    made = make_key_file(path.expanduser())
    setting = f"{KEY_FILE}:{made.path.resolve()}"
    document = {"path": str(made.path.resolve()), "master": made.name}
    document["setting"] = f"TURNSTATE_ENCRYPTION={setting}"
    answer(document, as_json, [Pairs("made", document.items())])
    note("keep a copy of this file apart from the data: without it all is lost")


def status(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """Show whether the store is encrypted, by which master key, and its keys."""
    from turnstate.streams.cli.doors import opened_cluster_keys, opened_store

    with opened_cluster_keys(data, profile) as keys:
        if keys is not None:
            document = keys.status()
        else:
            with opened_store(data, profile, what="keys status") as store:
                document = store.call("keys_status")
    answer(document, as_json, [Pairs("keys", document.items())])


def rotate(
    to: NewMaster,
    data: Data = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Wrap the store's keys by another master key, while it is in use.

    From then on only the new one opens it: change TURNSTATE_ENCRYPTION.
    """
    from turnstate.schemas.errors import InvalidInputError
    from turnstate.storage.encryption.key_file import KEY_FILE, wrapper_of
    from turnstate.streams.cli.doors import opened_cluster_keys, opened_store

    scheme, _, path = to.partition(":")
    if scheme == KEY_FILE and path:
        # The store's owner may run in another folder.
        to = f"{scheme}:{Path(path).expanduser().resolve()}"
    after = f"set TURNSTATE_ENCRYPTION={to}, then make a backup"
    with opened_cluster_keys(data, profile) as keys:
        if keys is not None:
            wrapper = wrapper_of(to)
            if wrapper is None:
                raise InvalidInputError(
                    "no new master key is named", field="to", hint="keyfile:PATH"
                )
            document = keys.rotate(wrapper)
            after = f"set TURNSTATE_ENCRYPTION={to} and start the workers anew"
        else:
            with opened_store(data, profile, what="keys rotate") as store:
                document = store.call("keys_rotate", to=to)
    answer(document, as_json, [Pairs("rotated", document.items())])
    note(after)
