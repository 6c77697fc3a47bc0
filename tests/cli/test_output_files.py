"""Output: complete or absent, under a name that held nothing or a regular file, through links, never over them."""

from __future__ import annotations

import ast
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.output_cases import COMMANDS, NUMBERED, OTHER_USER, REASONS, REPLACING, listing, make_device, make_target
from support.programs import ROOT
from support.wait import PATIENCE

from splatview.viewer_app.errors import ViewerError

if TYPE_CHECKING:
    from support.programs import Programs


@pytest.mark.parametrize("kind", REASONS)
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_special_targets_before_work(command: str, kind: str, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    target = make_target(kind, tmp_path / ("out.mp4" if command == "video OUT.mp4" else "out.png"))
    before = listing(tmp_path)
    assert COMMANDS[command](target) == 2
    told = capsys.readouterr().err
    assert "cannot write to" in told and REASONS[kind] in told, told
    assert str(tmp_path) in told and "Traceback" not in told and len(told.splitlines()) == 1
    assert listing(tmp_path) == before


@pytest.mark.parametrize("kind", REASONS)
@pytest.mark.parametrize("writer", REPLACING)
def test_writers_refuse_special_targets(writer: str, kind: str, tmp_path: Path) -> None:
    """Also without a command that looks first: what the target is may change while the content is made."""
    target = make_target(kind, tmp_path / "out.mp4")
    before = listing(tmp_path)
    with pytest.raises(Exception, match="cannot write to") as caught:
        REPLACING[writer](target)
    assert REASONS[kind] in str(caught.value)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("writer", REPLACING)
def test_writers_follow_links(writer: str, tmp_path: Path) -> None:
    old, folder = tmp_path / "old.mp4", tmp_path / "folder"
    old.write_bytes(b"old")
    folder.mkdir()
    (tmp_path / "second.mp4").symlink_to("old.mp4")
    (tmp_path / "first.mp4").symlink_to(tmp_path / "second.mp4")
    (tmp_path / "dangling.mp4").symlink_to("folder/new.mp4")
    REPLACING[writer](tmp_path / "first.mp4")
    REPLACING[writer](tmp_path / "dangling.mp4")
    assert os.readlink(tmp_path / "first.mp4") == str(tmp_path / "second.mp4")
    assert os.readlink(tmp_path / "second.mp4") == "old.mp4"
    assert os.readlink(tmp_path / "dangling.mp4") == "folder/new.mp4"
    assert old.read_bytes() not in (b"", b"old")
    assert (folder / "new.mp4").is_file()
    assert sorted(p.name for p in tmp_path.rglob("*")) == sorted(
        ["old.mp4", "second.mp4", "first.mp4", "dangling.mp4", "folder", "new.mp4"])


@pytest.mark.parametrize("writer", REPLACING)
def test_a_replaced_file_keeps_its_permissions_and_group(writer: str, tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    target.write_bytes(b"old")
    target.chmod(0o640)
    groups = [4242] if os.geteuid() == 0 else [g for g in os.getgroups() if g != os.getegid()] or [os.getegid()]
    os.chown(target, -1, groups[0])
    REPLACING[writer](target)
    info = target.stat()
    assert (stat.S_IMODE(info.st_mode), info.st_gid) == (0o640, groups[0])


@pytest.mark.parametrize(("writer", "mode"), [("a picture", 0o640), ("a film", 0o640), ("trained Gaussians", 0o640),
                                              ("what is remembered", 0o600)])
def test_a_new_file_has_the_permissions_of_the_umask(writer: str, mode: int, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        REPLACING[writer](tmp_path / "out.mp4")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.mp4").stat().st_mode) == mode


@pytest.mark.parametrize("taken", ["file", "dangling link", "fifo", "device", "folder"])
@pytest.mark.parametrize("what", NUMBERED)
def test_numbered_files_never_replace_anything(what: str, taken: str, tmp_path: Path) -> None:
    name, write = NUMBERED[what]
    for one in (tmp_path / name, tmp_path / f"{Path(name).stem}-2{Path(name).suffix}"):
        if taken == "file":
            one.write_bytes(b"kept")
        elif taken == "dangling link":
            one.symlink_to("elsewhere")
        elif taken == "device":
            make_device(one)
        else:
            make_target(taken, one)
    before = listing(tmp_path)
    path = write(tmp_path)
    assert path == tmp_path / f"{Path(name).stem}-3{Path(name).suffix}"
    assert path.is_dir() or path.stat().st_size > 0
    after = listing(tmp_path)
    assert {name: after[name] for name in before} == before
    assert {n.partition("/")[0] for n in set(after) - set(before)} == {path.name}


@pytest.mark.parametrize("what", NUMBERED)
def test_numbered_files_take_the_name_if_it_is_free(what: str, tmp_path: Path) -> None:
    name, write = NUMBERED[what]
    assert write(tmp_path) == tmp_path / name
    if what == "an answer as CSV":
        assert (tmp_path / name).read_text(encoding="utf-8") == "one,zw\u00f6lf\n1,12\n"


@pytest.mark.parametrize("kind", ["fifo", "device", "socket", "link to a device", "links in a circle",
                                  "link of another user"])
def test_films_as_folders_refuse_special_targets(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from splatview.viewer_app.__main__ import main

    target = make_target(kind, tmp_path / "film")
    before = listing(tmp_path)
    assert main(["video", str(target), "missing.ply"]) == 2
    told = capsys.readouterr().err
    assert REASONS[kind] in told and "Traceback" not in told and len(told.splitlines()) == 1, told
    assert listing(tmp_path) == before


def test_films_as_folders_follow_links_and_leave_nothing_without_pictures(tmp_path: Path) -> None:
    from splatview.viewer_app.__main__ import main

    (tmp_path / "link").symlink_to("real")
    assert main(["video", str(tmp_path / "link"), "missing.ply"]) == 2
    assert main(["video", str(tmp_path / "a" / "b"), "missing.ply"]) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["link"]
    from splatview.viewer_app.paths.writers import PngFolder

    folder = PngFolder(tmp_path / "link")
    import numpy as np

    folder.add(np.zeros((4, 4, 3), np.uint8))
    (tmp_path / "real" / "000001.png").symlink_to(tmp_path / "outside")
    with pytest.raises(ViewerError, match="it exists already"):
        folder.add(np.zeros((4, 4, 3), np.uint8))
    assert not (tmp_path / "outside").exists() and (tmp_path / "real" / "000000.png").is_file()


@pytest.mark.parametrize("kind", ["fifo", "device", "socket", "link to a device", "links in a circle",
                                  "link of another user"])
def test_recordings_refuse_special_targets(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from splatview.viewer_app.__main__ import main

    target = make_target(kind, tmp_path / "recorded")
    before = listing(tmp_path)
    assert main(["serve", "--offscreen", "--record", str(target)]) == 2
    told = capsys.readouterr().err
    assert "--record" in told and "Traceback" not in told and len(told.splitlines()) == 1, told
    assert listing(tmp_path) == before


def test_a_folder_of_another_user_in_a_shared_folder_is_used(tmp_path: Path) -> None:
    from splatview.ipc.output_file import make_output_folder

    if os.geteuid() != 0:
        pytest.skip("only root makes folders of other users")
    (tmp_path / "shared" / "theirs").mkdir(parents=True)
    (tmp_path / "shared").chmod(0o1777)
    os.chown(tmp_path / "shared" / "theirs", OTHER_USER, OTHER_USER)
    assert make_output_folder(tmp_path / "shared" / "theirs") == []


@pytest.mark.parametrize("name", ["../../escape", "a/b", "\x1b]0;owned\x07", "..", "", "\u202egnp", "\u732b" * 300,
                                  "-rf", ".hidden"])
def test_names_from_streams_stay_within_the_folder(name: str, tmp_path: Path) -> None:
    import numpy as np

    from splatview.viewer_app.pictures import output_path, save_png
    from splatview.viewer_app.recorder.files import StreamFolder

    inner = tmp_path / "inner"
    inner.mkdir()
    path = save_png(np.zeros((2, 2, 3), np.uint8), output_path(name, ".png", inner), "number")
    folder = StreamFolder(inner, name, name)
    folder.close()
    assert path.parent == inner and folder.path.parent == inner
    assert sorted(inner.iterdir()) == sorted([path, folder.path])
    assert [p.name for p in tmp_path.iterdir()] == ["inner"]
    for made in (path.name, folder.path.name):
        assert made.isprintable() and not made.startswith((".", "-"))


def test_a_link_planted_in_a_recording_is_not_written_through(tmp_path: Path) -> None:
    from splatview.viewer_app.recorder.files import INDEX, StreamFolder

    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    folder = StreamFolder(tmp_path / "kept", "run", "splats")
    (folder.path / f"{INDEX}.part").symlink_to(precious)
    folder.write_index(1.0, [])
    folder.close()
    assert precious.read_bytes() == b"precious"


# -- surroundings that refuse ----------------------------------------------------------------------------------------

AS_OTHER_USER = """
import os, sys
sys.path[:0] = sys.argv[2:]
from support.output_cases import REPLACING
for write in REPLACING.values():
    from pathlib import Path
    write(Path("warm.mp4"))  # what is imported late is imported now
    os.unlink("warm.mp4")
os.chmod(".", 0o555)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for name, write in REPLACING.items():
    try:
        write(Path("out.mp4"))
        print(name, "was written")
    except Exception as e:
        print(type(e).__name__, e)
"""


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, programs: Programs) -> None:
    process = programs.code(AS_OTHER_USER, "", str(ROOT / "tests"), str(ROOT))
    told, errors = process.communicate(timeout=PATIENCE)
    tmp_path.chmod(0o755)
    assert len(told.splitlines()) == len(REPLACING), errors
    for line in told.splitlines():
        assert "cannot write to 'out.mp4': Permission denied" in line, told
    assert list(tmp_path.iterdir()) == []


FULL = """
import resource, sys
sys.path[:0] = sys.argv[1:]
from pathlib import Path
from support.output_cases import NUMBERED, REPLACING
import os
for write in REPLACING.values():
    write(Path("warm.mp4"))
    os.unlink("warm.mp4")
Path("old.mp4").write_bytes(b"old")
resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
for name, write in [*REPLACING.items(), *((name, lambda p, w=w: w(p.parent)) for name, (_, w) in NUMBERED.items())]:
    for target in ("old.mp4", "new.mp4"):
        try:
            write(Path(target))
            if name != "what is remembered":  # so little has room
                print(name, "was written")
        except Exception as e:
            print(type(e).__name__, e)
            assert "cannot write to" in str(e) and "File too large" in str(e) and "\\n" not in str(e), e
    assert Path("old.mp4").read_bytes() in (b"old", b"content"), name
print("end", sorted(os.listdir(".")))
"""


def test_a_full_disk_leaves_the_old_file_and_nothing_else(programs: Programs) -> None:
    """The kernel's limit on the size of files refuses a write as a full disk does."""
    process = programs.code(FULL, str(ROOT / "tests"), str(ROOT))
    told, errors = process.communicate(timeout=PATIENCE)
    assert not process.returncode, told + errors
    assert "was written" not in told
    assert told.splitlines()[-1] == "end ['new.mp4', 'old.mp4']", told + errors


def test_a_folder_that_was_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    from splatview.viewer_app.__main__ import main

    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["shot", "out.png", "missing.ply"]) == 2
    assert "cannot write to 'out.png': its folder was removed" in capsys.readouterr().err
    assert main(["shot", f"{tmp_path}/{'x' * 300}", "missing.ply"]) == 2
    assert "File name too long" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["fifo", "device", "link", "folder", "file", "removed"])
def test_a_target_that_changes_meanwhile(change: str, tmp_path: Path) -> None:
    """What became special in between is refused at the end as well; other regular files are replaced."""
    from splatview.ipc.output_file import OutputError, OutputFile

    target = tmp_path / "out"
    target.write_bytes(b"old")
    out = OutputFile(target).open()
    out.file.write(b"new")
    target.unlink()
    if change == "link":
        target.symlink_to("precious")
    elif change == "file":
        target.write_bytes(b"other")
    elif change != "removed":
        make_target(change, target)
    if change in ("file", "removed"):
        out.commit()
        assert target.read_bytes() == b"new"
        assert [p.name for p in tmp_path.iterdir()] == ["out"]
        return
    before = listing(tmp_path)
    with pytest.raises(OutputError, match="cannot write to"):
        out.commit()
    assert listing(tmp_path) == before


def test_without_files_that_have_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on file systems without O_TMPFILE: the kernel answers EISDIR to this flag alone."""
    from splatview.ipc.output_file import OutputFile

    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)
    for existing, name in (("replace", "a.txt"), ("replace", "a.txt"), ("number", "a-2.txt"), ("number", "a-3.txt")):
        with OutputFile(tmp_path / "a.txt", existing) as out:  # type: ignore[arg-type]
            out.file.write(b"content")
            (part,) = tmp_path.glob(".splatview-*.part")
            assert not stat.S_IMODE(part.stat().st_mode) & 0o077 or not (tmp_path / "a.txt").exists() \
                or existing == "number"
        assert out.path == tmp_path / name and out.path.read_bytes() == b"content"
    with pytest.raises(KeyboardInterrupt), OutputFile(tmp_path / "b.txt") as out:
        raise KeyboardInterrupt
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a-2.txt", "a-3.txt", "a.txt"]


# -- no writer is missed -----------------------------------------------------------------------------------------------

ELSEWHERE = {
    "ipc/output_file.py": "the mechanism itself",
    "ipc/runs.py": "the run's own folder, in a private folder, by O_EXCL and O_NOFOLLOW",
    "ipc/viewers.py": "the viewer's entry in the same folder, likewise",
    "splatview/recording.py": "snapshots in the user's private cache, checked to be so, by O_NOFOLLOW",
    "viewer_app/memory/_compile.py": "an empty lock beside the kernels that numba keeps, by O_NOFOLLOW",
    "viewer_app/memory/loading/cache.py": "columns in the private cache, written by another process",
    "viewer_app/renderers/gsplat_kernels.py": "kernels in the private cache, written by a compiler",
    "viewer_app/web/uploads.py": "files from browsers, in a new private folder, by O_EXCL",
    "viewer_app/probe.py": "a file in a new private folder that is removed at once",
}


_WRITING = {"replace", "rename", "renames", "link", "mknod", "mkstemp", "NamedTemporaryFile", "copy", "copy2",
            "copyfile", "move", "copytree", "save", "savez", "savez_compressed", "savetxt", "write_text",
            "write_bytes", "touch", "tofile", "symlink_to", "hardlink_to", "open"}
"""Last names of all calls that `_writes` looks at."""


def _writes(node: ast.AST) -> bool:
    """Return whether a call gives a file a name, or opens one to be written."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
        return False
    if (node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id) not in _WRITING:
        return False  # the rest takes long
    called = ast.unparse(node.func)
    last = called.rpartition(".")[2]
    constants = {c.value for a in [*node.args, *(k.value for k in node.keywords)] for c in ast.walk(a)
                 if isinstance(c, ast.Constant) and isinstance(c.value, str)}
    if called in ("os.replace", "os.rename", "os.renames", "os.link", "os.mknod", "tempfile.mkstemp",
                  "tempfile.NamedTemporaryFile", "shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.move",
                  "shutil.copytree", "np.save", "np.savez", "np.savez_compressed", "np.savetxt", "torch.save"):
        return True
    if last in ("write_text", "write_bytes", "touch", "tofile", "rename", "symlink_to", "hardlink_to"):
        return True
    if last == "replace" and len(node.args) == 1 and not node.keywords and isinstance(node.func, ast.Attribute):
        return True  # of a path: text takes two arguments, dataclasses and times take keywords
    if called == "os.open":
        return any(isinstance(n, ast.Attribute) and n.attr in ("O_CREAT", "O_TRUNC") for a in node.args
                   for n in ast.walk(a))
    if called == "av.open":
        return "w" in constants and ast.unparse(node.args[0]) != "self._output.open().file"
    if last == "open":
        return any(set(c) <= set("rwxabt+") and set(c) & set("wxa+") for c in constants if 0 < len(c) <= 3)
    if last == "save" and "PNG" in constants:
        return ast.unparse(node.args[0]) not in ("out.file", "png", "buffer")
    return False


def test_no_other_code_writes_files() -> None:
    """Only the mechanism gives files names, and what writes into folders of its own."""
    found: dict[str, list[str]] = {}
    for package in ("splatview", "ipc", "viewer_app"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if name.startswith(("splatview/ipc/", "splatview/viewer_app/")):
                continue
            text = path.read_text()
            if not any(f"{called}(" in text for called in _WRITING):
                continue  # parsing takes longest
            for node in ast.walk(ast.parse(text)):
                if _writes(node):
                    found.setdefault(name, []).append(ast.unparse(node))
    assert {name: calls for name, calls in found.items() if name not in ELSEWHERE} == {}
    assert set(ELSEWHERE) == set(found), "no exception without a need"


def test_scripts_make_no_file_of_a_predictable_name_in_a_shared_folder() -> None:
    for script in (ROOT / ".ci" / "setup", ROOT / ".ci" / "run", ROOT / "Makefile"):
        assert not [line for line in script.read_text().splitlines() if "/tmp/" in line], script
