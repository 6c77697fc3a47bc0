"""The three lists of kinds name the same kinds, and each kind has its files."""

from __future__ import annotations

from pathlib import Path

import splatview.adapters
import splatview_ipc.kinds
from splatview import adapters
from splatview_ipc.kinds import CHECKS
from splatview_viewer import kinds

FILES_ONLY = {"snapshot", "ranks"}
"""Kinds that no process publishes: they are read from files."""
WITHOUT_ADAPTER = {"picture", "controls"}
"""Kinds of which `publish` takes no values."""
UNSHOWN = {"tensors"}
"""Kinds that viewers never open."""


def folder_of(package_file: str | None) -> Path:
    assert package_file is not None
    return Path(package_file).parent


def test_lists_of_kinds_agree() -> None:
    names = [kind.name for kind in kinds.KINDS]
    assert len(set(names)) == len(names)
    assert set(names) == CHECKS.keys() - UNSHOWN | FILES_ONLY
    assert adapters.ADAPTERS.keys() == CHECKS.keys() - WITHOUT_ADAPTER


def test_each_kind_has_its_rules() -> None:
    folder = folder_of(splatview_ipc.kinds.__file__)
    with_check = set()
    for path in folder.glob("*.py"):
        if path.stem != "__init__" and "\ndef check(" in path.read_text():
            with_check.add(path.stem)
    assert with_check == CHECKS.keys()


def test_each_kind_has_an_adapter() -> None:
    folder = folder_of(splatview.adapters.__file__)
    modules = {path.stem for path in folder.glob("*.py")}
    assert modules >= set(adapters.ADAPTERS.values())


def test_each_kind_that_users_see_has_a_folder() -> None:
    folder = folder_of(kinds.__file__)
    folders = {path.parent.name for path in folder.glob("*/__init__.py")}
    seen = {kind.name for kind in kinds.KINDS if kind.has_view or kind.of_run}
    assert folders == seen


def test_exactly_one_kind_is_recorded() -> None:
    """Check the kind of which a recording is that is opened without saying so."""
    assert [kind.name for kind in kinds.KINDS if kind.recorded] == [
        kinds.recorded_kind()
    ]
