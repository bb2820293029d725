"""Names of any letters are keys of their own; what is erased stays away."""

from typing import Any, Final

from hostile.cases import (
    accepted,
    case,
    contents,
    line,
    op,
    refused,
    stamp,
)
from hostile.contract import ERASE, READ, REOPEN, SEAL, STATE, OpenDoor

from turnstate.schemas.limits import ID_BYTES_MAX

PAIRS: Final = (
    *(
        pair
        for sign in ":/.*{}%|\\ "
        for pair in (
            (f"a{sign}b", "c"),
            ("a", f"b{sign}c"),
            (f"a{sign}", "c"),
            ("a", f"{sign}c"),
        )
    ),
    ("t*", "s*"),
    ("t", "*"),
    ("*", "s"),
    ("a", "bc"),
    ("ab", "c"),
    ("é", "s"),
)


@case(22, READ)
def no_two_names_are_one_key(door: OpenDoor) -> None:
    """Whatever signs tenant and session hold, each pair is a session of its own."""
    accepted(door, *[line(f"{t}|{s}", tenant=t, session=s) for t, s in PAIRS])
    for tenant, session in PAIRS:
        assert contents(door.turns(session, tenant=tenant)) == [f"{tenant}|{session}"]


@case(22)
def an_empty_name_is_refused(door: OpenDoor) -> None:
    """An empty tenant or session is no name."""
    wrong: tuple[Any, ...] = ("", None, 7, [], {})
    for field in ("tenant", "session"):
        for value in wrong:
            refused(door, "invalid", field, line(**{field: value}))


@case(22, STATE)
def erasing_one_name_leaves_the_other(door: OpenDoor) -> None:
    """`a:b` + `c` goes, `a` + `b:c` stays; `*` is a letter."""
    names = [("a:b", "c"), ("a", "b:c"), ("a*", "c"), ("a", "*"), ("a", "c")]
    accepted(door, *[line("x", tenant=t, session=s) for t, s in names])
    accepted(
        door,
        op("erase", tenant="a:b", session="c"),
        op("erase", tenant="a", session="*"),
    )
    gone = [("a:b", "c"), ("a", "*")]
    for tenant, session in names:
        left = [] if (tenant, session) in gone else ["x"]
        assert contents(door.turns(session, tenant=tenant)) == left


@case(23, READ)
def what_can_be_written_can_be_read(door: OpenDoor) -> None:
    """Slashes, dots, signs, white space and line ends are letters of an id."""
    ids = (
        "a/b",
        "..",
        "../../etc",
        "#",
        "?x=1&y",
        "a b",
        " ",
        "%2F",
        "a%2Fb",
        "\n",
        "\t",
    )
    accepted(door, *[line(name, session=name, turn_id=name) for name in ids])
    for name in ids:
        (turn,) = door.turns(name)
        assert turn["content"] == turn["turn_id"] == name
    assert door.turns("a") == door.turns(".") == []


@case(23)
def an_id_of_three_thousand_letters_is_refused(door: OpenDoor) -> None:
    """Ids have 1 to 512 bytes, as UTF-8; the field is named."""
    accepted(door, line(session="x" * ID_BYTES_MAX, turn_id="é" * (ID_BYTES_MAX // 2)))
    for field in ("tenant", "session", "turn_id"):
        for value in ("x" * 3_000, "x" * (ID_BYTES_MAX + 1), "é" * 257):
            refused(door, "invalid", field, line(**{field: value}))


@case(24, STATE, REOPEN)
def an_erased_session_begins_anew(door: OpenDoor) -> None:
    """Erased: nothing of it is read; a second run does nothing; others are whole."""
    accepted(
        door,
        *[line(f"secret {n}", turn_id=f"u{n}") for n in range(100)],
        op("fork", branch="b", target="u3"),
        line("secret fork", branch="b"),
        line("other", session="s2"),
    )
    accepted(door, op("erase", incarnation=1))
    assert door.turns() == []
    door.reopen()
    assert door.send([op("erase", incarnation=1)]).counts == (0, 1, 0, 0)
    accepted(door, line("new", turn_id="u1"))

    state = door.state()
    assert contents(door.turns()) == ["new"]
    assert (state["incarnation"], state["version"], state["turn_count"]) == (2, 1, 1)
    assert state["branches"] == {"main": "u1"}
    assert contents(door.turns("s2")) == ["other"]


SECRET: Final = "xyzzy-plugh"


@case(24, STATE, ERASE, REOPEN, SEAL)
def an_erased_user_is_in_no_file(door: OpenDoor) -> None:
    """1 005 turns, 3 sessions, 2 forks, dead letters: no byte is left, others whole."""
    said = [
        line(f"{SECRET} {n}", session=f"s{n % 3}", user="me", turn_id=f"{SECRET}-{n}")
        for n in range(1_005)
    ]
    accepted(door, *said[:600])
    door.seal()
    accepted(door, *said[600:])
    accepted(
        door,
        op("fork", session="s0", branch="f1", target=f"{SECRET}-300"),
        op("fork", session="s1", branch="f2", target=f"{SECRET}-301"),
        line(f"fork {SECRET}", session="s0", branch="f1", slots={"set": {"k": SECRET}}),
        line("mine", session="other", user="you", turn_id="y1"),
        line(
            SECRET,
            session="other",
            user="me",
            turn_id="m1",
            slots={"set": {"a": SECRET}},
        ),
        line("mine too", session="other", user="you", turn_id="y2"),
        line("elsewhere", tenant="t2", session="s0", user="me"),
    )
    refused(
        door,
        "conflict",
        "turn_id",
        line(f"not {SECRET}", session="s0", user="me", turn_id=f"{SECRET}-0"),
    )

    report = door.erase("t", user="me")
    assert (report["sessions"], report["found_after"]) == (3, 0)
    for opened_again in (False, True):
        if opened_again:
            door.reopen()
        assert all(door.turns(f"s{n}") == [] for n in range(3))
        assert contents(door.turns("other")) == ["mine", None, "mine too"]
        assert contents(door.turns("s0", tenant="t2")) == ["elsewhere"]
        assert door.letters() == []
        assert [
            path for path in door.files() if SECRET.encode() in path.read_bytes()
        ] == []
    again = door.erase("t", user="me")
    assert (again["sessions"], again["turns"], again["found_after"]) == (0, 0, 0)


@case(25, STATE)
def a_late_turn_of_an_erased_life_is_dropped(door: OpenDoor) -> None:
    """Stamped before the erase, come after it: no ghost; ahead of it: refused."""
    old = line("ghost", stamp=stamp("eu", 2, 2, eu=1), parent="@eu:1")
    accepted(door, line("gone", stamp=stamp("eu", 1, 1), parent=None), op("erase"))

    assert door.send([old]).counts == (0, 0, 1, 0)
    assert door.turns() == []
    accepted(door, line("new"))
    assert door.send([old]).counts == (0, 0, 1, 0)
    assert contents(door.turns()) == ["new"]
    ahead = line("x", stamp=stamp("eu", 1, 1) | {"incarnation": 3}, parent=None)
    refused(door, "incarnation_ahead", "stamp.incarnation", ahead)


@case(27, STATE)
def a_turn_after_the_end_is_kept(door: OpenDoor) -> None:
    """The session ended and another goes on: the answer says so, nothing is lost."""
    accepted(door, line("bye"), op("end", to="s2"), line("late", role="assistant"))
    assert door.state()["ended"] == {"branch": "main", "to": "s2"}
    assert contents(door.turns()) == ["bye", "late"]
    accepted(door, line("again", session="s2"), line("back"))
    assert contents(door.turns()) == ["bye", "late", "back"]
