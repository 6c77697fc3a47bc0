"""Start and end of a program: its options, the signals that end it, its exit status."""

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
"""Signals that ask a program to end: Ctrl-C, `kill`, and the end of the terminal or the
ssh session."""


def run(program: Callable[[], int | None], patience_s: float | None = None) -> int:
    """Run the main function of this process in its main thread; return the exit status.

    SIGTERM and SIGHUP raise SystemExit in it, unless a loop takes them over with
    `handle_signals`. The status is 128 + the signal's number then, also for Ctrl-C and
    for output that a pipe no longer takes; neither prints a traceback.

    Args:
        program: the main function.
        patience_s: as for `end_with_parent`.
    """
    end_with_parent(patience_s)
    _open_standard_streams()
    install_handler(_exit_by_signal, SIGNALS[1:])
    try:
        status = program() or 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Python writes the rest of the buffer when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE
    return status


def _exit_by_signal(signal_number: int, frame: FrameType | None) -> None:
    sys.exit(128 + signal_number)


def _open_standard_streams() -> None:
    """Open closed standard streams as /dev/null, and have the others print any text.

    What is opened next would get the number of a closed one, and the output of others.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


@contextlib.contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Call `handler` for each signal that asks to end, in the `with` alone."""
    previous_handlers = install_handler(handler)
    try:
        yield
    finally:
        for signal_number, previous in previous_handlers.items():
            signal.signal(signal_number, previous)


def ignore_signals() -> None:
    """Ignore the SIGNALS from now on, so that nothing interrupts the cleaning up."""
    install_handler(lambda *_: None)


def install_handler(
    handler: Callable[[int, FrameType | None], Any],
    signals: Sequence[signal.Signals] = SIGNALS,
) -> dict[signal.Signals, Any]:
    """Install a handler of signals; return the previous handlers by signal.

    A SIGHUP that is ignored, as after nohup, stays so.
    """
    previous_handlers = {}
    for signal_number in signals:
        is_hangup = signal_number == signal.SIGHUP
        if is_hangup and signal.getsignal(signal_number) == signal.SIG_IGN:
            continue
        previous_handlers[signal_number] = signal.signal(signal_number, handler)
    return previous_handlers


def parse_options(kind: Any, prog: str, args: Sequence[str]) -> Any:
    """Return a program's options, an instance of the dataclass `kind`.

    Prints help, or what is wrong in one line, and exits. Help is what `kind` and its
    fields are documented with, in the width of the terminal.
    """
    import io

    import tyro

    config = (tyro.conf.DisallowNone,)
    if "-h" in args or "--help" in args:
        set_help_of_fields(kind)
        _hide_empty_defaults(kind)
        _print_description(kind)
        return tyro.cli(kind, prog=prog, args=args, description="", config=config)
    tyro_text = io.StringIO()
    try:
        with contextlib.redirect_stderr(tyro_text):
            return tyro.cli(kind, prog=prog, args=args, config=config)
    except SystemExit as refusal:
        if refusal.code:
            _print_mistake(kind, prog, args, tyro_text.getvalue())
        raise


def _print_mistake(kind: Any, prog: str, args: Sequence[str], tyro_text: str) -> None:
    """Print what is wrong with arguments; for rare mistakes in the words of tyro."""
    from splatview_ipc.system.terminal import printable
    from splatview_ipc.system.usage import explain_mistake

    mistake = explain_mistake(kind, args)
    if mistake is None:
        print(tyro_text, end="", file=sys.stderr)
        return
    print(f"{prog}: {printable(mistake)} See: {prog} --help", file=sys.stderr)


def set_help_of_fields(kind: Any) -> None:
    """Give the fields of a dataclass their documentation as tyro's help.

    tyro would read it in the same way, but keep the ends of lines.
    """
    import dataclasses

    from docstring_parser import parse_from_object

    fields: dict[str, Any] = {field.name: field for field in dataclasses.fields(kind)}
    for base in kind.__mro__[:-1]:
        for text in parse_from_object(base).params:
            description = " ".join((text.description or "").split())
            fields[text.arg_name].metadata = {"help": description}


def _hide_empty_defaults(kind: Any) -> None:
    """Keep tyro from printing defaults that tell nothing, such as "(default: None)"."""
    import dataclasses
    from typing import Annotated, get_type_hints

    import tyro

    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        if field.default is None or field.default is False or field.default == ():
            hint = Annotated[hints[field.name], tyro.conf.arg(help_behavior_hint="")]
            field.type = hint  # type: ignore[assignment]
            hints[field.name] = hint
    kind.__annotations__ = hints


def _print_description(kind: Any) -> None:
    """Print the docstring of a dataclass, wrapped in the width of the terminal.

    Indented paragraphs, which are commands to type, stay as they are.
    """
    import inspect
    import shutil
    import textwrap

    width = shutil.get_terminal_size().columns
    for paragraph in inspect.cleandoc(kind.__doc__).split("\n\n"):
        if paragraph.startswith(" "):
            print(paragraph)
        else:
            print(textwrap.fill(paragraph, width, break_on_hyphens=False))
        print()
