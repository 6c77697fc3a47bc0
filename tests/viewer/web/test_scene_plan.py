"""Passes that a page which draws by itself gets, on lines of all paces."""

from __future__ import annotations

from splatview_viewer.blocks.packing_request import VersionFacts
from splatview_viewer.web.scene_pace import ScenePace
from splatview_viewer.web.scene_plan import (
    LEAST_SHARE,
    PassForm,
    ScenePass,
    ScenePlan,
    pass_bytes,
)

MBIT_20 = 2.5e6
"""Bytes a second."""


def version(number: int, gaussians: int, sh_degree: int = 3) -> VersionFacts:
    return VersionFacts(number, gaussians, sh_degree, False, (0.0, 0.0, 0.0))


MILLION = version(1, 1_000_000)


def seconds(sent: ScenePass | None, facts: VersionFacts, rate: float) -> float:
    assert sent is not None
    return pass_bytes(sent.form, facts.coefficients) / rate


def test_something_is_seen_within_a_second_and_all_within_ten() -> None:
    plan = ScenePlan()
    first = plan.next_pass(MILLION, MBIT_20)
    whole = plan.next_pass(MILLION, MBIT_20)
    assert seconds(first, MILLION, MBIT_20) < 0.8
    assert whole == ScenePass(1, PassForm(1_000_000), completes=True)
    assert seconds(whole, MILLION, MBIT_20) < 8


def test_a_version_that_stays_becomes_exact_and_then_whole() -> None:
    plan = ScenePlan()
    forms = []
    while (sent := plan.next_pass(MILLION, MBIT_20)) is not None:
        forms.append((sent.form.is_exact, sent.form.has_harmonics, sent.refines))
    assert forms == [
        (False, False, False),
        (False, False, False),
        (True, False, True),
        (True, True, True),
    ]
    assert plan.next_pass(MILLION, MBIT_20) is None


def test_the_newest_version_is_at_most_three_seconds_old() -> None:
    plan = ScenePlan()
    plan.next_pass(MILLION, MBIT_20)
    for number in range(2, 20):
        newest = version(number, 1_000_000)
        sent = plan.next_pass(newest, MBIT_20)
        assert sent is not None
        assert sent.version_number == number
        # It comes, and is seen until the next one has come.
        assert 2 * seconds(sent, newest, MBIT_20) < 2.6
        assert sent.form.gaussians > 180_000, "the most important ones"


def test_a_quick_line_gets_everything_at_once() -> None:
    plan = ScenePlan()
    first = plan.next_pass(MILLION, 1e9)
    assert first == ScenePass(1, PassForm(1_000_000, True, True))
    assert plan.next_pass(MILLION, 1e9) is None


def test_a_line_of_an_unknown_pace_begins_small() -> None:
    first = ScenePlan().next_pass(MILLION, ScenePace().rate)
    assert first is not None
    assert pass_bytes(first.form, 15) < 1.2e6


def test_a_hopeless_line_still_gets_a_part() -> None:
    first = ScenePlan().next_pass(MILLION, 10.0)
    assert first is not None
    assert first.form.gaussians >= 1_000_000 * LEAST_SHARE - 1


def test_more_than_the_page_holds_is_the_most_important_part() -> None:
    plan = ScenePlan(most_gaussians=2_000_000)
    huge = version(1, 20_000_000)
    first = plan.next_pass(huge, 1e10)
    assert first is not None
    assert first.form == PassForm(2_000_000, True, True)
    assert plan.next_pass(huge, 1e10) is None


def test_a_scene_that_shrinks_to_nothing_and_grows_again() -> None:
    plan = ScenePlan()
    for number, gaussians in enumerate([20_000_000, 0, 20_000_000, 1, 5000], 1):
        sent = plan.next_pass(version(number, gaussians, 0), MBIT_20)
        assert sent is not None
        assert sent.version_number == number
        assert not sent.refines
        assert 0 <= sent.form.gaussians <= gaussians


def test_a_pass_that_was_not_sent_is_planned_again() -> None:
    plan = ScenePlan()
    first = plan.next_pass(MILLION, 1e9)
    plan.undo()
    assert plan.next_pass(MILLION, 1e9) == first


def test_the_rate_is_that_of_the_answers() -> None:
    pace = ScenePace()
    for number in range(1, 40):
        pace.sent(number, 50_000, number * 0.02)
        pace.note_taken(number, number * 0.02 + 0.02)
    assert 2e6 < pace.rate < 3e6


def test_a_far_page_still_fills_its_line() -> None:
    """Its latency is allowed for, so that the rate does not decay."""
    pace = ScenePace()
    number = 0
    arrivals: list[tuple[float, int]] = []
    free_at = 0.0
    for tick in range(2000):
        now = tick * 0.01
        while arrivals and arrivals[0][0] <= now:
            pace.note_taken(arrivals.pop(0)[1], now)
        while pace.may_send:
            number += 1
            pace.sent(number, 48_000, now)
            free_at = max(free_at, now) + 48_000 / 2e6
            arrivals.append((free_at + 0.6, number))
    assert 1.5e6 < pace.rate < 2.5e6
    assert pace.in_flight < 3e6


def test_a_page_that_lies_has_taken_no_more_than_was_sent() -> None:
    pace = ScenePace()
    pace.sent(1, 80_000, 0.0)
    pace.note_taken(0xFFFFFFFF, 0.01)
    pace.note_taken(0xFFFFFFFF, 0.02)
    pace.note_taken(0, 0.03)
    assert pace.in_flight == 0
