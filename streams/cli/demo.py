"""The command `demo`: the main job on real dialogues, and what it cost."""

import typer

from turnstate.streams.cli.options import Data, Json, Profile
from turnstate.streams.cli.render import answer


def demo(data: Data = None, profile: Profile = None, as_json: Json = False) -> None:
    """Publish the dialogues that ship with turnstate, read them back, replay them.

    Uses a folder of its own and removes it, unless --data names one.
    """
    from turnstate.streams.cli.doors import settings_of
    from turnstate.streams.cli.showing import demo_blocks, run_demo

    settings = None if data is None else settings_of(data, profile, what="demo")
    document = run_demo(settings)
    answer(document, as_json, demo_blocks(document))
    if not document["holds"]:
        raise typer.Exit(1)
