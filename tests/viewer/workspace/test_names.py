"""The entry that a name stands for, or that is preferred without a name."""

from __future__ import annotations

import pytest

from splatview_viewer.core.settings import Entry
from splatview_viewer.workspace.names import preferred_entry

IMAGE = Entry("", "", "render", "image")
NEWER_IMAGE = Entry("", "", "other", "image")
SCENE = Entry("", "", "splats", "gaussians")
CURVES = Entry("", "", "log", "scalars")
FILE = Entry("", "", "a.ply", "gaussians", is_file=True)
ENDED = Entry("", "", "splats", "gaussians", alive=False)


@pytest.mark.parametrize(
    ("entries", "name", "expected"),
    [
        ([], None, None),
        ([CURVES, IMAGE], None, 1),
        ([SCENE, IMAGE], None, 0),
        ([IMAGE, NEWER_IMAGE], None, 1),
        ([FILE, CURVES], None, 1),
        ([ENDED, FILE], None, 1),
        ([SCENE, IMAGE], "render", 1),
        ([ENDED, SCENE, IMAGE], "splats", 1),
        ([SCENE], "another", None),
    ],
)
def test_preferred_entry_is_chosen_by_name_kind_and_age(
    entries: list[Entry], name: str | None, expected: int | None
) -> None:
    entry = preferred_entry(entries, name)
    if expected is None:
        assert entry is None
    else:
        assert entry is entries[expected]
