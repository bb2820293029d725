"""What goes wrong in the simulated world, and how a seed is played."""

from collections.abc import Callable
from typing import Final

from support.faulty_store import CrashError
from support.region import Region
from support.world import SESSIONS, World, erase_record
from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.session_reader import operations
from turnstate.storage.warm.tables import FRAMES, SEGMENTS


def play(world: World, steps: int) -> World:
    """Play steps by chance, then let it settle."""
    for _ in range(steps):
        does = world.one(STEPS)
        world.told(does.__name__)
        does(world)
    world.settle()
    for region in world.regions:
        for name in SESSIONS:
            if world.once_in(2):
                region.cool(name.key())
        region.tidy()
    return world


def crash(world: World) -> None:
    """The next write of a region fails, before it is made or after."""
    world.one(world.regions).store.fails = world.one(("before", "after"))


def part(world: World) -> None:
    """A region cannot be reached for a while."""
    world.cut_off = set() if world.cut_off else {world.one(world.regions).name}


def clock_step(world: World) -> None:
    """A clock goes forward, or back."""
    world.one(world.clocks).advance(int((world.chance.random() - 0.4) * 1e7))


def seal(world: World) -> None:
    """A region seals a session."""
    region = world.one(world.regions)
    try:
        region.seal(world.one(SESSIONS).key())
    except CrashError:
        world.crashes += 1
        region.start()
    except CorruptDataError as error:
        world.faults.append(f"{region.name} cannot seal: {error}")


def evict(world: World) -> None:
    """A region lets go of a session, and of what frames are written against."""
    region, key = world.one(world.regions), world.one(SESSIONS).key()
    region.evict(key)
    if world.once_in(2):
        region.agent.tails.forget(key)


def cool(world: World) -> None:
    """A region moves a session to its cold tier; a crash may come between."""
    region = world.one(world.regions)
    try:
        world.cooled += region.cool(world.one(SESSIONS).key()) is not None
    except CrashError:
        world.crashes += 1
        region.start()
    except CorruptDataError as error:
        world.faults.append(f"{region.name} cannot cool: {error}")


def wake(world: World) -> None:
    """A region brings a session back from its cold tier."""
    region = world.one(world.regions)
    try:
        region.wake(world.one(SESSIONS).key())
    except CrashError:
        world.crashes += 1
        region.start()


def cold_away(world: World) -> None:
    """Turns come while the cold tier cannot be reached."""
    region = world.one(world.regions)
    # A restart in the middle could not tell its subscriber what it missed.
    fails, region.store.fails = region.store.fails, None
    region.objects.is_away = True
    world.deliver_to(region, 6)
    region.objects.is_away = False
    region.store.fails = fails


def tidy(world: World) -> None:
    """Packs are rewritten or deleted, whatever their age."""
    region = world.one(world.regions)
    try:
        region.tidy()
    except CrashError:
        world.crashes += 1
        region.start()


def redeliver(world: World) -> None:
    """A log is read again from an earlier offset: nothing may change."""
    region = world.one(world.regions)
    folded = region.redeliver(max(0, region.log.end - 20))
    if folded.changes:
        world.faults.append(f"{region.name}: a redelivery changed something")


def erase(world: World) -> None:
    """A session is erased in one region; the other hears of it later."""
    if world.once_in(3):
        name, region = world.one(SESSIONS), world.one(world.regions)
        incarnation = region.stored(name.key()).head.incarnation
        world.send(region.name, erase_record(name, incarnation))


def damage(world: World) -> None:
    """A stored frame is torn; whoever reads it says so, and the log heals it."""
    region = world.one(world.regions)
    table = world.one((FRAMES, FRAMES, SEGMENTS))
    keys = region.store.keys_of(table)
    if not keys:
        return
    at = world.one(keys)
    rows = region.store.rows_by_table[table]
    good = rows[at]
    place = int(world.chance.random() * len(good))
    bit = 1 << int(8 * world.chance.random())
    flipped = good[:place] + bytes([good[place] ^ bit]) + good[place + 1 :]
    rows[at] = world.one((good[:place], flipped))
    world.damages += 1
    name = session_of_row(at)
    try:
        found = list(operations(region.store, name, region.stored(name)))
    except CorruptDataError:
        _rebuild(world, region)
        return
    rows[at] = good
    if found != list(operations(region.store, name, region.stored(name))):
        world.faults.append("a torn frame was read as if it were whole")


def _rebuild(world: World, region: Region) -> None:
    other = region.rebuilt()
    for key in region.sessions():
        if other.stored(key).head != region.stored(key).head:
            world.faults.append(f"{region.name}: the log gives another state")
    region.store.rows_by_table.clear()
    region.store.rows_by_table.update(other.store.rows_by_table)
    region.start()


def session_of_row(row_key: bytes) -> bytes:
    """Return the session key that a row's key begins with."""
    return row_key[2 : 2 + int.from_bytes(row_key[:2], "big")]


STEPS: Final[tuple[Callable[[World], None], ...]] = (
    *[World.plain_turn] * 10,
    *[World.plain_operation] * 3,
    *[World.offline] * 5,
    *[World.deliver] * 12,
    *[World.exchange] * 3,
    *[World.hear] * 3,
    *[World.again] * 3,
    *[seal] * 3,
    *[evict] * 2,
    *[crash] * 2,
    *[cool] * 4,
    wake,
    cold_away,
    tidy,
    World.bad_input,
    World.bad_input,
    part,
    clock_step,
    redeliver,
    redeliver,
    erase,
    damage,
)
"""What a step may be, the likelier ones more often."""
