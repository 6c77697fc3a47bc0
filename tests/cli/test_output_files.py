"""Output: complete or absent, under a name that held nothing or a regular file, through
links, never over them.
"""

from __future__ import annotations

import os
import re
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from support.frames import scene
from support.other_users import OTHER_USER_ID, needs_root
from support.programs import ROOT

from splatview.camera import command as camera
from splatview.demo import command as demo
from splatview_ipc.system.files import (
    OutputError,
    check_only_owner_writes,
    make_private,
    write_output,
)
from splatview_viewer.__main__ import main
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.films import make_writer
from splatview_viewer.formats.pictures import output_path, save_picture
from splatview_viewer.formats.ply import write_ply
from splatview_viewer.recording.packed import pack, write_packed
from splatview_viewer.recording.recording import StreamFolder


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


SPECIAL: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (os.mkfifo, "not a regular file"),
    "folder": (Path.mkdir, "not a regular file"),
    "links in a circle": (link_to_itself, "Too many levels of symbolic links"),
}
"""For each kind of target that is refused: its maker, and the reason in the message."""


def listing(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return all entries of a folder, with numbers that change when one is written."""
    entries = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        identity = (status.st_ino, status.st_mode)
        if not stat.S_ISDIR(status.st_mode):
            identity += (status.st_size, status.st_mtime_ns)
        entries[str(path.relative_to(folder))] = identity
    return entries


GREY = np.full((48, 64, 3), 50, np.uint8)


def filmed(path: Path) -> Path:
    pytest.importorskip("av")
    writer = make_writer(path, 64, 48, 10.0, False, numbered=True)
    try:
        writer.add(GREY)
        writer.close()
    except BaseException:
        writer.abort()
        raise
    return writer.out


def save_screenshot(folder: Path) -> Path:
    return save_picture(GREY, output_path("a", ".png", folder), numbered=True)


def export_scene(folder: Path) -> Path:
    path, *_ = write_ply(scene(20, activated=True), folder / "a.ply")
    return path


def film_video(folder: Path) -> Path:
    return filmed(folder / "a.mp4")


def film_pictures(folder: Path) -> Path:
    return filmed(folder / "a")


NUMBERED: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "a screenshot": ("a.png", save_screenshot),
    "an export": ("a.ply", export_scene),
    "a film of the viewer": ("a.mp4", film_video),
    "frames of the viewer": ("a", film_pictures),
}
"""For each output: the name that it takes where that is free, and its writer."""
COMMANDS: dict[str, tuple[Callable[..., int], list[str]]] = {
    "shot OUT": (main, ["shot", "TARGET", "missing.ply"]),
    "video OUT.mp4": (main, ["video", "TARGET", "missing.ply"]),
    "export OUT": (main, ["export", "TARGET", "missing.ply"]),
    "memory --png": (main, ["memory", __file__, "--png", "TARGET"]),
    "memory --out": (main, ["memory", __file__, "--offscreen", "--out", "TARGET"]),
    "serve --out": (main, ["serve", "missing.ply", "--offscreen", "--out", "TARGET"]),
    "serve --record": (main, ["serve", "--offscreen", "--record", "TARGET"]),
    "camera --out": (camera.main, ["test", "--offscreen", "--out", "TARGET"]),
    "demo --out": (demo.main, ["--offscreen", "--out", "TARGET"]),
    "demo --save": (demo.main, ["--offscreen", "--save", "TARGET"]),
}
"""Each with a path to write and with input that is missing, so that only what is
refused before work shows."""


@pytest.mark.parametrize("kind", SPECIAL)
def test_special_targets_are_refused(kind: str, tmp_path: Path) -> None:
    make, message = SPECIAL[kind]
    make(tmp_path / "out.png")
    saved = listing(tmp_path)
    with pytest.raises(OutputError, match=f"cannot write to.*{message}"):
        write_output(tmp_path / "out.png", b"content")
    with pytest.raises(OutputError, match="there is no folder"):
        write_output(tmp_path / "missing" / "out.png", b"content")
    assert listing(tmp_path) == saved


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_special_targets_before_work(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.png"
    if command == "video OUT.mp4":
        target = tmp_path / "out.mp4"
    elif command == "export OUT":
        target = tmp_path / "out.ply"
    os.mkfifo(target)
    saved = listing(tmp_path)
    run, args = COMMANDS[command]
    assert run([arg.replace("TARGET", str(target)) for arg in args]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path) in line
    assert listing(tmp_path) == saved


def test_writers_follow_links(tmp_path: Path) -> None:
    (tmp_path / "old.png").write_bytes(b"old")
    links = {
        "second.png": "old.png",
        "first.png": str(tmp_path / "second.png"),
        "dangling.png": "new.png",
    }
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    save_picture(GREY, tmp_path / "first.png")
    save_picture(GREY, tmp_path / "dangling.png")
    assert {name: os.readlink(tmp_path / name) for name in links} == links
    assert (
        (tmp_path / "old.png").read_bytes()
        == (tmp_path / "new.png").read_bytes()
        != b"old"
    )
    assert len(list(tmp_path.iterdir())) == 5


def test_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")
    target.chmod(0o662)
    write_output(target, b"new")
    write_output(tmp_path / "private", b"content", private=True)
    assert [stat.S_IMODE(p.stat().st_mode) for p in (target, tmp_path / "private")] == [
        0o662,
        0o600,
    ]


@pytest.mark.parametrize("kind", NUMBERED)
def test_numbered_files_never_replace_anything(kind: str, tmp_path: Path) -> None:
    name, write = NUMBERED[kind]
    assert write(tmp_path) == tmp_path / name
    existing = [
        tmp_path / f"{Path(name).stem}-{i}{Path(name).suffix}" for i in range(2, 6)
    ]
    existing[0].write_bytes(b"kept")
    existing[1].symlink_to("elsewhere")
    os.mkfifo(existing[2])
    existing[3].mkdir()
    saved = listing(tmp_path)
    path = write(tmp_path)
    assert path == tmp_path / f"{Path(name).stem}-6{Path(name).suffix}"
    listing_after = listing(tmp_path)
    assert {name: listing_after[name] for name in saved} == saved
    assert {n.partition("/")[0] for n in set(listing_after) - set(saved)} == {path.name}


def test_removed_current_folder_is_an_error_of_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = tmp_path / "gone"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    black = np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(FileError, match=r"'a\.png': the current folder was removed"):
        save_picture(black, output_path("a"), numbered=True)
    for name in ("a.mp4", "a"):
        with pytest.raises(FileError, match="the current folder was removed"):
            make_writer(output_path(name, ""), 64, 48, 5.0, False, numbered=True)
    save_picture(black, output_path("a", folder=tmp_path))


def test_names_from_streams_stay_within_the_folder(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    names = set()
    for name in (
        "../../escape",
        "a/b",
        "\x1b]0;owned\x07",
        "..",
        "",
        "\u202egnp",
        "\u732b" * 300,
        "-rf",
        ".hidden",
    ):
        names.add(
            save_picture(
                np.zeros((2, 2, 3), np.uint8),
                output_path(name, ".png", inner),
                numbered=True,
            )
        )
        folder = StreamFolder(inner, name, name)
        folder.close()
        names.add(folder.path)
    assert set(inner.iterdir()) == names
    assert [p.name for p in tmp_path.iterdir()] == ["inner"]
    assert all(
        path.name.isprintable() and not path.name.startswith((".", "-"))
        for path in names
    )


# -- surroundings that refuse ----------------------------------------------------------


@contextmanager
def full_disk() -> Iterator[None]:
    """The kernel's limit on the size of files refuses a write as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("target", ["old.png", "new.png"])
def test_full_disk_leaves_the_old_file_and_nothing_else(
    target: str, tmp_path: Path
) -> None:
    (tmp_path / "old.png").write_bytes(b"old")

    def save_target(folder: Path) -> None:
        save_picture(GREY, folder / target)

    def pack_target(folder: Path) -> None:
        write_packed(folder / target, pack(scene(20), None))

    def film_target(folder: Path) -> None:
        writer = make_writer(folder / "new.mp4", 64, 48, 5.0, False)
        try:
            writer.add(np.zeros((48, 64, 3), np.uint8))
            writer.close()
        finally:
            writer.abort()

    writers: list[Callable[[Path], object]] = [save_target, pack_target, film_target]
    writers += [write for name, (_, write) in NUMBERED.items() if "film" not in name]
    for write in writers:
        with full_disk(), pytest.raises(Exception, match="File too large"):
            write(tmp_path)
        assert {p.name: p.is_dir() or p.read_bytes() for p in tmp_path.iterdir()} == {
            "old.png": b"old"
        }


# -- no writer is missed ---------------------------------------------------------------

ELSEWHERE = {
    "ipc/splatview_ipc/system/files.py": "the mechanism itself",
    "ipc/splatview_ipc/control/run_folder.py": "the run's own folder, in a private folder, by O_EXCL and O_NOFOLLOW",
    "ipc/splatview_ipc/control/registry.py": "the viewer's entry in the same folder, likewise",
}
_WRITES = re.compile(
    r"""os\.(?:replace|renames?|link|mknod)\( | O_CREAT | O_TRUNC | shutil\.(?:copy\w*|move)\(
    | \.(?:write_text|write_bytes|touch|tofile|rename|symlink_to|hardlink_to)\( | \.replace\([^,()]+\)
    | tempfile\.(?:mkstemp|NamedTemporaryFile)\( | np\.save\w*\( | ^\s+torch\.save\(
    | \bopen\((?!self\._target)[^()]*,\s*"[rbt+]*[wxa][bt+]*"
    | \.save\(\s*(?!out\.file|png|buffer)[^()]*"PNG" """,
    re.VERBOSE | re.MULTILINE,
)
"""Calls that give a file a name, or open one to be written. `str.replace` has two
arguments."""


def test_no_other_code_writes_files() -> None:
    """Only the mechanism gives files names, and what writes into folders of its own."""
    entries: dict[str, list[str]] = {}
    for package in ("splatview", "ipc", "viewer_app"):
        for path in (ROOT / package).rglob("*.py"):
            calls = _WRITES.findall(path.read_text())
            if calls:
                entries[str(path.relative_to(ROOT))] = calls
    assert {
        name: calls for name, calls in entries.items() if name not in ELSEWHERE
    } == {}
    assert set(ELSEWHERE) == set(entries), "no exception without a need"


# -- other users -----------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder in which all users can write, as /tmp."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def taken_folder(path: Path) -> Path:
    """Have another user make a folder before its name is used."""
    path.mkdir()
    path.chmod(0o777)
    os.chown(path, OTHER_USER_ID, OTHER_USER_ID)
    return path


def taken_link(path: Path, target: Path) -> Path:
    """Have another user make a link before its name is used."""
    path.symlink_to(target)
    os.chown(path, OTHER_USER_ID, OTHER_USER_ID, follow_symlinks=False)
    return path


@needs_root
def test_recordings_stay_out_of_folders_and_links_of_others(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_folder = tmp_path / "own"
    own_folder.mkdir()
    folder = taken_folder(shared / "folder")
    link = taken_link(shared / "link", own_folder)
    dangling = taken_link(shared / "dangling", tmp_path / "new")
    for target, message in (
        (folder, "belongs to another user"),
        (link, "a link of another user"),
        (link / "deeper", "a link of another user"),
        (dangling, "a link of another user"),
    ):
        assert main(["serve", "--offscreen", "--record", str(target)]) == 2
        assert message in capsys.readouterr().err
        with pytest.raises(OutputError, match=message):
            StreamFolder(target, "run", "scene")
    assert not [*folder.iterdir(), *own_folder.iterdir()]
    assert not (tmp_path / "new").exists()


@needs_root
def test_recordings_take_no_name_that_another_user_has_taken(
    shared: Path, tmp_path: Path
) -> None:
    taken_folder(shared / "run-scene")
    taken_link(shared / "run-scene-2", taken_folder(tmp_path / "theirs"))
    with closing(StreamFolder(shared, "run", "scene")) as folder:
        folder.write_index(1.0, [])
        assert folder.path == shared / "run-scene-3"
    assert not [*(shared / "run-scene").iterdir(), *(tmp_path / "theirs").iterdir()]


def test_recordings_are_the_users_alone(tmp_path: Path) -> None:
    saved_umask = os.umask(0)
    try:
        root = tmp_path / "above" / "record"
        with closing(StreamFolder(root, "run", "scene")) as folder:
            folder.write_index(1.0, [])
            write_packed(folder.path / "000000001.gaussians", pack(scene(5), None))
    finally:
        os.umask(saved_umask)
    for path in (root.parent, root, folder.path, *folder.path.iterdir()):
        mode = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == mode, path


def test_recordings_end_where_their_folder_was_replaced(tmp_path: Path) -> None:
    with closing(StreamFolder(tmp_path, "run", "scene")) as folder:
        folder.path.rename(tmp_path / "away")
        folder.path.mkdir()
        with pytest.raises(OSError, match="was replaced"):
            folder.write_index(1.0, [])
        assert not [*folder.path.iterdir()]


@needs_root
def test_no_writer_follows_links_that_others_made_in_shared_folders(
    shared: Path, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_bytes(b"old")
    (tmp_path / "folder").mkdir()
    taken_link(shared / "a.png", tmp_path / "precious")
    taken_link(shared / "way", tmp_path / "folder")
    (shared / "mine.png").symlink_to(shared / "a.png")
    for target in ("a.png", "way/a.png", "mine.png", "../shared/way/../a.png"):
        with pytest.raises(OutputError, match="a link of another user"):
            write_output(shared / target, b"new")
    with pytest.raises(FileError, match="a link of another user"):
        save_picture(GREY, shared / "way" / "a.png", numbered=True)
    assert (tmp_path / "precious").read_bytes() == b"old"
    assert not [*(tmp_path / "folder").iterdir()]
    theirs = taken_folder(tmp_path / "theirs")
    taken_link(theirs / "a.png", tmp_path / "precious")
    taken_link(theirs / "way", tmp_path / "folder")
    for target in ("a.png", "way/a.png"):
        with pytest.raises(OutputError, match="a link of another user"):
            write_output(theirs / target, b"new")
    with pytest.raises(OutputError, match="a link of another user"):
        StreamFolder(theirs / "way", "run", "scene")
    assert (tmp_path / "precious").read_bytes() == b"old"
    assert not [*(tmp_path / "folder").iterdir()]


@needs_root
def test_links_of_a_folders_owner_are_followed_where_the_kernel_would(
    tmp_path: Path,
) -> None:
    """A group's folder, whose owner has laid out links to folders, and one where none
    can plant any.
    """
    (tmp_path / "data").mkdir()
    (tmp_path / "old").write_bytes(b"old")
    group = taken_folder(tmp_path / "group")
    group.chmod(0o2775)
    taken_link(group / "data", tmp_path / "data")
    write_output(group / "data" / "a.png", b"new")
    assert (tmp_path / "data" / "a.png").read_bytes() == b"new"
    taken_link(group / "a.png", tmp_path / "old")
    with pytest.raises(OutputError, match="a link of another user"):
        write_output(group / "a.png", b"new")
    with pytest.raises(OutputError, match="a link of another user"):
        StreamFolder(group / "data", "run", "scene")
    group.chmod(0o755)
    write_output(group / "a.png", b"new")
    assert (tmp_path / "old").read_bytes() == b"new"


FLIP = f"""
import os, sys
os.setgroups([]); os.setgid({OTHER_USER_ID}); os.setuid({OTHER_USER_ID})
folder = int(sys.argv[2])
print("flips", flush=True)
while os.getppid() == {os.getpid()}:
    try:
        os.symlink(sys.argv[1], "a.png", dir_fd=folder)
    except OSError:
        pass
    try:
        os.unlink("a.png", dir_fd=folder)
    except OSError:
        pass
"""


@needs_root
def test_links_that_come_and_go_while_a_file_is_written_are_not_followed(
    shared: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"old")
    target = shared / "a.png"
    folder = os.open(shared, os.O_RDONLY | os.O_DIRECTORY)
    flips = [sys.executable, "-ISc", FLIP, "../precious", str(folder)]
    with subprocess.Popen(flips, stdout=subprocess.PIPE, pass_fds=[folder]) as flipper:
        assert flipper.stdout is not None
        assert flipper.stdout.readline()
        for _ in range(1200):
            with suppress(OutputError):
                write_output(target, b"new")
            target.unlink(missing_ok=True)
        flipper.kill()
    os.close(folder)
    assert precious.read_bytes() == b"old"


def test_links_without_end_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OutputError, match="symbolic links"):
        write_output(tmp_path / "a", b"new")
    with pytest.raises(OutputError, match="symbolic links"):
        write_output(tmp_path / "a" / "deeper", b"new")


@needs_root
def test_films_go_into_no_folder_that_anyone_could_have_made(
    shared: Path, tmp_path: Path
) -> None:
    taken_folder(shared / "frames")
    with pytest.raises(FileError, match="belongs to another user"):
        make_writer(shared / "frames", 64, 48, 10.0, False)
    shared_folder = taken_folder(tmp_path / "given")
    make_writer(shared_folder, 64, 48, 10.0, False).close()


@needs_root
def test_modes_of_other_users_files_are_not_taken_over(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")
    target.chmod(0o666)
    os.chown(target, OTHER_USER_ID, OTHER_USER_ID)
    saved_umask = os.umask(0o077)
    try:
        write_output(target, b"new")
    finally:
        os.umask(saved_umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@needs_root
def test_caches_are_the_users_own(shared: Path) -> None:
    """Files of caches are executed, or read again."""
    with pytest.raises(PermissionError, match="another user"):
        make_private(taken_folder(shared / "cache"))
    taken_link(shared / "way", shared)
    with pytest.raises(PermissionError, match="a link of another user"):
        make_private(shared / "way" / "cache")
    (shared / "mine").mkdir(mode=0o755)
    check_only_owner_writes(shared / "mine")
    for mode in (0o775, 0o757):
        (shared / "mine").chmod(mode)
        with pytest.raises(PermissionError, match="chmod go-w"):
            check_only_owner_writes(shared / "mine")
