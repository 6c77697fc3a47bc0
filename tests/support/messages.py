"""What the command line says of arguments that cannot be used, command by command, in this process.

`python tests/support/messages.py` writes tests/cli/messages.json anew. Texts of usage, which tyro writes, are left out.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from unittest import mock

TESTS = Path(__file__).resolve().parents[1]
MESSAGES = TESTS / "cli" / "messages.json"
POINTS = ("ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\nproperty float z\n"
          "end_header\n0 0 0\n")
COMMANDS = """
serv
serve --offscreen missing.ply
serve --web missing.ply
serve --web missing.ply empty
serve --offscreen junk.ply
serve --offscreen points.ply
serve --offscreen .
serve --window --offscreen
serve --size wide
serve --offscreen --out a.gif
serve --max-fps 0
serve --nonsense
SPLATVIEW_RUNTIME_DIR=/proc/nowhere serve --offscreen
shot
shot out.png
shot out.png missing.ply
shot out.png junk.ply
shot out.png text.txt
shot no/such/folder/out.png good.png
shot out.gif --run abc
shot out good.png
shot out.JPG scene.ply --background transparent
shot out.png --run abc
shot out.png --stream a/b
shot out.png good.png --stream render
shot out.png good.png --size 0x0
shot out.png good.png --background 1,2
shot out.png good.png --background 0,-1,0
shot out.png good.png --background 0,nan,0
shot out.png good.png --camera '{"position": [0, 0, -4], "look_at": [0, 0, 0]}'
shot out.png scene.ply --camera '{"position": [0, 0]}'
video out.mp4 scene.ply --fps 0
video out.mp4 scene.ply --background transparent
video out.gif scene.ply
video out scene.ply --stream a
video out good.png
video none/out.mp4 scene.ply
memory missing.pickle
memory junk.ply --offscreen
memory good.png --png a.gif
memory junk.ply --sql 'SELECT 1'
status --run nonsense
status --nonsense
SPLATVIEW_RUNTIME_DIR=junk.ply status
camera nosuch.mp4
camera gopher://a
camera test --size 12
camera test --fps 0
camera test --patience 0
camera test --max-fps -1
camera test --name a/b
camera test --once
camera test --window --web
camera test --no-viewer --out a.png
camera test --out no/such/folder/a.png
camera test --out a.gif
camera test --host 0.0.0.0 --window
camera test --threshold 0.5
camera test --every 3
camera test --detect people --every 0
camera test --detect people --nms 2
camera test --detect nosuch.onnx
camera test --detect cats
camera test --detect people --labels nosuch.txt
demo --steps 0
demo --window --offscreen
demo --web --offscreen
demo --port -1
demo --port 65536
demo --out absent/a.png
demo --out a.gif
demo --picture-every 0
demo --data absent
demo --save absent/a.ply
"""
"""One a line, with what is set in the environment before it."""


def fill(folder: Path) -> None:
    """Write the files that the commands name."""
    import numpy as np
    from PIL import Image

    from support.scene_files import ply_columns, truth, write_ply

    Image.fromarray(np.full((8, 8, 3), 200, np.uint8)).save(folder / "good.png")
    (folder / "junk.ply").write_text("hello")
    (folder / "empty").mkdir()
    (folder / "text.txt").write_text("no scene")
    (folder / "points.ply").write_text(POINTS)
    write_ply(folder / "scene.ply", ply_columns(truth(20)))


def words(line: str) -> list[str]:
    """The arguments of a line of COMMANDS."""
    return shlex.split(line)


def run(args: list[str]) -> tuple[int, str]:
    """Run a command in this process. The exit status, and what it said on stderr."""
    err = io.StringIO()
    usage = False
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        try:
            if args[0] in ("serve", "shot", "video", "memory"):
                from splatview_viewer.__main__ import main
            else:
                from splatview.cli.main import main
            code = main(args)
        except SystemExit as e:
            code, usage = int(e.code or 0), True
    return code, "(usage)" if usage else err.getvalue().rstrip("\n")


def said() -> dict[str, str]:
    """Run all commands in a folder of their own: what each said. AssertionError unless each ends with status 2."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        fill(Path(folder))
        before = set(os.listdir())
        for line in COMMANDS.strip().splitlines():
            args = words(line)
            variables = [args.pop(0)] if "=" in args[0] else []
            with mock.patch.dict(os.environ, [variable.split("=", 1) for variable in variables]):
                code, text = run(args)
            assert code == 2 and "Traceback" not in text, f"{line}: {code}, {text}"
            found[line] = text.replace(folder, "FOLDER")
        assert set(os.listdir()) == before, "nothing is written"
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPLATVIEW_RUNTIME_DIR"] = folder
        MESSAGES.write_text(json.dumps(said(), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]
    main()
