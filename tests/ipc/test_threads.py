"""The trainer's threads among themselves: what the training thread and the helper thread both touch."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.repetitions import exhaustive
from support.wait import PATIENCE

import splatview
from splatview.ipc import Subscriber
from splatview.ipc.ways import layout
from splatview.ipc.ways.in_place import _NONE_KEPT, InPlaceWriter
from splatview.ipc.ways.layout import OLDEST_KEPT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class _Slow:
    """Words of a control page; whoever stores the first one here is held up meanwhile."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.held_up = threading.Event()

    def __setitem__(self, word: int, value: int) -> None:
        assert word == OLDEST_KEPT
        if not self.held_up.is_set():
            self.held_up.set()
            time.sleep(0.2)
        self.stored.append(value)

    def release(self) -> None:
        pass


def _generations(words: Any, count: int) -> InPlaceWriter:
    """A writer in place with so many generations, as far as it goes without a GPU."""
    writer = InPlaceWriter.__new__(InPlaceWriter)
    writer._words, writer._closed, writer._pinned = words, True, 0
    writer._forgetting = threading.Lock()
    writer._event = SimpleNamespace(close=lambda: None)  # type: ignore[assignment]
    writer._generations = deque(SimpleNamespace(number=n, until=0.0, drop=lambda: None)  # type: ignore[misc]
                                for n in range(1, count + 1))
    return writer


@pytest.mark.parametrize("then", [lambda writer: writer.forget(4), lambda writer: writer.close()])
def test_what_was_given_back_is_never_said_to_be_kept(then: Callable[[InPlaceWriter], None]) -> None:
    words = _Slow()
    writer = _generations(words, 5)
    helper = threading.Thread(target=writer.forget, args=(2,))
    helper.start()
    assert words.held_up.wait(PATIENCE)
    then(writer)  # while the helper thread is in the middle of it
    helper.join()
    assert len(words.stored) > 1 and words.stored == sorted(words.stored)


def test_generations_that_are_forgotten_from_all_sides(hasty: None) -> None:
    for _ in range(50):
        stored: list[int] = []
        words = type("Words", (), {"__setitem__": lambda self, word, value, stored=stored: stored.append(value)})()
        writer = _generations(words, 40)

        def forget(writer: InPlaceWriter = writer) -> None:
            for number in range(41):
                writer.forget(number)

        threads = [threading.Thread(target=forget) for _ in range(3)]
        for thread in threads:
            thread.start()
        writer.close()
        for thread in threads:
            thread.join()
        assert stored == sorted(stored) and stored[-1] == _NONE_KEPT and not writer._generations


def test_a_child_forked_in_the_middle_of_a_fence_is_not_held_up() -> None:
    with layout._fence_lock:  # as another thread of the parent has it
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(PATIENCE))
            layout.full_fence()
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.parametrize(("seconds", "steps"), [(0.2, 210), exhaustive(0.5, 400), exhaustive(6.0, 400)])
def test_a_training_and_its_helper_take_turns_anywhere(seconds: float, steps: int, hasty: None,
                                                       wait_until: Callable[..., Any]) -> None:
    """Publishing, describing anew, viewers that come and go, late copies, growing rings, `log` and `close`: whatever
    the helper thread is at, each frame shows what its version was given, and the newest arrives."""
    wrong: list[Any] = []
    stop = threading.Event()

    def view() -> None:
        try:
            while not stop.is_set():
                with Subscriber(client="threads") as subscriber:
                    for _ in range(30):
                        subscriber.poll()
                        for stream in subscriber.streams:
                            stream.holds = 2
                            stream.open()
                            frame = stream.read()
                            if frame is None or stream.info.kind != "image":
                                continue
                            with frame:
                                values = frame.tensors["image"].to_float32()  # type: ignore[union-attr]
                                if frame.intact() and not (values == frame.meta["step"] % 200).all():
                                    wrong.append((frame.version, frame.meta["step"], values.min(), values.max()))
        except Exception as e:
            wrong.append(e)

    viewers = [threading.Thread(target=view) for _ in range(2)]
    for viewer in viewers:
        viewer.start()
    end = time.monotonic() + seconds
    step = 0
    while (time.monotonic() < end or step <= steps) and not wrong:
        step += 1
        size = 8 + step // 50 % 4 * 8
        splatview.publish(torch.full((size, size, 3), step % 200, dtype=torch.uint8), "picture", step=step)
        splatview.log(step, loss=1 / step)
        if step % 200 == 0:
            splatview.close()
    stop.set()
    for viewer in viewers:
        viewer.join()
    assert not wrong and step > 100
    splatview.publish(torch.full((8, 8, 3), 77, dtype=torch.uint8), "picture", step=77)
    with Subscriber() as subscriber:
        def newest() -> bool:
            subscriber.poll()
            for stream in subscriber.streams:
                if stream.name == "picture" and stream.run.alive:
                    stream.open()
                    if (frame := stream.read()) is not None:
                        with frame:
                            return frame.meta["step"] == 77 and frame.intact()
            return False

        wait_until(newest)


def test_the_last_count_that_is_told_is_the_newest() -> None:
    """The helper thread tells a count, and is held up just before it stores it, while another version is published."""
    from splatview.ipc.board import Board
    from splatview.ipc.tally import Tally

    board = Board()
    tally = Tally(board, 0)
    tally.keep(None, {})

    class Words:
        """The helper thread's view of the board."""

        def __getitem__(self, word: int) -> int:
            return board.words[word]

        def __setitem__(self, word: int, value: int) -> None:
            if tally.version < 4:
                helper, tally._words = tally._words, board.words
                tally.keep(None, {})  # the trainer comes by, and tells its count
                tally._words = helper
            board.words[word] = value

    tally.version, tally._words = 2, Words()  # type: ignore[assignment]
    tally.tell_beside()
    assert board.words[Board.version_word(0)] == tally.version == 4
    board.close()
