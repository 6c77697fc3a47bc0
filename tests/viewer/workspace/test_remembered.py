"""Settings of files and streams that are remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.scene_files import truth, write_splat
from support.viewer import Viewer


def test_bookmarks_belong_to_a_file_and_not_to_its_name(
    viewer: Viewer, tmp_path: Path
) -> None:
    files = [tmp_path / folder / "point_cloud.splat" for folder in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        write_splat(file, truth(40))
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a")

    def bookmarks(file: Path) -> Any:
        """Show the file, and return the bookmarks of its view."""
        viewer.catalogue.open_file(file, viewer.user.layout.active)

        def is_shown() -> bool:
            view = viewer.user.view
            if viewer.state.selected != str(file) or view is None:
                return False
            return not view.empty

        viewer.until(is_shown)
        view: Any = viewer.user.view
        return view.view.tools["navigate"].bookmarks

    bookmarks(files[0]).add(3)
    assert list(bookmarks(files[1]).by_digit) == []
    assert list(bookmarks(files[0]).by_digit) == [3]
    # The same file under another path is the same file.
    assert list(bookmarks(link / "point_cloud.splat").by_digit) == [3]
