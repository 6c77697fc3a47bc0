"""Passes that a page which draws by itself gets, on lines of all paces."""

from __future__ import annotations

from splatview_viewer.web.scene_plan import (
    LEAST_SHARE,
    PassForm,
    SceneFacts,
    ScenePass,
    ScenePlan,
    pass_bytes,
)

MBIT_20 = 2.5e6
"""Bytes a second."""
MILLION = SceneFacts(1, 1_000_000, 15)


def plan_at(rate: float) -> ScenePlan:
    plan = ScenePlan()
    plan.note_rate(int(rate), 1.0)
    return plan


def seconds(sent: ScenePass | None, facts: SceneFacts, rate: float) -> float:
    assert sent is not None
    return pass_bytes(sent.form, facts.coefficients) / rate


def test_something_is_seen_within_a_second_and_all_within_ten() -> None:
    plan = plan_at(MBIT_20)
    first = plan.next_pass(MILLION)
    whole = plan.next_pass(MILLION)
    assert seconds(first, MILLION, MBIT_20) < 0.8
    assert whole == ScenePass(1, PassForm(1_000_000))
    assert seconds(whole, MILLION, MBIT_20) < 8


def test_a_version_that_stays_becomes_exact_and_then_whole() -> None:
    plan = plan_at(MBIT_20)
    forms = []
    while (sent := plan.next_pass(MILLION)) is not None:
        forms.append((sent.form.is_exact, sent.form.has_harmonics, sent.refines))
    assert forms == [
        (False, False, False),
        (False, False, False),
        (True, False, True),
        (True, True, True),
    ]
    assert plan.next_pass(MILLION) is None


def test_the_newest_version_is_at_most_three_seconds_old() -> None:
    plan = plan_at(MBIT_20)
    plan.next_pass(MILLION)
    for number in range(2, 20):
        newest = SceneFacts(number, 1_000_000, 15)
        sent = plan.next_pass(newest)
        assert sent is not None
        assert sent.number == number
        assert seconds(sent, newest, MBIT_20) < 2.2
        assert sent.form.gaussians > 250_000, "the most important ones"


def test_a_quick_line_gets_everything_at_once() -> None:
    plan = plan_at(1e9)
    first = plan.next_pass(MILLION)
    assert first == ScenePass(1, PassForm(1_000_000, True, True))
    assert plan.next_pass(MILLION) is None


def test_a_line_of_an_unknown_pace_begins_small() -> None:
    first = ScenePlan().next_pass(MILLION)
    assert first is not None
    assert pass_bytes(first.form, 15) < 1.2e6


def test_a_hopeless_line_still_gets_a_part() -> None:
    first = plan_at(10.0).next_pass(MILLION)
    assert first is not None
    assert first.form.gaussians >= 1_000_000 * LEAST_SHARE - 1


def test_more_than_the_page_holds_is_the_most_important_part() -> None:
    plan = ScenePlan(most_gaussians=2_000_000)
    plan.note_rate(10**10, 1.0)
    huge = SceneFacts(1, 20_000_000, 15)
    first = plan.next_pass(huge)
    assert first is not None
    assert first.form == PassForm(2_000_000, True, True)
    assert plan.next_pass(huge) is None


def test_a_scene_that_shrinks_to_nothing_and_grows_again() -> None:
    plan = plan_at(MBIT_20)
    for number, gaussians in enumerate([20_000_000, 0, 20_000_000, 1, 5000], 1):
        sent = plan.next_pass(SceneFacts(number, gaussians, 0))
        assert sent is not None
        assert sent.number == number
        assert not sent.refines
        assert 0 <= sent.form.gaussians <= gaussians


def test_a_page_that_lost_all_begins_anew() -> None:
    plan = plan_at(1e9)
    first = plan.next_pass(MILLION)
    plan.forget()
    assert plan.next_pass(MILLION) == first


def test_one_slow_measurement_changes_little() -> None:
    plan = plan_at(1e7)
    plan.note_rate(1000, 1.0)
    assert plan.rate > 5e6
