"""`python -m splatview.camera capture | infer SETTINGS`: the programs that `splatview camera` starts.

SETTINGS is JSON: `splatview.camera.capture.CaptureSettings`, `splatview.camera.inference.InferenceSettings`.
"""

from __future__ import annotations

import sys


def main(args: list[str] | None = None) -> int:
    """The exit status; 2 for what cannot be done, and stderr says why."""
    if args is None:
        from splatview_ipc.system.entry import run

        return run(lambda: main(sys.argv[1:]))
    if len(args) == 2 and args[0] == "capture":
        from splatview.camera.capture import main as program
    elif len(args) == 2 and args[0] == "infer":
        from splatview.camera.inference import main as program
    else:
        print("usage: python -m splatview.camera capture | infer SETTINGS", file=sys.stderr)
        return 2
    return program(args[1])


if __name__ == "__main__":
    sys.exit(main())
