"""Collect what the command line prints of arguments that cannot be used.

`python tests/support/messages.py` writes tests/cli/messages.json again: its keys are the
commands, each with what is set in the environment before it. Behind FULL_DISK= no file
that a command writes finds space.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import re
import shlex
import sys
import tempfile
from pathlib import Path
from unittest import mock

TESTS = Path(__file__).resolve().parents[1]
MESSAGES = TESTS / "cli" / "messages.json"
POINTS = (
    "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float "
    "y\nproperty float z\n"
    "end_header\n0 0 0\n"
)


def fill(folder: Path) -> None:
    """Write the files that the commands name."""
    import numpy as np
    from PIL import Image

    from support.memory_data import snapshot, training
    from support.scene_files import ply_columns, truth, write_ply

    Image.fromarray(np.full((8, 8, 3), 200, np.uint8)).save(folder / "good.png")
    (folder / "junk.ply").write_text("hello")
    (folder / "empty").mkdir()
    (folder / "text.txt").write_text("no scene")
    (folder / "points.ply").write_text(POINTS)
    write_ply(folder / "scene.ply", ply_columns(truth(20)))
    trace = pickle.dumps(snapshot(training().events))
    (folder / "snapshots").mkdir()
    (folder / "snapshots" / "memory.pickle").write_bytes(trace)


def run(args: list[str]) -> tuple[int, str]:
    """Run a command in this process; return its exit status and error output."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        try:
            if args[0] in ("serve", "shot", "video", "export", "memory"):
                from splatview_viewer.__main__ import main
            else:
                from splatview.cli.main import main
            code = main(args)
        except SystemExit as e:
            code = int(e.code or 0)
    return code, err.getvalue().rstrip("\n")


def collect_messages() -> dict[str, str]:
    """Run all commands in a folder of their own, and return what each printed.

    AssertionError unless each ends with status 2.
    """
    from support.full_disk import full_disk

    messages = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        fill(Path(folder))
        files_before = set(os.listdir())
        for line in json.loads(MESSAGES.read_text()):
            args = shlex.split(line)
            variables = {}
            if "=" in args[0]:
                name, value = args.pop(0).split("=", 1)
                variables[name] = value
            disk: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
            if "FULL_DISK" in variables:
                disk = full_disk()
            with mock.patch.dict(os.environ, variables), disk:
                code, text = run(args)
            assert code == 2, f"{line}: {code}, {text}"
            assert "Traceback" not in text, f"{line}: {code}, {text}"
            # How many pictures were made until then depends on the machine.
            text = re.sub(r"splatview: \d+ of \d+ pictures.*\n", "", text)
            text = text.replace(os.environ["SPLATVIEW_RUNTIME_DIR"], "RUNTIME_DIR")
            messages[line] = text.replace(folder, "FOLDER")
        assert set(os.listdir()) == files_before, "nothing is written"
    return messages


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPLATVIEW_RUNTIME_DIR"] = folder
        text = json.dumps(collect_messages(), indent=2, ensure_ascii=False)
        MESSAGES.write_text(text + "\n")


if __name__ == "__main__":
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]
    main()
