"""A hostile run, seen by a viewer: what it says is refused before anything is opened, counted, and bounded; other runs
are seen as ever."""

from __future__ import annotations

import fcntl
import os
import pickle
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import torch
from fuzz.messages import to_viewer
from support.impostor import Impostor, info, pickles
from support.meters import MB, footprint
from support.open_files import open_files
from support.wait import turns, wait_until

import splatview
from splatview_ipc import Subscriber
from splatview_ipc.control import limits, messages
from splatview_ipc.control.mail import Mailroom
from splatview_ipc.control.run_folder import list_runs
from splatview_ipc.shm.segment import Segment
from splatview_ipc.shm.slot_layout import FIRST_SLOT, HEADER, WORDS_PER_SLOT
from splatview_ipc.transports.cpu_ring import RingWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from splatview_ipc import RemoteRun
    from splatview_ipc.transports.cpu_ring import RingReader

ODD: list[Any] = [2**63, 2**64 - 1, -(2**63), -1, 2**31, 1.5, float("nan"), None, True, "", "x" * 5000, "\x00", b"\x80",
                  [], [[[[]]]], {}, {"a": {}}, "ring"]


@pytest.fixture
def impostor(runtime_dir: Path) -> Iterator[Impostor]:
    impostor = Impostor()
    yield impostor
    impostor.close()


@pytest.fixture
def viewer(impostor: Impostor) -> Iterator[Subscriber]:
    """Follows the impostor and an honest run of this process, whose picture it has seen."""
    splatview.publish(torch.full((4, 4), 9, dtype=torch.uint8), "honest")
    with Subscriber() as viewer:
        wait_until(lambda: (impostor.hear(), viewer.poll(), sees_the_honest(viewer))[-1], what="the honest picture")
        wait_until(lambda: (impostor.hear(), viewer.poll(), impostor.heard)[-1], what="its hello")
        yield viewer


def sees_the_honest(viewer: Subscriber) -> bool:
    for stream in viewer.streams:
        if stream.name == "honest" and stream.run.name != "impostor":
            stream.open()
            if (frame := stream.read()) is not None:
                with frame:
                    return bool((frame.tensors["image"].to_float32() == 9).all()) and frame.intact()
    return False


def liar(viewer: Subscriber) -> RemoteRun:
    return next(r for r in viewer.runs if r.name == "impostor")


def through(impostor: Impostor, viewer: Subscriber, packets: list[Any]) -> None:
    """Say all of this, however long it takes the viewer to listen."""
    left = list(packets)
    for _ in turns("the viewer listens"):
        if not left:
            break
        impostor.hear()
        if not impostor.viewers:
            viewer.poll()
        del left[: impostor.tell(*left)]
        viewer.poll()
    for _ in range(5):
        viewer.poll()


def test_anything_in_any_field(impostor: Impostor, viewer: Subscriber) -> None:
    before = footprint()
    packets = []
    for message in to_viewer():
        said = msgspec.to_builtins(message)
        packets += [messages.encode({**said, name: odd}) for name in said for odd in ODD]
        packets += [messages.encode({**said, "ref": {**said["ref"], name: odd}}) for name in said.get("ref", {})
                    for odd in ODD]
    wrong = 0
    for packet in packets:
        try:
            messages.decode_to_viewer(packet)
        except messages.DecodeError:
            wrong += 1
    assert wrong > 0.9 * len(packets)
    through(impostor, viewer, packets)
    wait_until(lambda: (viewer.poll(), liar(viewer).dropped >= wrong)[-1])
    assert sees_the_honest(viewer)
    assert not footprint().over(before, descriptors=8)


def test_nothing_of_a_run_is_executed(impostor: Impostor, viewer: Subscriber, tmp_path: Path,
                                      runtime_dir: Path) -> None:
    """Pickles as messages, by either way, and within them; as frames' headers, and within their metadata; as run.json
    and within it."""
    canary = tmp_path / "canary"
    forms = pickles(canary)
    for form in forms:  # the counter-proof: unpickled, each makes the file
        assert pickle.loads(form) == 0
        canary.unlink()
    values = [v for p in forms for v in (p, p.decode("latin-1"), *(msgspec.msgpack.Ext(c, p) for c in (-1, 1, 80)))]
    said = [msgspec.to_builtins(m) for m in to_viewer()]
    packets = [*forms, *map(messages.encode, values), *(messages.encode({**m, name: v}) for m in said for name in m
                                                       for v in values)]
    through(impostor, viewer, packets)
    wait_until(lambda: (viewer.poll(), liar(viewer).dropped >= 0.9 * len(packets))[-1], what="they are read")
    *_, hello = (h for h in impostor.heard if isinstance(h, messages.Hello))
    room = Mailroom()
    box = room.outbox(impostor.folder.path / hello.inbox)
    assert hello.inbox
    assert box is not None
    before = liar(viewer).dropped
    for packet in forms:
        wait_until(lambda p=packet: box.send(p))
    wait_until(lambda: (viewer.poll(), liar(viewer).dropped >= before + len(forms))[-1], what="so are these")
    box.close()

    read, garbled = read_forged(impostor, viewer, forms, values)
    assert read >= len(forms), "within metadata they are text like any other"
    assert garbled >= len(values), "elsewhere they make no sense"

    description = msgspec.to_builtins(impostor.folder.description)
    texts = [*forms, *(msgspec.json.encode({**description, name: p.decode("latin-1")}) for p in forms
                       for name in description)]
    for text in texts:
        (impostor.folder.path / "run.json").write_bytes(text)
        list_runs(runtime_dir)
    assert sees_the_honest(viewer)
    assert not canary.exists()


def read_forged(impostor: Impostor, viewer: Subscriber, forms: list[bytes], values: list[Any]) -> tuple[int, int]:
    """Have the viewer read frames whose headers are pickles, or have these values in them: how many it took, and how
    many it found to make no sense."""
    writer = RingWriter(1 << 20)
    image = messages.TensorHeader("image", "uint8", (4, 6, 3), 0)
    headers = [*forms, *map(messages.encode, values)]
    headers += [messages.encode(["image", [image], meta]) for v in values for meta in (v, {"layout": v},
                {"layout": "HWC", "note": v}, {"layout": "HWC", "a": {"b": v}})]
    headers += [messages.encode([v, [image], {}]) for v in values]
    through(impostor, viewer, [impostor.welcome(), messages.Manifest((info(0),), ())])
    (stream,) = liar(viewer).streams.values()
    stream.open()
    wait_until(lambda: (viewer.poll(), impostor.hear(), any(isinstance(h, messages.Open) for h in impostor.heard))[-1])
    through(impostor, viewer, [messages.Offer(0, "ring", messages.RingRef(writer.segment.ref))])
    wait_until(lambda: (viewer.poll(), stream.opened)[-1], what="the ring is open")
    read = 0
    for version, header in enumerate(headers, 1):
        assert writer.write("image", {"image": torch.zeros(4, 6, 3, dtype=torch.uint8)}, {"layout": "HWC"}, version)
        at = writer._last
        start = writer.header_offset(at)
        writer._bytes[start:start + len(header)] = header
        writer._words[FIRST_SLOT + at * WORDS_PER_SLOT + HEADER] = len(header)
        impostor.board.words[impostor.board.version_word(0)] = version
        viewer.poll()
        if (frame := stream.read(version - 1)) is not None:
            with frame:
                assert frame.version == version
                assert repr(frame.meta)
                read += 1
    writer.close()
    return read, cast("RingReader", stream._reader).garbled


def test_a_flood_of_offers_for_what_was_not_opened(impostor: Impostor, viewer: Subscriber) -> None:
    """Also before there is a list of streams, for no stream at all, and again and again."""
    before = footprint()
    segment = Segment(1 << 20, "ring")
    ref = messages.RingRef(segment.ref)
    offers = [messages.Offer(index, "ring", ref) for index in (0, 3, 255)]
    manifest = messages.Manifest(tuple(info(i) for i in range(256)), ())
    through(impostor, viewer, [*offers, impostor.welcome(), *offers, manifest, *offers * 300, manifest, manifest])
    assert len(liar(viewer).streams) == 256
    assert not any(s.opened or s.fault for s in liar(viewer).streams.values())
    assert not footprint().over(before, descriptors=8, segments=3, segment_bytes=2 * MB)
    assert sees_the_honest(viewer)
    segment.close()


def _sealed(size: int, token: str, seals: int = 7, mode: int = 0o600) -> int:
    fd = os.memfd_create(f"splatview-{token}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    os.fchmod(fd, mode)
    fcntl.fcntl(fd, 1033, seals)
    return fd


@pytest.mark.parametrize("case", ["another name", "larger", "smaller", "not sealed", "not to be written", "no board",
                                  "a file", "a pipe", "a device", "no descriptor", "4 TB"])
def test_a_board_that_is_none(impostor: Impostor, viewer: Subscriber, tmp_path: Path,
                              case: str) -> None:
    """It is refused in words; nothing of it stays open, and nothing strange is opened at all."""
    size, token = impostor.board.segment.size, "board-0123456789abcdef"
    pipe = os.pipe()
    made = {"another name": lambda: _sealed(size, "another"), "larger": lambda: _sealed(size * 2, token),
            "smaller": lambda: _sealed(4096, token), "not sealed": lambda: _sealed(size, token, 0),
            "not to be written": lambda: _sealed(size, token, 15), "no board": lambda: _sealed(size, token),
            "a file": lambda: os.open(tmp_path / f"memfd:splatview-{token}", os.O_CREAT | os.O_RDWR),
            "a pipe": lambda: os.dup(pipe[0]), "a device": lambda: os.open("/dev/zero", os.O_RDWR),
            "no descriptor": lambda: 10**9, "4 TB": lambda: _sealed(limits.MAX_SEGMENT, token)}[case]()
    said = {"4 TB": limits.MAX_SEGMENT, "smaller": 4096}.get(case, size)
    ref = messages.SegmentRef(made, said, token)
    boards = [impostor.welcome(leases=ref)] if case == "not to be written" else [impostor.welcome(board=ref)]
    before, base = open_files(), footprint()
    through(impostor, viewer, boards)
    wait_until(lambda: (impostor.hear(), viewer.poll(), liar(viewer).refused)[-1], what="a refusal")
    assert liar(viewer)._board is None
    assert open_files() <= before
    assert not footprint().over(base, descriptors=2)
    assert sees_the_honest(viewer)
    for fd in (*pipe, made):
        if fd < 10**9:
            os.close(fd)


def test_names_that_would_write_elsewhere(impostor: Impostor, viewer: Subscriber) -> None:
    """Control characters, endless and twisted names are only names."""
    names = ["\x1b]0;x\x07\x1b[2J", "../../../etc", "a\x00b", "\u202egnp.exe", "##", "%s%n", "x" * limits.MAX_NAME,
             "\U0001f600" * 50]
    streams = tuple(info(i, name=name, why=name, device=name[:40], over=name) for i, name in enumerate(names))
    through(impostor, viewer, [impostor.welcome(), messages.Manifest(streams, ()),
                               messages.Manifest(streams[::-1], ()), messages.Manifest((), ())])
    assert [s.name for s in liar(viewer).streams.values()] == names
    assert sees_the_honest(viewer)


def test_what_it_says_of_versions_is_bounded(impostor: Impostor, viewer: Subscriber) -> None:
    through(impostor, viewer, [impostor.welcome(), messages.Manifest((info(0),), ())])
    (stream,) = liar(viewer).streams.values()
    for value in (2**64 - 1, 7, 2**63, 0):  # also backwards
        impostor.board.words[impostor.board.version_word(0)] = value
        viewer.poll()
        assert stream.version == min(value, limits.MAX_COUNTER)
        assert stream.rate_hz >= 0
    for word in range(7):
        impostor.board.words[word] = 2**64 - 1
    viewer.poll()
    assert liar(viewer).paused
    assert set(liar(viewer).counters) == {"dropped_messages", "faults", "copies", "skipped"}


def test_a_run_folder_made_of_odd_things(impostor: Impostor, runtime_dir: Path) -> None:
    """Links and pipes in the place of what belongs there are not followed, nor waited for."""
    path = impostor.folder.path / "run.json"
    content = path.read_bytes()
    for make in (lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero"),
                 lambda: path.symlink_to(runtime_dir / "elsewhere")):
        path.unlink()
        (runtime_dir / "elsewhere").write_bytes(content)
        make()
        assert list_runs(runtime_dir) == []
