"""Check the words of the three packages: first lines of docstrings, and words that hide the subject.

    python tools/words.py

The two limits only fall. A first line is a verb or a noun of the domain with its subject named.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPENINGS = re.compile(r'^\s*"""(Who|What|Whether|Where|That|How|Of)\b', re.MULTILINE)
MOST_OPENINGS = 53
HIDING = re.compile(r"\b(somebody|nobody|whoever|anybody|guests?)\b", re.IGNORECASE)
MOST_HIDING = 10


def main() -> int:
    openings = []
    hiding = []
    for folder in ("splatview", "ipc", "viewer_app"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                place = f"{path.relative_to(ROOT)}:{number}: {line.strip()[:90]}"
                openings += [place] * bool(OPENINGS.search(line))
                hiding += [place] * bool(HIDING.search(line))
    for what, found, most in (
        (
            "docstrings open with Who, What, Whether, Where, That, How or Of",
            openings,
            MOST_OPENINGS,
        ),
        ("uses of somebody, nobody, whoever, anybody or guest", hiding, MOST_HIDING),
    ):
        print(f"{len(found)} {what}; at most {most}")
        if len(found) > most:
            print(*found, sep="\n")
    return int(len(openings) > MOST_OPENINGS or len(hiding) > MOST_HIDING)


if __name__ == "__main__":
    sys.exit(main())
