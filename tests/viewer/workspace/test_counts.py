"""The number of Gaussians of a run, recorded while it is in the list."""

from __future__ import annotations

from support.frames import cloud
from support.viewer import Viewer
from support.wait import clock, wait_until

import splatview
from splatview_viewer.kinds.scalars.curves import Curve


def counted(viewer: Viewer) -> Curve | None:
    """Return the curve of the only scene."""
    stream = viewer.catalogue.slots[viewer.state.entries[0].key].source.stream
    return viewer.catalogue.counts.of_run(stream)


def until_version(viewer: Viewer, version: int) -> Curve:
    """Take turns until the curve has a version; return the curve."""
    curves: list[Curve] = []

    def has_version() -> bool:
        curve = counted(viewer)
        if curve is None or curve["step"][-1] != version:
            return False
        curves.append(curve)
        return True

    viewer.until_listed()
    viewer.until(has_version)
    return curves[-1]


def publish(viewer: Viewer, count: int) -> None:
    """Publish a scene, and wait until it is counted or would have been."""
    splatview.publish(cloud(count), "scene")
    viewer.until_listed()
    started_at = clock()

    def has_passed() -> bool:
        viewer.step()
        return clock() > started_at + 0.3

    wait_until(has_passed)
    # Turns that began after the time has passed: a turn may be slow.
    viewer.step()
    viewer.step()


def test_curve_of_gaussians_goes_on_while_their_number_stays(viewer: Viewer) -> None:
    for count in (50, 60, 60, 60):
        publish(viewer, count)
    curve = until_version(viewer, 4)
    assert curve["value"][0] == 50
    assert (curve["value"][1:] == 60).all()


def test_last_version_of_a_run_that_ended_is_counted(viewer: Viewer) -> None:
    publish(viewer, 50)
    publish(viewer, 60)
    splatview.publish(cloud(70), "scene")
    splatview.close()
    viewer.until_run_ended()

    def is_counted() -> bool:
        curve = counted(viewer)
        return curve is not None and curve.newest_value == 70

    viewer.until(is_counted)


def test_run_is_told_quiet_and_ended_by_what_it_published(viewer: Viewer) -> None:
    publish(viewer, 50)
    publish(viewer, 60)
    (entry,) = viewer.state.entries
    assert entry.run_name
    assert entry.published_at >= entry.started_at > 0
    assert entry.usual_gap_s == 0 or 0.1 < entry.usual_gap_s < 10
    viewer.until(lambda: entry.count == 60)
    splatview.close()
    viewer.until_run_ended()
    assert entry.ended_at >= entry.published_at
