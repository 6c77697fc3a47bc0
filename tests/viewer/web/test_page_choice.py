"""The choice of a page who draws, in browsers that cannot, and on lines that are slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from support.page_choice import PageChoice

if TYPE_CHECKING:
    from support.pages import Open, Viewer

HAS_GPU = """() => {
  const real = WebGL2RenderingContext.prototype.getParameter;
  WebGL2RenderingContext.prototype.getParameter = function (name) {
    const value = real.call(this, name);
    return typeof value === "string" ? "GPU" : value;
  };
}"""
"""Has the browser say that it draws with a GPU."""


@pytest.fixture
def choice(viewer: Viewer, open_page: Open) -> PageChoice:
    return PageChoice(open_page(viewer.url, expected="CONTEXT_LOST|sort_worker|Worker"))


class Lack(NamedTuple):
    """One thing that a browser may lack, with the reason that its user gets."""

    script: str
    """Takes it away."""
    reason: str
    is_possible: bool
    """The user may ask for it nevertheless."""


LACKS = (
    Lack("HTMLCanvasElement.prototype.getContext = () => null", "no WebGL2", False),
    Lack(
        "WebGL2RenderingContext.prototype.getExtension = () => null",
        "EXT_color_buffer_float",
        False,
    ),
    Lack("Worker = undefined", "cannot draw", True),
    Lack(
        "Worker = class extends Worker { constructor() { super('/missing.js'); } }",
        "no worker",
        True,
    ),
    Lack(
        "Worker = class { constructor() { throw new Error('Refused by a policy'); } }",
        "Refused by a policy",
        True,
    ),
    Lack(
        "WebGL2RenderingContext.prototype.getProgramParameter = () => false",
        "refuses",
        True,
    ),
)


def test_without_what_it_needs_pictures_come(choice: PageChoice) -> None:
    for lack in LACKS:
        choice.run(f"() => {{ {lack.script}; }}")
        choice.begin("here")
        # What the viewer sends is late where the page has said already that it cannot.
        choice.run("hand()")
        report = choice.until("!draws().at(-1).on")
        assert lack.reason in report.reason
        assert report.reason[0].isupper(), lack
        assert report.reason.endswith("."), lack
        assert report.reason in report.explanation
        assert report.words == "Drawn there", lack
        assert (report.max_gaussians > 0) == lack.is_possible, lack
        assert choice.run("el.drawhere.disabled") == (not lack.is_possible), lack
        assert choice.run("choice.panes.all.length") == 0, lack
        choice.run("giveBack()")


def test_a_worker_that_never_answers_is_given_up(choice: PageChoice) -> None:
    choice.run("""() => {
      Worker = class { postMessage() {} terminate() {} };
      setTimeout = (call, ms) => { window.late = {call, ms}; return 1; };
    }""")
    choice.begin("here")
    choice.run("hand()")
    header = {"pass": 1, "version": 1, "count": 1024, "total": 1024, "form": "quick"}
    choice.run("beginPass", {**header, "bytes": 16480})
    choice.run("takeBlocks(1, 'quick', 0, 1)")
    choice.run("() => { endPass(1); }")
    assert choice.told().on
    assert choice.run("late.ms") >= 10_000
    choice.run("late.call()")
    report = choice.told()
    assert not report.on
    assert "does not answer" in report.reason
    choice.until("told.at(-1).t === 'taken' || told.at(-2).t === 'taken'")


def test_software_draws_only_if_the_user_asks(choice: PageChoice) -> None:
    report = choice.begin()
    assert not report.on
    assert "no GPU" in report.reason
    assert "no GPU" in report.explanation
    choice.run("el.drawhere.click()")
    report = choice.told()
    assert report.on
    assert not report.reason
    # A reload has it again, and so does the address of the page.
    assert choice.run("stored.draw") == "here"
    assert choice.begin("here").on
    choice.run("choice.choose('there')")
    assert not choice.begin("there").on
    # Of a scene that is too large, less and less is asked for, until it does.
    choice.begin("here")
    choice.run("hand()")
    most = choice.told().max_gaussians
    header = {"pass": 1, "version": 1, "count": 1 << 30, "total": 1 << 30}
    choice.run("beginPass", {**header, "form": "quick", "bytes": 1 << 34})
    assert choice.told().on
    assert choice.told().max_gaussians == most // 2
    for _ in range(8):
        choice.run("beginPass", {**header, "form": "quick", "bytes": 1 << 34})
    report = choice.told()
    assert not report.on
    assert "more than this browser's textures hold" in report.reason
    # The user may try again.
    choice.run("choice.choose('here')")
    assert choice.told().on
    assert choice.told().max_gaussians == most


def test_a_gpu_that_is_lost_again_and_again_is_left_alone(choice: PageChoice) -> None:
    choice.run(HAS_GPU)
    most = choice.begin("here").max_gaussians
    choice.run("hand()")
    for _ in range(3):
        choice.run("loseGpu()")
        report = choice.told()
        assert not report.on
        assert "has taken the GPU away" in report.reason
        choice.run("restoreGpu()")
        assert choice.told().on
        choice.run("hand()")
    assert choice.told().max_gaussians == most
    # A version that was on its way may have been too large.
    header = {"pass": 1, "version": 1, "count": 5000, "total": 5000, "form": "quick"}
    choice.run("beginPass", {**header, "bytes": 82400})
    choice.run("loseGpu()")
    report = choice.told()
    assert report.max_gaussians == most // 2
    choice.until("choice.panes.all.length === 0")
    assert not choice.told().on
    # The user's word ends the matter, either way.
    choice.run("choice.choose('there')")
    assert not choice.told().reason
    choice.run("choice.choose('here')")
    assert choice.told().on
    assert choice.told().max_gaussians == most


def test_slow_lines_are_noticed_once(choice: PageChoice) -> None:
    choice.run(HAS_GPU)
    assert not choice.begin().on
    # A few late pictures are no slow line, and small ones tell nothing of its rate.
    choice.run("() => { for (let i = 0; i < 3; ++i) choice.noteLatency(5000); }")
    choice.run("() => { for (let i = 0; i < 30; ++i) choice.noteLatency(60); }")
    choice.run("() => { for (let i = 0; i < 3; ++i) choice.noteLatency(5000); }")
    choice.run("() => { for (let i = 0; i < 30; ++i) choice.noteRate(1000, 1000); }")
    choice.run("() => { for (let i = 0; i < 30; ++i) choice.noteRate(200000, 20); }")
    assert not choice.told().on
    choice.run("() => { for (let i = 0; i < 7; ++i) choice.noteLatency(400); }")
    assert choice.told().on
    assert choice.run("said.length") == 1
    # It stays so, on this line and after a reload, and is not said again.
    choice.run("() => { for (let i = 0; i < 30; ++i) choice.noteLatency(5); }")
    assert choice.told().on
    assert choice.run("draws().length") == 2
    assert choice.begin("slow").on
    assert choice.run("said.length") == 0
    # The user's choice counts more, now and later.
    choice.run("el.drawhere.click()")
    choice.run("() => { for (let i = 0; i < 30; ++i) choice.noteLatency(400); }")
    assert not choice.told().on
    choice.begin("there")
    choice.run("() => { for (let i = 0; i < 30; ++i) choice.noteRate(200000, 900); }")
    assert not choice.told().on
    # So slow pictures are noticed too; but what is no scene has nothing to draw.
    choice.begin()
    choice.run("choice.takeCorner(null)")
    choice.run("() => { for (let i = 0; i < 7; ++i) choice.noteRate(200000, 900); }")
    assert not choice.told().on
    assert choice.run("el.drawcorner.hidden")
    choice.run("choice.takeCorner({x: 0, y: 0, width: 90, height: 80})")
    choice.run("choice.noteRate(200000, 900)")
    assert choice.told().on


def test_the_corner_says_what_is_drawn(choice: PageChoice) -> None:
    choice.begin("here")
    choice.run("hand()")
    report = choice.told()
    assert report.words == "Drawn there"
    assert "on its way" in report.explanation
    header = {"pass": 1, "version": 7, "count": 2048, "total": 5000, "sh_stored": 3}
    choice.run("beginPass", {**header, "form": "quick", "bytes": 2 * 16480})
    choice.run("takeBlocks(1, 'quick', 0, 1)")
    assert choice.run("el.draws.classList.contains('coming')")
    assert choice.run("el.draws.style.getPropertyValue('--share')") == "0.5"
    choice.run("takeBlocks(1, 'quick', 1, 1)")
    choice.run("endPass(1)")
    report = choice.until("el.draws.textContent.startsWith('Drawn here')")
    assert report.words == "Drawn here · coarse · 2,048 of 5,000"
    assert "The most important 2,048 of 5,000 Gaussians, quick." in report.explanation
    assert not choice.run("el.draws.classList.contains('coming')")
    header |= {"pass": 2, "count": 5000}
    choice.run("beginPass", {**header, "form": "quick", "bytes": 5 * 16480})
    choice.run("takeBlocks(2, 'quick', 0, 5)")
    choice.run("endPass(2)")
    assert choice.told().words == "Drawn here · quick"
    header |= {"pass": 3, "refines": True, "form": "exact"}
    choice.run("beginPass", {**header, "bytes": 5 * 32864})
    choice.run("takeBlocks(3, 'exact', 0, 5)")
    choice.run("endPass(3)")
    assert choice.told().words == "Drawn here · exact"
    header |= {"pass": 4, "has_harmonics": True}
    choice.run("beginPass", {**header, "bytes": 5 * 16384})
    choice.run("takeBlocks(4, 'harmonics', 0, 5)")
    choice.run("endPass(4)")
    report = choice.told()
    assert report.words == "Drawn here"
    assert "All 5,000 Gaussians, exact, with harmonics." in report.explanation
    # What the viewer has to draw meanwhile says why, in both places.
    choice.run("hand('Two scenes are compared in one picture.')")
    assert "Two scenes are compared" in choice.told().explanation
    assert choice.told().words == "Drawn there"
    choice.run("hand()")
    choice.until("el.draws.textContent === 'Drawn here'")
    choice.run("hand('More than 20,000 Gaussians are marked.', 2)")
    report = choice.told()
    assert report.words == "Drawn here"
    assert "another picture comes from there. More than" in report.explanation


def test_what_comes_late_or_ends_early_leaves_nothing_behind(
    choice: PageChoice,
) -> None:
    choice.begin("here")
    choice.run("hand()")
    # The layout of a pane may come after what is drawn in it, behind older ones.
    choice.run("choice.takeHanded({...handed, pane: 3}, 8)")
    first_box = [1, [0, 0, 45, 80]]
    older_layout = {"number": 8, "size": [90, 80], "panes": [first_box]}
    choice.run("choice.takeLayout", older_layout)
    assert choice.run("choice.panes.all.map((pane) => pane.number)") == [1, 3]
    newer_layout = {**older_layout, "number": 9}
    newer_layout["panes"] = [first_box, [3, [45, 0, 45, 80]]]
    choice.run("choice.takeLayout", newer_layout)
    assert choice.run("choice.panes.all[1].box[0]") == 45
    choice.run("choice.takeLayout", {**older_layout, "number": 10})
    assert choice.run("choice.panes.all.map((pane) => pane.number)") == [1]
    # A pane may close before a layout has it.
    choice.run("choice.takeHanded({...handed, pane: 4}, 10)")
    choice.run("choice.takeLayout", {**older_layout, "number": 11})
    assert choice.run("choice.panes.all.length") == 1
    header = {"pass": 1, "version": 7, "count": 2048, "total": 2048, "form": "quick"}
    choice.run("beginPass", {**header, "bytes": 2 * 16480})
    choice.run("takeBlocks(1, 'quick', 0, 1)")
    choice.run("endPass(1, false)")
    assert not choice.run("el.draws.classList.contains('coming')")
    assert choice.told().words == "Drawn there"
    # An end that was not answered yet is none of the next connection's.
    choice.run("beginPass", {**header, "pass": 2, "bytes": 2 * 16480})
    choice.run("takeBlocks(2, 'quick', 0, 2)")
    choice.run("told.length = 0")
    choice.run("() => { const end = endPass(2); choice.connected(); return end; }")
    assert choice.run("told.map(({t}) => t)") == ["draws"]
    # The viewer takes the pane back while a hand is about to move it.
    choice.run("hand('Two scenes are compared in one picture.')")
    choice.run("choice.panes.beginMove(choice.panes.all[0])")
    choice.run("choice.panes.endMove(choice.panes.all[0])")
    assert choice.run("told.map(({t}) => t)") == ["draws"]
