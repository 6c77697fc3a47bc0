"""The program that draws for `splatview.grab`: `python -m splatview_viewer grab [GPU]`, started by it alone.

It reads requests on its standard input and answers on its standard output (`render_requests`), one at a time, and ends
with its input. It sleeps in between, and releases streams that were not requested lately.
"""

from __future__ import annotations

import os
import select
import sys
import traceback
from typing import TYPE_CHECKING, Literal

from splatview_ipc.control import render_requests
from splatview_ipc.control.errors import IpcError
from splatview_ipc.system import entry
from splatview_viewer.core.errors import CameraError, LateError, NotFoundError, ViewerError

if TYPE_CHECKING:
    from splatview_viewer.app.grabber import Grabber

_REASON = 4000
"""Characters of a reason, of which a renderer's may be long."""
_KINDS: dict[type[Exception], Literal["lookup", "timeout", "value", "fault"]] = {
    NotFoundError: "lookup", LateError: "timeout", CameraError: "value", ValueError: "value", Exception: "fault"}
_REST_MS = 250
"""Between two looks for runs and for streams that are not in use."""


def main(args: list[str]) -> int:
    """The exit status. `args`: the UUID of the GPU that is best drawn on, or nothing."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    from splatview_viewer.app.grabber import Grabber

    with entry.ending(_end):
        try:
            grabber = Grabber(args[0] if args else None)
        except (ViewerError, IpcError) as e:
            _answer(answers, render_requests.RenderError("fault", str(e)[:_REASON]))
            return 2
        try:
            _answer(answers, render_requests.Ready(grabber.run_id))
            _serve(grabber, 0, answers)
        except BrokenPipeError:
            pass  # the other program has ended
        finally:
            try:
                entry.ignore()  # SIGTERM may follow the end of the input at once
            finally:
                grabber.close()
    return 0


def _end(*_: object) -> None:
    entry.ignore()
    sys.exit(0)


def _serve(grabber: Grabber, requests: int, answers: int) -> None:
    poller = select.poll()
    poller.register(requests, select.POLLIN)
    read = b""
    while True:
        grabber.rest()
        if not poller.poll(_REST_MS):
            continue
        part = os.read(requests, 1 << 20)
        if not part or len(read) + len(part) > render_requests.MAX_LINE:
            return
        *lines, read = (read + part).split(b"\n")
        for line in lines:
            _answer(answers, _fulfil(grabber, line))


def _fulfil(grabber: Grabber, line: bytes) -> render_requests.Answer:
    try:
        request = render_requests.decode_request(line)
    except (*render_requests.DecodeError, ValueError) as e:
        sys.exit(f"splatview grab: a request that makes no sense: {e}")
    try:
        return grabber.draw(request)
    except (ViewerError, IpcError, ValueError) as e:
        error = next(error for error in _KINDS if isinstance(e, error))
        return render_requests.RenderError(_KINDS[error], str(e)[:_REASON])
    except Exception as e:
        traceback.print_exc()
        return render_requests.RenderError("fault", f"{type(e).__name__}: {e}"[:_REASON])


def _answer(answers: int, answer: render_requests.Answer) -> None:
    line = render_requests.encode(answer) + b"\n"
    while line:
        line = line[os.write(answers, line) :]
