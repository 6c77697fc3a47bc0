"""How a program begins and ends: its options, its standard streams, the signals that end it, its exit status.

`run` surrounds the main function of every program. Signals have three phases in it. While modules are imported there is
nothing to clean up, and Ctrl-C ends the program at once and without a word: an exception could be met by any line of
any library. `unwind` begins the second phase, in which signals raise. Programs with a loop of their own take them over
with `ending`, after `defer` where something has been opened that the loop closes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys

from splatview_ipc.system.child_program import end_with_parent
from splatview_ipc.system.terminal import Output, open_if_closed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType
    from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a program to end: Ctrl-C, `kill`, and the end of the terminal or the ssh session."""
_CANNOT = 2
"""The exit status of what cannot be done; a line on stderr tells why."""
_AGAIN = 0.01
"""Delay before a signal is sent again, seconds."""
_active = False
_deferred: list[int] = []


class EndedBySignalError(BaseException):
    """SIGTERM or SIGHUP ends the program. Not an Exception: no library is to catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(program: Callable[[], int | None], name: str = "splatview") -> int:
    """Run the main function of this process, and return the exit status.

    A fault of standard output, or a working folder that no longer exists, ends the program with one line that begins
    with `name`, and status 2; a broken pipe without any, and 128 + SIGPIPE unless `program` returns in spite of it. The
    status is 128 + the signal's number after a signal. Standard error never fails. Call it once, in the main thread.
    """
    global _active
    end_with_parent()
    _while_importing()
    output = _take_streams()
    _active = True
    unexpected: BaseException | None = None
    try:
        code = _status(program)
        if isinstance(output.fault, BrokenPipeError):  # it knew, and went on
            _discard_output()
            return code
    except BaseException as e:
        code, unexpected = _CANNOT, e
    with contextlib.suppress(OSError):
        output.flush()
    if output.fault is not None:  # whatever else it led to
        return _lost(output.fault, code, name)
    if isinstance(unexpected, FileNotFoundError) and unexpected.filename is None and not _has_folder():
        _explain(name, "the working folder no longer exists; change to another one")
    elif unexpected is not None:
        raise unexpected
    return code


def _status(program: Callable[[], int | None]) -> int:
    try:
        return program() or 0
    except SystemExit as e:
        if e.code is None or isinstance(e.code, int):
            return e.code or 0
        print(e.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except EndedBySignalError as e:
        return 128 + e.number


def _take_streams() -> Output:
    """Replace the standard streams; return standard output."""
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):  # standard output fails, as for others
        open_if_closed(number, mode)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.flush()
    output = sys.stdout = Output(1, sys.stdout, tame=False, silent=False)
    sys.stderr = Output(2, sys.stderr, tame=True, silent=True)
    return output


def _lost(fault: OSError, code: int, name: str) -> int:
    """Tell why standard output cannot be written; the exit status."""
    _discard_output()
    if fault.errno == errno.EPIPE:
        return 128 + signal.SIGPIPE
    why = "it is closed" if fault.errno == errno.EBADF else fault.strerror or fault
    _explain(name, f"standard output cannot be written: {why}")
    return code or _CANNOT


def _discard_output() -> None:
    """Let what is left in the buffer of standard output go where it does no harm when Python ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _explain(name: str, what: str) -> None:
    print(f"{name}: {what}", file=sys.stderr, flush=True)


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def options(kind: Any, prog: str, args: Sequence[str]) -> Any:
    """Return a program's options, the fields of a dataclass `kind`. Prints help, or what is wrong, and exits.

    Help is what `kind` and its fields are documented with, in the width of the terminal.
    """
    import tyro

    if "-h" in args or "--help" in args:
        import dataclasses
        import inspect
        import shutil
        import textwrap

        from docstring_parser import parse_from_object  # as tyro, which would keep the ends of lines

        fields: dict[str, Any] = {field.name: field for field in dataclasses.fields(kind)}
        for text in (text for base in kind.__mro__[:-1] for text in parse_from_object(base).params):
            fields[text.arg_name].metadata = {"help": " ".join((text.description or "").split())}
        for paragraph in inspect.cleandoc(kind.__doc__).split("\n\n"):
            print(textwrap.fill(paragraph, shutil.get_terminal_size().columns, break_on_hyphens=False) + "\n")
    return tyro.cli(kind, prog=prog, args=args, description="", config=(tyro.conf.DisallowNone,))


# -- signals -------------------------------------------------------------------------------------------------------


def hold_interrupt() -> None:
    """Keep Ctrl-C for the program that this process becomes with `os.exec*`: until `run`, Python would tell of it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


def _while_importing() -> None:
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _quit)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def quit_at_once(status: int = 0) -> None:
    """End at once and with this status on SIGTERM and SIGHUP too, until something is opened that must be closed."""
    handle(lambda *_: os._exit(status), (signal.SIGTERM, signal.SIGHUP))


def unwind() -> None:
    """Have signals raise from now on, KeyboardInterrupt or EndedBySignalError, so that what is open is closed.

    Without effect in a process that has not called `run`.
    """
    if _active:
        if signal.getsignal(signal.SIGINT) == _quit:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        handle(_raise, (signal.SIGTERM, signal.SIGHUP))
        sys.unraisablehook = _send_again


def defer() -> None:
    """Keep signals for the loop that is about to begin: `ending` hands them on. As `unwind`, only after `run`."""
    if _active:
        handle(_remember)


@contextlib.contextmanager
def ending(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Call `handler` for each signal that asks to end, and for those that were deferred.

    A SIGHUP that is ignored, as after nohup, stays so.
    """
    before = handle(handler)
    while _deferred:
        handler(_deferred.pop(0), None)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, _quit if previous is _remember else previous)


def handle(handler: Callable[[int, FrameType | None], Any],
            numbers: tuple[signal.Signals, ...] = SIGNALS) -> dict[signal.Signals, Any]:
    """Install a handler, except for an ignored SIGHUP; return what was there before."""
    return {n: signal.signal(n, handler) for n in numbers
            if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN}


def ignore(numbers: tuple[signal.Signals, ...] = SIGNALS) -> None:
    """Ignore signals from now on, so that nothing interrupts the closing of what is open."""
    handle(lambda *_: None, numbers)


def _quit(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    ignore((signal.SIGTERM, signal.SIGHUP))
    raise EndedBySignalError(number)


def _send_again(unraisable: Any) -> None:
    """Send a signal again after Python ignored the exception that its handler raised, as it does in `__del__` and in
    callbacks of weakref, ctypes and the garbage collector: the program would continue."""
    error = unraisable.exc_value
    if not isinstance(error, (KeyboardInterrupt, EndedBySignalError)):
        sys.__unraisablehook__(unraisable)
        return
    number = error.number if isinstance(error, EndedBySignalError) else signal.SIGINT

    def send(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is _send_again.__code__:  # still in it: this exception would be ignored too
                signal.setitimer(signal.ITIMER_REAL, _AGAIN)
                return
            frame = frame.f_back
        if number != signal.SIGINT:
            handle(_raise, (signal.SIGTERM, signal.SIGHUP))
        signal.raise_signal(number)

    # After the code that ignores exceptions has ended, or once more where it has not.
    signal.signal(signal.SIGALRM, send)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN)


def _remember(number: int, frame: FrameType | None) -> None:
    _deferred.append(number)
