"""The beginning and the end of a program: its options, the signals that end it, its exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

from splatview_ipc.system.child_program import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType
    from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a program to end: Ctrl-C, `kill`, and the end of the terminal or the ssh session."""


def run(program: Callable[[], int | None]) -> int:
    """Run the main function of this process in its main thread; return the exit status.

    SIGTERM and SIGHUP raise SystemExit in it, unless a loop takes them over with `ending`. The status is 128 + the
    signal's number then, also for Ctrl-C and for output that a pipe no longer takes; neither prints a traceback.
    """
    end_with_parent()
    for descriptor in range(
        3
    ):  # what is opened next would get the number of a closed one, and others' output
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    install_handler(lambda number, frame: sys.exit(128 + number), SIGNALS[1:])
    try:
        status = program() or 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), 1
        )  # Python writes the rest of the buffer when it ends
        return 128 + signal.SIGPIPE
    return status


@contextlib.contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Call `handler` for each signal that asks to end, in the `with` alone."""
    before = install_handler(handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def ignore_signals() -> None:
    """Ignore the SIGNALS from now on, so that nothing interrupts the closing of what is open."""
    install_handler(lambda *_: None)


def install_handler(
    handler: Callable[[int, FrameType | None], Any],
    numbers: Sequence[signal.Signals] = SIGNALS,
) -> dict[signal.Signals, Any]:
    """Install a handler; return what was there before. A SIGHUP that is ignored, as after nohup, stays so."""
    return {
        n: signal.signal(n, handler)
        for n in numbers
        if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN
    }


def parse_options(kind: Any, prog: str, args: Sequence[str]) -> Any:
    """Return a program's options, the fields of a dataclass `kind`. Prints help, or what is wrong, and exits.

    Help is what `kind` and its fields are documented with, in the width of the terminal.
    """
    import tyro

    if "-h" in args or "--help" in args:
        import dataclasses
        import inspect
        import shutil
        import textwrap

        from docstring_parser import (
            parse_from_object,
        )  # as tyro, which would keep the ends of lines

        fields: dict[str, Any] = {
            field.name: field for field in dataclasses.fields(kind)
        }
        for text in (
            text
            for base in kind.__mro__[:-1]
            for text in parse_from_object(base).params
        ):
            fields[text.arg_name].metadata = {
                "help": " ".join((text.description or "").split())
            }
        for paragraph in inspect.cleandoc(kind.__doc__).split("\n\n"):
            print(
                textwrap.fill(
                    paragraph,
                    shutil.get_terminal_size().columns,
                    break_on_hyphens=False,
                )
                + "\n"
            )
    return tyro.cli(
        kind, prog=prog, args=args, description="", config=(tyro.conf.DisallowNone,)
    )
