"""Follow one call through the product: print its function calls, their files, and how many there are.

    python tools/trace.py                       # one publish of an image, and one of Gaussians
    python tools/trace.py --viewer              # the same while a viewer reads the stream
    python tools/trace.py --summary             # files and counts only
    python tools/trace.py --setup FILE 'STATEMENT'

The last form follows any statement. FILE is executed before it and makes the names that
it uses, for example a viewer of `tests/support` and a function that drags its camera, as
in `tools/trace_drag.py`:

    python tools/trace.py --setup tools/trace_drag.py 'drag()'

Only functions of the three packages are listed, on the thread that executes the
statement; what Python and other libraries do between them is left out. The statement
is executed a few times beforehand: what the first call makes is not part of the path.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tuple(
    f"{ROOT / folder}{os.sep}" for folder in ("splatview", "ipc", "viewer_app")
)
WARM_UP_CALLS = 3

_PUBLISH_SETUP = """
import torch, splatview
image = torch.zeros(1080, 1920, 3, dtype=torch.uint8)
scene = {
    "means": torch.zeros(1000, 3), "quats": torch.ones(1000, 4),
    "scales": torch.zeros(1000, 3), "opacities": torch.zeros(1000),
    "sh0": torch.zeros(1000, 1, 3), "shN": torch.zeros(1000, 15, 3),
}
"""
PUBLISHED = {
    "an image": "splatview.publish(image, 'frame')",
    "Gaussians": "splatview.publish(scene, 'scene')",
}
_VIEWER = """
import time
from splatview_ipc.subscriber.subscriber import Subscriber
subscriber = Subscriber()
while True:
    subscriber.poll()
    for stream in subscriber.streams:
        stream.open()
        frame = stream.read()
        if frame is not None:
            print(stream.name, flush=True)
    time.sleep(1 / 60)
"""


@dataclass(slots=True)
class TracedCall:
    """One call of a function of the product."""

    depth: int
    function: str
    path: str
    line: int


class Tracer:
    """The calls of product functions on this thread, while `follow` runs."""

    def __init__(self) -> None:
        self.calls: list[TracedCall] = []
        self._depth = 0

    def follow(self, statement: Callable[[], object]) -> None:
        """Execute a statement and note the calls that it makes."""
        sys.setprofile(self._on_event)
        try:
            statement()
        finally:
            sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, argument: Any) -> None:
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGES):
            return
        if event == "call":
            relative = str(Path(path).relative_to(ROOT))
            call = TracedCall(
                self._depth, frame.f_code.co_qualname, relative, frame.f_lineno
            )
            self.calls.append(call)
            self._depth += 1
        elif event == "return":
            self._depth -= 1


def print_calls(title: str, calls: list[TracedCall], is_summary: bool) -> None:
    """Print the tree of calls, or the calls by file, and how many there are."""
    per_file = Counter(call.path for call in calls)
    print(f"{title}: {len(calls)} calls in {len(per_file)} files")
    if is_summary:
        for path, count in per_file.most_common():
            print(f"  {count:3}  {path}")
    else:
        for call in calls:
            name = "  " * call.depth + call.function
            print(f"  {name:62} {call.path}:{call.line}")
    print()


def trace(statement: str, names: dict[str, Any], warm_up: int) -> list[TracedCall]:
    """Return the calls of one execution of a statement, after some of them."""
    code = compile(statement, "<statement>", "exec")

    def execute() -> None:
        exec(code, names)

    for _ in range(warm_up):
        execute()
    tracer = Tracer()
    tracer.follow(execute)
    return tracer.calls


def trace_publish(with_viewer: bool, is_summary: bool) -> None:
    """Print the calls of one publish of an image and of one of Gaussians."""
    names: dict[str, Any] = {}
    exec(_PUBLISH_SETUP, names)
    for title, statement in PUBLISHED.items():
        exec(statement, names)
        viewer = None
        if with_viewer:
            viewer = _start_viewer()
        try:
            calls = trace(statement, names, WARM_UP_CALLS)
        finally:
            if viewer is not None:
                viewer.kill()
                viewer.wait()
        suffix = " with a viewer" if with_viewer else ""
        print_calls(f"publish of {title}{suffix}", calls, is_summary)
        names["splatview"].close()


def _start_viewer() -> subprocess.Popen[str]:
    """Start a program that reads every stream; return once it has read one."""
    viewer = subprocess.Popen(
        [sys.executable, "-c", _VIEWER], stdout=subprocess.PIPE, text=True
    )
    assert viewer.stdout is not None
    viewer.stdout.readline()
    return viewer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("statement", nargs="?", help="followed in place of publish")
    parser.add_argument("--setup", metavar="FILE", help="executed before STATEMENT")
    parser.add_argument("--viewer", action="store_true", help="a viewer reads along")
    parser.add_argument("--summary", action="store_true", help="counts by file only")
    parser.add_argument(
        "--warm-up",
        type=int,
        default=WARM_UP_CALLS,
        metavar="N",
        help="executions of STATEMENT before the one that is followed",
    )
    options = parser.parse_args()
    # Programs of the tests are importable from set-up files.
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
    with tempfile.TemporaryDirectory(prefix="splatview-trace-") as folder:
        os.environ["SPLATVIEW_RUNTIME_DIR"] = folder
        if options.statement is None:
            trace_publish(options.viewer, options.summary)
            return
        names: dict[str, Any] = {"__name__": "__main__"}
        if options.setup is not None:
            setup = Path(options.setup)
            exec(compile(setup.read_text(), str(setup), "exec"), names)
        calls = trace(options.statement, names, options.warm_up)
        print_calls(options.statement, calls, options.summary)


if __name__ == "__main__":
    main()
