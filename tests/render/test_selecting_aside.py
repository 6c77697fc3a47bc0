"""Work in a thread of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from support.wait import PATIENCE

from splatview.viewer_app.selecting.aside import Aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def aside(wait_until: Callable[..., object]) -> Iterator[Aside[int]]:
    made: Aside[int] = Aside("test aside")
    yield made
    made.forget()
    wait_until(lambda: not any(t.name == "test aside" for t in threading.enumerate()), what="its thread ends")


def test_what_is_asked_for_comes_once(aside: Aside[int]) -> None:
    woken = threading.Event()
    assert aside.take() is None
    aside.ask(lambda: 3, woken.set)
    assert woken.wait(PATIENCE)
    assert aside.take() == 3
    assert aside.take() is None


def test_of_many_questions_the_last_is_answered(aside: Aside[int], wait_until: Callable[..., object]) -> None:
    go, begun, done = threading.Event(), threading.Event(), []

    def first() -> int:
        begun.set()
        go.wait(PATIENCE)
        done.append(0)
        return 0

    aside.ask(first, lambda: done.append(-1))
    assert begun.wait(PATIENCE)
    for i in (1, 2, 3):
        aside.ask(lambda i=i: done.append(i) or i)
    go.set()
    assert wait_until(aside.take) == 3
    assert done == [0, 3]  # neither worked out nor told: 1 and 2; not told: 0


def test_what_is_forgotten_is_not_told(aside: Aside[int], wait_until: Callable[..., object]) -> None:
    go, told = threading.Event(), []
    aside.ask(lambda: int(go.wait(PATIENCE)), lambda: told.append(1))
    aside.forget()
    go.set()
    wait_until(lambda: not aside.busy)
    assert aside.take() is None
    assert not told


def test_what_goes_wrong_is_raised_where_it_is_taken(aside: Aside[int]) -> None:
    woken = threading.Event()
    aside.ask(lambda: 1 // 0, woken.set)
    assert woken.wait(PATIENCE)
    with pytest.raises(ZeroDivisionError):
        aside.take()
    assert aside.take() is None
    woken.clear()
    aside.ask(lambda: 5, woken.set)
    assert woken.wait(PATIENCE)
    assert aside.take() == 5
