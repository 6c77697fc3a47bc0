"""Signals that end programs: at any moment, without a word, and nothing is left."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.programs import environment
from support.repetitions import exhaustive
from support.wait import PATIENCE
from support.web_clients import Page

import splatview
from splatview.ipc.runs import list_runs
from splatview.ipc.viewers import viewers

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.programs import Programs

PRESS = """
import os, signal, sys
from importlib.abc import MetaPathFinder
class Press(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {name!r} and {where!r} in " ".join(sys.orig_argv):
            sys.meta_path.remove(self)
            if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            os.write(int(os.environ["PRESSED"]), b"x")
            os.kill(os.getpid(), signal.SIGINT)
        return None
sys.meta_path.insert(0, Press())
"""
"""A `sitecustomize`: Ctrl-C is pressed when a module begins to be imported, in the program whose command line has
certain words."""
MOMENTS = [
    ("splatview.commands.status", "status"), exhaustive("tyro", "status"), ("msgspec", "status"),
    exhaustive("zmq", "status"), exhaustive("splatview.commands.doctor", "doctor"), exhaustive("torch", "doctor"),
    exhaustive("numpy", "doctor"), ("torch._C", "doctor"), ("splatview.commands.camera", "camera test --no-viewer"),
    exhaustive("tyro", "camera test --no-viewer"), ("splatview.demo.command", "demo"), exhaustive("tyro", "demo"),
    exhaustive("splatview.viewer_app.errors", "serve --offscreen"),
    ("splatview.viewer_app.commands", "serve --offscreen"), exhaustive("tyro", "serve --offscreen"),
    exhaustive("numpy", "serve --offscreen"), ("moderngl", "serve --offscreen"),
    exhaustive("splatview.viewer_app.app", "serve --offscreen"), exhaustive("zmq", "serve --offscreen"),
    exhaustive("imgui_bundle", "serve --offscreen"), exhaustive("aiohttp", "serve --web"),
    ("splatview.viewer_app.commands", "shot x.png"), exhaustive("numpy", "shot x.png"),
    exhaustive("splatview.viewer_app.video", "video x.mp4"),
    ("splatview.viewer_app.memory_command", "memory x --sql FROM"),
]


def pressed(name: str, where: str, command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python with `command`; Ctrl-C is pressed when `name` is imported."""
    (folder / "sitecustomize.py").write_text(PRESS.format(name=name, where=where))
    read, write = os.pipe()
    try:
        env = environment(PRESSED=str(write))
        env["PYTHONPATH"] = os.pathsep.join([str(folder), env["PYTHONPATH"]])
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=env, pass_fds=[write],
                              stdin=subprocess.DEVNULL, cwd=folder, timeout=PATIENCE, check=False)
    finally:
        os.close(write)
        count = os.read(read, 10)
        os.close(read)
    assert count == b"x", f"{name} is not imported: {done}"
    return done


@pytest.mark.parametrize(("name", "command"), MOMENTS)
def test_ctrl_c_during_imports_prints_nothing(name: str, command: str, tmp_path: Path, runtime_dir: Path) -> None:
    done = pressed(name, command.split()[0], ["-m", "splatview", *command.split()], tmp_path)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr and "Interrupt" not in done.stderr
    assert not done.stderr.replace("splatview: take a picture at any time with: splatview shot picture.png\n", "")
    assert command == "doctor" or not done.stdout
    assert not runtime_dir.exists() or not list(runtime_dir.iterdir())


@pytest.mark.parametrize(("name", "command"), [
    exhaustive("splatview.viewer_app.grab", "-m splatview.viewer_app grab"),
    ("moderngl", "-m splatview.viewer_app grab"),
    ("splatview.viewer_app.window_program", "-m splatview.viewer_app window {}"),
    exhaustive("moderngl", "-m splatview.viewer_app window {}"),
    ("splatview.camera.capture", "-m splatview.camera capture {}"),
    ("msgspec", "-m splatview.camera infer {}"), ("tyro", "-m splatview.demo.trainer --steps 1"),
])
def test_ctrl_c_during_imports_of_a_child_program_prints_nothing(name: str, command: str, tmp_path: Path) -> None:
    done = pressed(name, command.split()[2], command.split(), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_whose_exception_python_ignores_ends_the_program(number: signal.Signals, programs: Programs) -> None:
    """The exception is ignored in a `__del__`. The signal is sent again while the hook still runs, as on a busy
    machine, and then in another `__del__`."""
    program = programs.code("""
import os, signal, sys, time
from splatview.ipc import entry
class Interrupted:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))
        sum(range(1000))
class Slow:
    def __del__(self):
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            pass
def program():
    entry.unwind()
    start = signal.setitimer
    def start_slowly(*timer):
        signal.setitimer = start
        start(*timer)
        time.sleep(0.1)
    signal.setitimer = start_slowly
    Interrupted()
    assert signal.setitimer is start
    Slow()
    time.sleep(60)
sys.exit(entry.run(program))
""", str(int(number)))
    assert program.communicate(timeout=PATIENCE) == ("", "")
    assert program.returncode == 128 + number


def test_exception_in_del_is_still_printed(programs: Programs) -> None:
    program = programs.code("""
import sys
from splatview.ipc import entry
class Fails:
    def __del__(self):
        raise ValueError("in __del__")
def program():
    entry.unwind()
    Fails()
sys.exit(entry.run(program))
""")
    _, errors = program.communicate(timeout=PATIENCE)
    assert "Exception ignored in" in errors and "ValueError: in __del__" in errors
    assert program.returncode == 0


def test_ctrl_c_that_came_before_a_program_was_replaced_is_taken_by_the_next(programs: Programs) -> None:
    """Between the two, Python itself would tell of it."""
    process = programs.python("-c", """
import os, signal, sys
from splatview.ipc.entry import hold_interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)
hold_interrupt()
os.kill(os.getpid(), signal.SIGINT)
os.execv(sys.executable, [sys.executable, "-m", "splatview.viewer_app", "serve", "--offscreen"])
""")
    said, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said, errors) == (130, "", "")


# -- the end of a terminal -----------------------------------------------------------------------------------------


def upload(port: int) -> Page:
    """A page that has sent a file to a viewer; it stays connected."""
    page = Page(port).connect()
    welcome = page.greet()
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    client.request("POST", "/upload?name=scene.ply", b"content", {
        "Origin": f"http://127.0.0.1:{port}", "X-Splatview-Page": welcome.key})
    assert client.getresponse().status == 200
    client.close()
    return page


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    folder = tmp_path / "kept"
    folder.mkdir()
    return folder


def serving(programs: Programs, kept: Path, wait_until: Callable[..., Any], *before: str) -> subprocess.Popen[str]:
    process = programs.python(*(before or ("-m", "splatview")), "serve", "--web", "--port", "0", DISPLAY="",
                               WAYLAND_DISPLAY="", TMPDIR=str(kept))
    wait_until(lambda: process.poll() is not None or [v for v in viewers() if v.pid == process.pid])
    assert process.poll() is None, process.communicate()
    return process


@pytest.mark.parametrize("number", [signal.SIGHUP, exhaustive(signal.SIGTERM), exhaustive(signal.SIGINT)])
def test_a_signal_ends_serve_and_nothing_is_left(number: int, programs: Programs, kept: Path, runtime_dir: Path,
                                                 wait_until: Callable[..., Any]) -> None:
    process = serving(programs, kept, wait_until)
    page = upload(viewers()[0].port)
    try:
        assert list(kept.glob("splatview-files-*/*/scene.ply"))
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        page.end()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert list(kept.glob("*splatview-*")) == [] and list(runtime_dir.iterdir()) == []


@pytest.mark.exhaustive
def test_nohup_keeps_serve_alive(programs: Programs, kept: Path, wait_until: Callable[..., Any]) -> None:
    process = serving(programs, kept, wait_until, "-c", """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "splatview", *sys.argv[1:]])
""")
    process.send_signal(signal.SIGHUP)
    page = upload(viewers()[0].port)  # it answers after the signal
    page.end()
    assert process.poll() is None
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


@pytest.mark.exhaustive  # quick: what dead programs have left
def test_what_a_killed_viewer_has_left_goes_with_the_next(programs: Programs, kept: Path, runtime_dir: Path,
                                                          wait_until: Callable[..., Any]) -> None:
    process = serving(programs, kept, wait_until)
    page = upload(viewers()[0].port)
    process.kill()
    process.communicate()
    page.end()
    assert len(list(kept.glob("splatview-files-*"))) == 1 and len(list(runtime_dir.glob("viewer-*.json"))) == 1
    serving(programs, kept, wait_until)
    wait_until(lambda: not list(kept.glob("splatview-files-*")), what="files are removed without a page")
    assert len(list(runtime_dir.glob("viewer-*.json"))) == 1


@pytest.mark.parametrize("number", [signal.SIGHUP, exhaustive(signal.SIGTERM)])
def test_a_signal_ends_the_program_that_grabs_and_its_run(number: int, programs: Programs, runtime_dir: Path,
                                                          wait_until: Callable[..., Any]) -> None:
    process = programs.python("-m", "splatview.viewer_app", "grab")
    wait_until(lambda: process.poll() is not None or (runtime_dir.exists() and list_runs(runtime_dir)))
    assert process.stdout is not None
    assert process.stdout.readline(), "it is ready"
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")
    assert list(runtime_dir.iterdir()) == []


@pytest.mark.exhaustive  # quick: the same for `serve`
@pytest.mark.parametrize("command", [["camera", "test", "--no-viewer", "--size", "64x48"],
                                     exhaustive(["demo", "--offscreen", "--device", "cpu"])])
def test_nohup_keeps_programs_with_children_alive(command: list[str], programs: Programs, runtime_dir: Path,
                                                  wait_until: Callable[..., Any]) -> None:
    process = programs.python("-c", """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "splatview", *sys.argv[1:]])
""", *command)
    wait_until(lambda: process.poll() is not None or (runtime_dir.exists() and list_runs(runtime_dir)))
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    status = Path(f"/proc/{process.pid}/status").read_text()
    ignored = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn")), 16)
    assert ignored & 1 << (signal.SIGHUP - 1)
    assert process.poll() is None
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, 128 + signal.SIGTERM)


def test_a_signal_while_a_viewer_begins_leaves_nothing(programs: Programs, runtime_dir: Path) -> None:
    """After its announcement, before its loop: it is handed to the loop."""
    process = programs.python("-c", """
import os, signal, sys
from splatview.ipc import entry
from splatview.viewer_app import __main__ as program
from splatview.viewer_app.web import guests
before = guests.Browsers.__init__
def begun(self, *args, **kwargs):
    before(self, *args, **kwargs)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(os.getpid(), number)
guests.Browsers.__init__ = begun
sys.argv[1:] = ["serve", "--web", "--port", "0"]
sys.exit(entry.run(lambda: program.main(sys.argv[1:])))
""", DISPLAY="", WAYLAND_DISPLAY="")
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors and list(runtime_dir.iterdir()) == []


# -- what is left in the runtime folder ----------------------------------------------------------------------------

LEFT = """
import os, torch, splatview
from splatview.ipc.viewers import announce
splatview.publish(torch.zeros(4, 4))
announce("http://127.0.0.1:7010/", host="127.0.0.1", port=7010)
os._exit(0)
"""


@pytest.mark.parametrize("who", ["status", exhaustive("status of another run"), exhaustive("shot"), "publish", "frames",
                                 exhaustive("doctor")])
def test_what_dead_programs_have_left_goes_with_the_next_that_looks(who: str, programs: Programs, tmp_path: Path,
                                                                    runtime_dir: Path) -> None:
    programs.code(LEFT).communicate(timeout=PATIENCE)
    assert len(list(runtime_dir.iterdir())) == 2
    if who == "publish":
        import torch

        splatview.publish(torch.zeros(4, 4))
        splatview.close()
    elif who == "frames":
        with splatview.frames("image") as frames, pytest.raises(TimeoutError):
            frames.latest(0.01)
    else:
        args = {"status": ["status"], "status of another run": ["status", "--run", "other"], "doctor": ["doctor"],
                "shot": ["shot", str(tmp_path / "x.png")]}[who]
        programs.splatview(*args).communicate(timeout=PATIENCE)
    assert list(runtime_dir.iterdir()) == []
