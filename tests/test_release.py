"""A release is made of versions, bounds and workflows that fit together."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools import release

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_setup_refuses_an_old_python_with_its_version_and_the_next_step(
    tmp_path: Path,
) -> None:
    # No other interpreter is in the path, or it would be taken instead.
    (tmp_path / "dirname").symlink_to(shutil.which("dirname") or "")
    old = tmp_path / "python3.8"
    old.write_text(
        f"#!{shutil.which('bash')}\n"
        'if [[ $1 == --version ]]; then echo "Python 3.8.10"; fi\n'
        "[[ $1 == --version ]]\n"
    )
    old.chmod(0o755)
    setup = subprocess.run(
        [shutil.which("bash") or "bash", ROOT / ".ci" / "setup"],
        env={"PATH": str(tmp_path), "PYTHON": "python3.8"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert setup.returncode == 1
    assert setup.stderr == (
        "Python 3.8.10 does not suit: splatview needs Python 3.11 to 3.14.\n"
        "Install one and name it: make PYTHON=/path/to/python3.11 ...\n"
    )


def test_files_name_one_version() -> None:
    """Compare the version that is built; above it only "Unreleased" may stand."""
    versions = release.named_versions()
    if versions["CHANGELOG.md"] == "Unreleased":
        changelog = (ROOT / "CHANGELOG.md").read_text()
        versions["CHANGELOG.md"] = release.HEADING.findall(changelog)[1][0]
    assert len(set(versions.values())) == 1, versions


def test_tag_of_another_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["v999.0"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.endswith("the tag is v999.0") for line in lines)


def test_notes_are_the_section_of_the_newest_version() -> None:
    changelog = (
        "# Changelog\n\n## [2.0] - 2026-01-02\n\n- new\n\n## [1.0] - 2026-01-01\n"
    )
    assert release.release_notes(changelog) == "- new"


def test_sections_of_the_changelog_can_be_read_at_once() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    _, *fields = release.HEADING.split(changelog)
    for name, section in zip(fields[::3], fields[2::3], strict=True):
        assert len(section.splitlines()) < 100, name


def test_lowest_versions_are_those_that_are_promised(project: dict[str, Any]) -> None:
    """Compare what continuous integration installs with each lower bound."""
    requirements = list(project["dependencies"])
    for extra, packages in project["optional-dependencies"].items():
        if extra not in ("dev", "docs"):
            requirements += packages
    promised = {}
    for requirement in map(Requirement, requirements):
        for bound in requirement.specifier:
            if bound.operator == ">=":
                name = canonicalize_name(requirement.name)
                promised[name] = Version(bound.version)
    installed = {}
    for line in (ROOT / ".ci" / "lowest.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, _, version = line.partition("==")
            installed[name] = Version(version)
    assert installed == promised


@pytest.mark.parametrize("path", WORKFLOWS, ids=[path.stem for path in WORKFLOWS])
def test_workflows_are_pinned_and_may_do_little(path: Path) -> None:
    """Check that actions are named by commit and permissions by the job with them."""
    text = path.read_text()
    for action in re.findall(r"uses: (.*)", text):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", action)
    assert "\npermissions:\n  contents: read\njobs:\n" in text
    granted = re.findall(r"^ +([\w-]+): write$", text, re.MULTILINE)
    expected = ["id-token", "contents"] if path.stem == "release" else []
    assert granted == expected


def test_addresses_lead_to_one_repository(project: dict[str, Any]) -> None:
    source = project["urls"]["Source"]
    for name in (
        "pyproject.toml",
        "CITATION.cff",
        ".github/ISSUE_TEMPLATE/config.yml",
    ):
        text = (ROOT / name).read_text()
        owners = re.findall(r"github(?:usercontent)?\.com/([\w-]+/splatview)\b", text)
        assert owners, name
        assert {f"https://github.com/{owner}" for owner in owners} == {source}, name
