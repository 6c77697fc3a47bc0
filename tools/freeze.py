"""Write the frozen behaviour of the viewer anew: `python tools/freeze.py [ARGUMENTS OF PYTEST]`, such as `-k page`.

Look at every picture that changed before it is committed: `git status tests/soak/frozen/references`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    command = [sys.executable, "-m", "pytest", "-q", "tests/soak/frozen", *sys.argv[1:]]
    sys.exit(subprocess.run(command, cwd=ROOT, env={**os.environ, "SPLATVIEW_FREEZE": "1"}, check=False).returncode)
