"""The parts of all benchmarks: attempts, waiting, percentiles, tables, programs.

Programs are asked by lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Rows = list[dict[str, str]]
ROOT = Path(__file__).resolve().parents[1]


class Skipped(Exception):  # noqa: N818  (not an error: nothing can be measured here)
    """This benchmark cannot run on this machine; the text says why."""


def require_gpu() -> None:
    """Raise Skipped where torch sees no CUDA device."""
    import torch

    if not torch.cuda.is_available():
        raise Skipped("needs an NVIDIA GPU that torch can use; this machine has none")
    torch.cuda.init()


def tried(title: str, measure: Callable[[], Rows]) -> Rows:
    """Return the rows of a measurement, and print them as they come.

    When it fails, one row says how.

    What one measurement got wrong must not cost the others. A line with an entry
    "failed" makes `python -m benchmarks` end with 1, and is not saved.
    """
    try:
        rows = measure()
    except Skipped:
        raise
    except Exception as e:
        traceback.print_exc()
        rows = [
            {
                "what": title,
                "failed": f"{type(e).__name__}: {e}"[:300]
                .replace("\n", " ")
                .replace("|", "/"),
            }
        ]
    for row in rows:
        print(
            "  " + "; ".join(f"{k}: {v}" for k, v in row.items() if v),
            file=sys.stderr,
            flush=True,
        )
    return rows


def wait_until(
    awaited: str,
    condition: Callable[[], bool],
    timeout: float = 120.0,
    meanwhile: Callable[[], object] | None = None,
) -> None:
    """Wait for something, doing `meanwhile` again and again.

    Raises RuntimeError that names it after `timeout` s.
    """
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {timeout:g} s in vain: {awaited}")
        if meanwhile is not None:
            meanwhile()
        else:
            time.sleep(0.005)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def mid_and_p99(ns: Sequence[int], unit: float = 1e3) -> tuple[float, float]:
    """Return the median and 99th percentile of nanoseconds.

    In units of `unit` ns (default: microseconds).
    """
    return statistics.median(ns) / unit, percentile(ns, 0.99) / unit


def column_names(rows: Rows) -> list[str]:
    """Return the columns of rows, in the order in which they first occur."""
    return list(dict.fromkeys(key for row in rows for key in row))


def table(rows: Rows) -> str:
    """Return rows as a Markdown table."""
    columns = column_names(rows)
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += [
        "| " + " | ".join(str(row.get(c, "")) for c in columns) + " |" for row in rows
    ]
    return "\n".join(lines)


class Program:
    """`python -m MODULE ARGUMENTS` in a process of its own, as a context manager.

    It is ended on the way out.

    What it prints besides answers goes to standard error, and is kept in
    `output_lines`.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.module = module
        self.output_lines: list[str] = []
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [python, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
        )
        self.pid = self._process.pid
        self._listeners = [
            threading.Thread(target=self._listen, args=(pipe,), daemon=True)
            for pipe in (self._process.stdout, self._process.stderr)
        ]
        for listener in self._listeners:
            listener.start()

    def _listen(self, pipe: Any) -> None:
        with pipe as lines:
            for line in lines:
                if pipe is self._process.stdout and line.startswith("{"):
                    self.handle_message(json.loads(line))
                else:
                    self.output_lines.append(line.rstrip())
                    print(
                        f"  [{self.module.rpartition('.')[2]}] {line}",
                        end="",
                        file=sys.stderr,
                        flush=True,
                    )
        if pipe is self._process.stdout:
            self._answers.put({"error": "the program ended"})

    @property
    def has_ended(self) -> bool:
        """True once the program has ended."""
        return self._process.poll() is not None

    def handle_message(self, message: dict[str, Any]) -> None:
        """Handle a line of JSON from the program: an answer."""
        self._answers.put(message)

    def answer(self, timeout: float = 120.0) -> dict[str, Any]:
        """Return the program's next answer.

        Raises RuntimeError when it reports a failure, or nothing in time. Raises
        RuntimeError when it says that something failed, or nothing in time.
        """
        try:
            answer = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise RuntimeError(
                f"{self.module} said nothing within {timeout:g} s"
            ) from None
        if "error" in answer:
            raise RuntimeError(
                f"{self.module}: {answer['error']}; {' / '.join(self.output_lines[-3:])}"
            )
        return answer

    def request(
        self, do: str, *, timeout: float = 120.0, **arguments: Any
    ) -> dict[str, Any]:
        """Have it do something and wait for its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has ended: `answer` says so
        return self.answer(timeout)

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for listener in self._listeners:
            listener.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


_stdout = sys.stdout
_line = threading.Lock()


def reply(**message: Any) -> None:
    """Send an answer, in such a program."""
    with _line:
        # In one write: forked processes answer on the same pipe.
        print(json.dumps(message) + "\n", end="", file=_stdout, flush=True)


def serve_requests(handler: object) -> None:
    """Call the methods `do_...` of an object as requests ask, until stdin ends."""
    for line in sys.stdin:
        command = json.loads(line)
        try:
            reply(
                **(
                    getattr(handler, "do_" + command.pop("do"))(**command)
                    or {"done": True}
                )
            )
        except Exception as e:
            reply(error=f"{type(e).__name__}: {e}")
