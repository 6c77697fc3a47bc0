"""Check that a release has the same version everywhere, and print its notes.

    python tools/release.py v0.3.0 > notes.md

`VERSION`, the newest heading of CHANGELOG.md and CITATION.cff must all have the version
of the tag. The notes are that version's section of CHANGELOG.md.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADING = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", re.MULTILINE)
"""The heading of a version in CHANGELOG.md, with its date unless it is unreleased."""
_SOURCES = {
    "ipc/splatview_ipc/control/limits.py": r'^VERSION = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
    "CHANGELOG.md": HEADING.pattern,
}
"""Files that name the version, and the line that does."""


def main(arguments: list[str]) -> int:
    """Print the notes of a release, or the files that contradict its tag.

    Returns:
        The exit status.
    """
    if len(arguments) != 1:
        print("usage: python tools/release.py TAG, such as v0.3.0", file=sys.stderr)
        return 2
    (tag,) = arguments
    errors = contradictions(tag)
    if errors:
        print("\n".join(errors), file=sys.stderr)
        return 1
    print(release_notes((ROOT / "CHANGELOG.md").read_text()))
    return 0


def named_versions() -> dict[str, str]:
    """Return the version that each file names, CHANGELOG.md in its newest heading."""
    versions = {}
    for name, pattern in _SOURCES.items():
        match = re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)
        versions[name] = match[1] if match else "no version"
    return versions


def contradictions(tag: str) -> list[str]:
    """Return a line for each file whose version is not that of a tag."""
    errors = []
    for name, version in named_versions().items():
        if tag != f"v{version}":
            errors.append(f"{name} has {version}, the tag is {tag}")
    return errors


def release_notes(changelog: str) -> str:
    """Return the newest version's section of a changelog, without its heading."""
    _, _, _, section, *_ = HEADING.split(changelog)
    return section.strip()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
