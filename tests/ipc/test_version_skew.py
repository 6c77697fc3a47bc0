"""Releases that do not fit together say so, on both sides, with both names; what one of them adds does no harm.

Of torch nothing travels: shared memory holds plain bytes, whose layout messages describe in words of our own, and
CUDA's handles are the driver's. So trainer and viewer may use different releases of torch; what they agree on is tested
here.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import pytest
import torch

import splatview
from splatview import publishing
from splatview.ipc import Subscriber, limits, messages
from splatview.ipc.channel import Link
from splatview.ipc.runs import Description, list_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NEXT = limits.PROTOCOL + 1
"""The protocol of a later release."""


@pytest.fixture
def link(runtime_dir: Path) -> Iterator[Link]:
    """A connection to a run of this process, which publishes an image."""
    splatview.publish(torch.zeros(4, 4))
    (run,) = list_runs(runtime_dir)
    link = Link(run.path)
    assert link.connect()
    yield link
    link.close()


def dropped() -> int:
    assert publishing._publisher is not None
    return publishing._publisher.board.counters()["dropped_messages"]


def answer(link: Link, wait_until: Callable[..., Any]) -> Any:
    return messages.decode_to_viewer(wait_until(link.receive, what="an answer"))


def test_there_is_one_version() -> None:
    """The build reads the version where the running code does."""
    root = Path(splatview.__file__).parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    source = root / project["tool"]["hatch"]["version"]["path"]
    assert source.samefile(limits.__file__)
    assert re.findall(r'^VERSION = "(.*)"$', source.read_text(), re.MULTILINE) == [splatview.__version__]
    assert splatview.__version__ == limits.VERSION


@pytest.mark.parametrize("hello", [
    {"type": "Hello", "protocol": NEXT, "pid": 1, "client": "viewer", "namespace": 0, "version": "9.0.0"},
    {"type": "Hello", "protocol": NEXT, "version": "9.0.0", "what": {"later": ["ones", "add"]}},
])
def test_a_viewer_of_another_protocol_is_told_both(
        link: Link, hello: dict[str, Any], wait_until: Callable[..., Any]) -> None:
    assert link.send(messages.encode(hello))
    assert answer(link, wait_until) == messages.Refused(
        f"the viewer is splatview 9.0.0 (protocol {NEXT}), the run {limits.VERSION} (protocol {limits.PROTOCOL}): "
        "install the same version of splatview on both sides")
    wait_until(lambda: (link.receive(), not link.up)[-1], what="the trainer has no more to say")


def test_a_viewer_from_before_versions_were_said(link: Link, wait_until: Callable[..., Any]) -> None:
    assert link.send(messages.encode({"type": "Hello", "protocol": 7, "pid": 1, "client": "viewer", "namespace": 0}))
    assert "the viewer is splatview of an unknown version (protocol 7)" in answer(link, wait_until).reason


@pytest.mark.parametrize(("said", "words"), [
    ({"protocol": NEXT, "version": "9.0.0"}, f"the run 9.0.0 (protocol {NEXT})"),
    ({"protocol": 1}, "the run of an unknown version (protocol 1)"),
    ({"protocol": 10**6, "version": "x" * limits.MAX_VERSION, "more": [1, {"a": None}]}, "(protocol 1000000)"),
])
def test_a_run_of_another_protocol_is_not_attached_to(
        runtime_dir: Path, said: dict[str, Any], words: str, wait_until: Callable[..., Any]) -> None:
    splatview.publish(torch.zeros(4, 4))
    (run,) = list_runs(runtime_dir)
    before = msgspec.to_builtins(run.description)
    del before["version"]
    (run.path / "run.json").write_bytes(msgspec.json.encode(before | said))
    with Subscriber() as subscriber:
        wait_until(lambda: (subscriber.poll(), subscriber.runs)[-1])
        (seen,) = subscriber.runs
        assert seen.refused is not None
        assert seen.refused.startswith(f"the viewer is splatview {limits.VERSION} (protocol {limits.PROTOCOL}), ")
        assert words in seen.refused
        for _ in range(20):
            subscriber.poll()
    assert dropped() == 0, "it was not even spoken to"
    assert publishing._publisher is not None
    assert not publishing._publisher._helper._viewers


def test_another_release_of_the_same_protocol_is_welcome(link: Link, wait_until: Callable[..., Any]) -> None:
    assert link.send(messages.encode(messages.Hello(limits.PROTOCOL, os.getpid(), "viewer", version="0.1.7")))
    assert isinstance(answer(link, wait_until), messages.Welcome)


def test_what_a_later_release_adds_is_dropped_and_all_else_goes_on(link: Link, wait_until: Callable[..., Any]) -> None:
    assert link.send(messages.encode(messages.Hello(limits.PROTOCOL, os.getpid(), "viewer")))
    assert isinstance(answer(link, wait_until), messages.Welcome)
    assert link.send(messages.encode({"type": "Rewind", "index": 0, "to": 17}))
    assert link.send(messages.encode({"type": "Open", "index": 0, "way": "telepathy"}))
    wait_until(lambda: dropped() == 2)
    assert link.send(messages.encode(messages.Open(0, "ring")))

    def offered() -> bool:
        packet = link.receive()
        return packet is not None and isinstance(messages.decode_to_viewer(packet), messages.Offer)

    wait_until(offered, what="an offer")


def test_a_run_says_which_release_it_is(runtime_dir: Path) -> None:
    splatview.publish(torch.zeros(4, 4))
    (run,) = list_runs(runtime_dir)
    said = msgspec.json.decode((run.path / "run.json").read_bytes(), type=Description)
    assert (said.version, said.protocol) == (limits.VERSION, limits.PROTOCOL)


def test_types_are_named_in_words_of_our_own() -> None:
    """Any torch has these types, of these sizes; no number of torch's own for them travels."""
    assert set(get_args(messages.DType)) == set(limits.ITEM_SIZE)
    for name, size in limits.ITEM_SIZE.items():
        dtype = getattr(torch, name)
        assert isinstance(dtype, torch.dtype)
        assert dtype.itemsize == size
