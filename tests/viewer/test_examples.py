"""Examples run beside a viewer until it shows all that they publish.

tests/soak runs them to their end, and those with other people's packages.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import resource_tracker

import pytest
from support.example_runs import run_until_shown
from support.viewer import Viewer

from splatview_ipc.control.registry import Announcement

QUICK = [
    "gaussian_training",
    "image",
    "memory",
    "notebook",
    "render_deformation",
    "scalars",
    "second_process",
    "sharded",
    "streams",
    "training_cameras",
]


@pytest.fixture(scope="module", autouse=True)
def _started_tracker() -> None:
    """Start the program that multiprocessing leaves running once it is used."""
    resource_tracker.ensure_running()


@pytest.mark.parametrize("name", QUICK)
def test_viewer_shows_every_stream_of_an_example(
    name: str,
    open_viewer: Callable[..., Viewer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPLATVIEW_STRICT", "1")
    # The notebook finds a viewer, and starts none.
    with Announcement("http://127.0.0.1:7007/", host="127.0.0.1", port=7007):
        run_until_shown(name, open_viewer((900, 640)), monkeypatch)
