"""A replay report counts, lists what is wrong, and has the agreed shape."""

from turnstate.replay.report import ROWS_MAX, ReplayReport
from turnstate.schemas.ids import SessionName


def test_the_shape_is_the_agreed_one() -> None:
    report = ReplayReport(turns=10, seconds=0.5)
    report.add(SessionName("t", "c"), "branches.main.phase")
    report.add(SessionName("t", "b"), None)
    report.add(SessionName("t", "a"), "sum")
    report.add_missing(SessionName("t", "d"), "against")
    report.add_missing(SessionName("s", "e"), "replay")

    assert report.as_json() == {
        "turns": 10,
        "sessions": 4,
        "equal": 1,
        "different": [
            {"tenant": "t", "session": "a", "field": "sum"},
            {"tenant": "t", "session": "c", "field": "branches.main.phase"},
        ],
        "missing": [
            {"tenant": "s", "session": "e", "side": "replay"},
            {"tenant": "t", "session": "d", "side": "against"},
        ],
        "turns_per_s": 20.0,
    }
    assert not report.holds


def test_a_replay_without_differences_holds() -> None:
    report = ReplayReport(turns=1)
    report.add(SessionName("t", "a"), None)

    assert report.holds
    assert report.turns_per_s == 0.0
    assert ReplayReport().holds


def test_one_missing_session_is_a_difference() -> None:
    report = ReplayReport()
    report.add_missing(SessionName("t", "a"), "replay")

    assert not report.holds


def test_the_text_names_sessions_one_a_line_and_is_bounded() -> None:
    report = ReplayReport(turns=12_000, seconds=1.0)
    report.add(SessionName("t", "two\nlines"), "sum")
    for number in range(ROWS_MAX + 5):
        report.add_missing(SessionName("t", f"m{number}"), "against")
    text = report.as_text()

    assert "12,000 turns" in text
    assert r"'t' / 'two\nlines'" in text
    assert "… and 5 more" in text
    assert len(text.splitlines()) == 5 + 1 + ROWS_MAX + 1
