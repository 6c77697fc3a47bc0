"""Standard streams that are closed, full or broken, and folders that are gone: one line says so, or none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.programs import environment
from support.repetitions import exhaustive, with_exhaustive
from support.scene_files import ply_columns, truth, write_ply
from support.wait import PATIENCE

import splatview
from splatview.ipc.terminal import check_text, printable, printable_lines, without_surrogates
from splatview.ipc.viewers import announce

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Programs

COMMANDS = {
    "help": ["--help"], "version": ["--version"], "status": ["status"], "status as JSON": ["status", "--json"],
    "options of serve": ["serve", "--help"], "options of doctor": ["doctor", "--help"],
    "options of demo": ["demo", "--help"], "options of camera": ["camera", "--help"], "doctor": ["doctor"],
}
HELP = "options of serve", "options of doctor", "options of demo", "options of camera"
AGAIN = "version", "status as JSON", "doctor"
"""Commands whose output goes the way of the others'."""
CLOSED = "import os, sys; os.close(int(sys.argv[1])); os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"


def ended(*args: str, closed: int = -1, **options: Any) -> subprocess.CompletedProcess[str]:
    """`splatview ARGS`, whose standard descriptor of number `closed` is closed."""
    before = ["-c", CLOSED, str(closed)] if closed >= 0 else []
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                             "env": environment(), **options}
    return subprocess.run([sys.executable, *before, "-m", "splatview", *args], text=True, errors="surrogateescape",
                          timeout=PATIENCE, check=False, **given)


def told_once(done: subprocess.CompletedProcess[str], words: str) -> None:
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("splatview: ") and words in line


@pytest.mark.parametrize("name", with_exhaustive(list(COMMANDS), *HELP, *AGAIN))
def test_output_to_a_full_disk_is_told_in_one_line(name: str) -> None:
    with open("/dev/full", "w") as full:
        told_once(ended(*COMMANDS[name], stdout=full), "standard output cannot be written: No space left on device")


@pytest.mark.parametrize("name", with_exhaustive(list(COMMANDS), *HELP, *AGAIN))
def test_output_that_is_closed_is_told_in_one_line(name: str) -> None:
    told_once(ended(*COMMANDS[name], closed=1), "standard output cannot be written: it is closed")


@pytest.mark.parametrize("name", with_exhaustive(list(COMMANDS), *HELP, *AGAIN))
def test_a_broken_pipe_ends_a_program_without_a_word(name: str) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = ended(*COMMANDS[name], stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["closed", exhaustive("full"), exhaustive("broken")])
def test_messages_that_cannot_be_written_change_nothing(how: str, tmp_path: Path) -> None:
    """Neither the exit status nor what comes on standard output."""
    for args, code in ((["status"], 0), (["nonsense"], 2), (["status", "--nonsense"], 2),
                       (["shot", str(tmp_path / "x.png")], 2)):
        if how == "closed":
            done = ended(*args, closed=2, stderr=None)
        else:
            read, write = os.pipe()
            os.close(read)
            with open("/dev/full", "w") as full:
                done = ended(*args, stderr=full if how == "full" else write)
            os.close(write)
        assert done.returncode == code, args
        assert bool(done.stdout) == (code == 0)


def test_input_that_is_closed_is_empty(tmp_path: Path) -> None:
    assert ended("status", closed=0).returncode == 0
    done = ended("memory", str(tmp_path), "--sql", "-", closed=0)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def test_a_closed_descriptor_is_no_file_of_the_program(tmp_path: Path, programs: Programs) -> None:
    """What a library prints would go into the first file or socket that is opened."""
    done = subprocess.run([sys.executable, "-c", CLOSED, "1", "-c", """
import os, sys
from splatview.ipc.entry import run
def program():
    with open(sys.argv[1], "w") as file:
        assert file.fileno() > 2
        try:
            os.write(1, b"a library's words")
        except OSError:
            pass
sys.exit(run(program))
""", str(tmp_path / "file")], capture_output=True, text=True, env=environment(), timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize("args", [["status"], exhaustive(["--version"]), exhaustive(["serve", "--help"]),
                                  ["shot", "out.png"], exhaustive(["shot", "out.png", "scene.ply"]),
                                  exhaustive(["video", "out.mp4", "scene.ply"]), exhaustive(["memory", "a.pickle"]),
                                  exhaustive(["demo", "--out", "x.png", "--steps", "0"]),
                                  exhaustive(["camera", "test", "--no-viewer", "--out", "x.png"]),
                                  exhaustive(["camera", "test", "--out", "x.png", "--offscreen"]),
                                  exhaustive(["serve", "--offscreen", "scene.ply"])])
def test_a_working_folder_that_is_gone_is_told_in_one_line(args: list[str], tmp_path: Path) -> None:
    """Programs that do not need it go on."""
    gone = tmp_path / "gone"
    gone.mkdir()
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chdir(gone)
        gone.rmdir()
        done = ended(*args)
    finally:
        os.fchdir(before)
        os.close(before)
    if done.returncode:
        *_, line = [text for text in done.stderr.splitlines() if not text.startswith("splatview: take a picture")]
        assert done.returncode == 2 and line.startswith("splatview") and _ == []
    else:
        assert args[-1] in ("status", "--version", "--help") and done.stderr == ""


def test_a_relative_output_without_a_working_folder_names_the_cause(tmp_path: Path) -> None:
    scene = tmp_path / "scene.ply"
    write_ply(scene, ply_columns(truth(20)))
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run([sys.executable, "-c", "import os, sys; os.rmdir(os.getcwd()); "
                           "os.execv(sys.executable, [sys.executable, '-m', 'splatview', *sys.argv[1:]])", "shot",
                           "x.png", str(scene)], cwd=gone, env=environment(), capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    told_once(done, "cannot write to 'x.png': its folder was removed; choose another")


# -- trainers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [exhaustive("closed"), "full", "broken"])
def test_a_trainer_that_cannot_say_anything_publishes_on(how: str, programs: Programs, tmp_path: Path) -> None:
    trainer = """
import sys, torch, splatview
from splatview import publishing
for step in range(3):
    publishing.fault(OSError(step, "a fault that is told"))
    splatview.publish(torch.zeros(4, 4), step=step)
splatview.close()
with open(sys.argv[1], "w") as file:
    file.write("published")
"""
    if how == "closed":  # what an interpreter finds closed when it begins
        process = programs.python("-c", """
import os, sys
os.close(1), os.close(2)
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
""", trainer, str(tmp_path / "done"))
    else:
        process = programs.code("""
import os, sys
read, write = os.pipe()
os.close(read)
target = os.open("/dev/full", os.O_WRONLY) if sys.argv.pop(1) == "full" else write
os.dup2(target, 1), os.dup2(target, 2)
""" + trainer, how, str(tmp_path / "done"))
    process.communicate(timeout=PATIENCE)
    assert (tmp_path / "done").read_text() == "published"


# -- text of others ------------------------------------------------------------------------------------------------


EVIL = "a\x1b[31m\n\u202e\u200b\x9b2J\x07 \u00e4\u72d0"
OBEYED = [c for c in EVIL if not c.isprintable()]


def test_printable_escapes_what_a_terminal_obeys() -> None:
    assert printable(EVIL) == "a\\x1b[31m\\n\\u202e\\u200b\\x9b2J\\x07 \u00e4\u72d0"
    assert printable("\ud800 \x00 \u3000.") == "\\ud800 \\x00  ."
    assert printable_lines("a\n\tb\x1b\u202e") == "a\n\tb\\x1b\\u202e"
    for text in ("", "plain", "\u00e4\u72d0 \U0001f98a"):
        assert printable(text) is text and printable_lines(text) == text


def test_surrogates_are_replaced_or_refused() -> None:
    assert without_surrogates("a\udcffb\ud800") == "a\ufffdb\ufffd"
    assert without_surrogates("\u00e4\U0001f98a") == "\u00e4\U0001f98a"
    check_text("\u00e4\U0001f98a", "this")
    with pytest.raises(ValueError, match=r"this is 'a\\ud800', whose character 1 is .* UTF-8"):
        check_text("a\ud800", "this")


def publish_evil(programs: Programs) -> subprocess.Popen[str]:
    """A trainer whose run, a stream of it and the values beside it have hostile names."""
    process = programs.code(f"""
import time, torch, splatview
from splatview import publishing
publishing.check_name = lambda name: None  # as a trainer that is not ours
splatview.publish(torch.zeros(4, 4), {EVIL!r})
print("ready", flush=True)
time.sleep(600)
""", SPLATVIEW_NAME=EVIL)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.exhaustive
@pytest.mark.parametrize("environment_of", [exhaustive({}), exhaustive({"PYTHONIOENCODING": "ascii"}),
                                            exhaustive({"PYTHONIOENCODING": "latin-1"}),
                                            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_status_prints_nothing_that_a_terminal_obeys(environment_of: dict[str, str], programs: Programs) -> None:
    trainer = publish_evil(programs)
    with announce("http://127.0.0.1:7013/", host="127.0.0.1", port=7013, run=EVIL):
        done = ended("status", env=environment(**environment_of))
        assert (done.returncode, done.stderr) == (0, "")
        assert not any(c in done.stdout.replace("\n", "") for c in OBEYED)
        assert len(done.stdout.splitlines()) == 3, "a name makes no line of its own"
        assert done.stdout.count("a\\x1b[31m\\n\\u202e") == 3
        (found,) = json.loads(ended("status", "--json", env=environment(**environment_of)).stdout)["runs"]
        assert found["name"] == EVIL and found["streams"][0]["name"] == EVIL and found["pid"] == trainer.pid


@pytest.mark.exhaustive  # quick: the same for `status`
def test_errors_of_a_viewer_print_nothing_that_a_terminal_obeys(programs: Programs, tmp_path: Path) -> None:
    publish_evil(programs)
    for args in (["shot", str(tmp_path / "x.png"), "--stream", "other"], ["shot", str(tmp_path / f"{EVIL[1]}" / "x")],
                 ["memory", str(tmp_path / "a\x1b[31m\udcff")], ["serve", str(tmp_path / "a\x1b\u202e.ply")],
                 ["nonsense\x1b[31m"], ["status", "--nonsense\x1b[31m"]):
        done = ended(*args)
        assert done.returncode == 2 and "Traceback" not in done.stderr
        assert not any(c in done.stderr.replace("\n", "") for c in OBEYED), args
        assert not any("\ud800" <= c <= "\udfff" for c in done.stderr), args


@pytest.mark.parametrize("name", ["a\udcffb", exhaustive("\udcff")])
def test_a_run_named_by_bytes_that_are_no_text_is_found(name: str, programs: Programs, runtime_dir: Path) -> None:
    process = programs.code("import time, torch, splatview; splatview.publish(torch.zeros(4, 4)); "
                             "print('ready', flush=True); time.sleep(600)", SPLATVIEW_NAME=name)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    (found,) = json.loads(ended("status", "--json").stdout)["runs"]
    assert (found["pid"], found["name"]) == (process.pid, name.replace("\udcff", "\ufffd"))


@pytest.mark.parametrize(("meta", "words"), [
    ({"note": "a\ud800"}, r"note is 'a\\ud800'"), exhaustive({"note": "\udcff"}, "note is"),
    exhaustive({"a b": 1}, "'a b'; legal are"), ({"n\ud800": 1}, r"'n\\ud800'; legal are"),
    exhaustive({"n" * 41: 1}, "legal are up to 40"),
])
def test_publish_refuses_metadata_that_cannot_travel(meta: dict[str, Any], words: str) -> None:
    import torch

    image = torch.zeros(4, 4)
    with pytest.raises(ValueError, match=words):
        splatview.publish(image, "first", **meta)
    splatview.publish(image, "again", note="legal \u00e4")
    with pytest.raises(ValueError, match=words):
        splatview.publish(image, "again", **meta)
    done = json.loads(ended("status", "--json").stdout)
    assert [s["name"] for s in done["runs"][0]["streams"]] == ["again"], "what was refused is not there, the rest is"


def test_run_is_not_in_the_way_of_errors_of_the_program(programs: Programs) -> None:
    process = programs.python("-c", """
import sys
from splatview.ipc.entry import run
def program():
    raise FileNotFoundError(2, "No such file or directory", "missing")
sys.exit(run(program))
""")
    said, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (1, "") and "'missing'" in errors and "Traceback" in errors
