"""The line that installs an extra, for each way in which splatview was installed."""

from __future__ import annotations

import importlib.metadata
import json
import shlex

import pytest

from splatview_ipc.system.optional_packages import install_line

CHECKOUT = "file:///home/ann/my%20splatview"
WHEEL = "file:///tmp/splatview-0.3.0-py3-none-any.whl"
REPOSITORY = "https://example.org/splatview.git"


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, ["splatview[memory]"]),
        (
            {"url": CHECKOUT, "dir_info": {"editable": True}},
            ["-e", "/home/ann/my splatview[memory]"],
        ),
        ({"url": CHECKOUT, "dir_info": {}}, ["/home/ann/my splatview[memory]"]),
        (
            {"url": WHEEL, "archive_info": {}},
            [f"splatview[memory] @ {WHEEL}"],
        ),
        (
            {"url": REPOSITORY, "vcs_info": {"vcs": "git", "commit_id": "4213baa5"}},
            [f"splatview[memory] @ git+{REPOSITORY}@4213baa5"],
        ),
    ],
    ids=["index", "editable checkout", "checkout", "wheel", "repository"],
)
def test_line_installs_from_where_splatview_came_from(
    origin: dict[str, object] | None,
    requirement: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return json.dumps(origin) if origin else None

    def installed(name: str) -> Installed:
        assert name == "splatview"
        return Installed()

    monkeypatch.setattr(importlib.metadata, "distribution", installed)
    assert shlex.split(install_line("memory")) == ["pip", "install", *requirement]


def test_line_names_the_index_where_nothing_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A source tree on PYTHONPATH has no metadata."""

    def not_installed(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", not_installed)
    assert install_line("video") == "pip install 'splatview[video]'"
    assert install_line() == "pip install splatview"
