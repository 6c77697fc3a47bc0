"""Runs, as a viewer sees them."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from splatview_ipc.control import limits, mail, messages
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.run_folder import SOCKET_NAME, RunWatch
from splatview_ipc.control.sockets import (
    DESCRIPTORS_PER_PACKET,
    EndedError,
    close_all,
    connect,
    pid_namespace,
)
from splatview_ipc.shm.control_block import ControlReader
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_ipc.transports import ZERO_COPY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from splatview_ipc.control.run_folder import Description, RunFolder
    from splatview_ipc.control.sockets import Connection

    CanTake = Callable[[str, str], bool]

_CONNECT_PERIOD_S = 0.1
_REFUSED_PERIOD_S = 5.0
_MAX_MESSAGES = 64
"""Messages taken in one poll."""
_SILENCE_S = 2.0
"""Time after which descriptors are requested again, and their absence is shown."""
_CONTROL = -1
"""Key of the welcome among the messages that wait for descriptors.

Others are streams' indices.
"""


@dataclass
class _Awaited:
    """A message that waits for its descriptors."""

    message: messages.Welcome | messages.Offer
    needed: dict[str, int]
    """Tokens, and the number of descriptors behind each."""
    request_at: float = 0.0
    """Clock time of the next request; 0: none was made."""
    failed: bool = False
    """True if some of them cannot be had."""
    fds: dict[str, list[int]] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.failed or all(map(self.is_complete, self.needed))

    def is_complete(self, token: str) -> bool:
        """Return whether all descriptors of a token have arrived."""
        return len(self.fds.get(token, ())) == self.needed[token]

    def is_waiting_for(self, token: str) -> bool:
        """Return whether descriptors of a token were requested and are missing."""
        if token not in self.needed or not self.request_at:
            return False
        return not self.is_complete(token)

    def take(self, message: messages.Descriptors, fds: list[int]) -> None:
        """Take in a part of an answer."""
        token_fds = self.fds.setdefault(message.token, [])
        token_fds += fds
        count = self.needed[message.token]
        if message.total != count or not fds or len(token_fds) > count:
            self.failed = True

    def close(self) -> None:
        """Close all descriptors that have arrived. Idempotent."""
        for fds in self.fds.values():
            close_all(fds)
        self.fds = {}


def _elsewhere(description: Description) -> str:
    """Return why a run of another machine cannot be attached to."""
    host = description.host or "another machine"
    return (
        f"its process runs on {host}, which alone has its memory: start a viewer there"
    )


class RemoteRun:
    """One publishing process, as a viewer sees it."""

    def __init__(
        self,
        folder: RunFolder,
        client: str,
        can_take: CanTake,
        endpoint: Callable[[Path, str], str],
    ) -> None:
        """Attach to a run at the next `poll`.

        Args:
            folder: the run's folder.
            client: the name of this process, for users.
            can_take: returns whether this process can read a transport's frames on a
                GPU.
            endpoint: returns the ZeroMQ address of a socket in a run's folder.
        """
        self.folder = folder
        self.watch = RunWatch(folder)
        self.alive = True
        self.refused: str | None = None
        """The reason why this run cannot be attached to, for users; None if it can."""
        self.viewers: list[dict[str, int | str]] = []
        """The viewers attached to it: {"pid", "client"}."""
        self.streams: dict[int, RemoteStream] = {}
        self.welcomed = False
        """True once its list of streams has arrived."""
        self.ended_at = 0.0
        self.changes = 0
        """Number of changes of the run and its streams, beside versions and rates."""
        self.total_version = 0
        """The versions of all streams together: it grows when one publishes."""
        self.wanted_streams: dict[int, RemoteStream] = {}
        """The streams that are open, by index; `RemoteStream` keeps it."""
        self.dropped = 0
        """Number of its messages that made no sense, or came too late."""
        self.control: ControlReader | None = None
        self._client = client
        self._can_take = can_take
        self._endpoint = endpoint
        self._connection: Connection | None = None
        self._pull: mail.Pull | None = None
        self._connect_at = 0.0
        """Clock time of the next attempt to connect."""
        self._is_attached = False
        """True once the control block of the present connection is open."""
        self._requested: dict[int, str] = {}
        """Transports requested of the trainer, by stream; "": released."""
        self._awaited: dict[int, _Awaited] = {}
        self._versions: list[int] = []
        """The version words at the last poll, by index."""
        self._to_measure: set[int] = set()
        """The streams that are new or publish: their rates change by the clock."""
        self._pause_state = (False, 0)
        """`paused` and `waits` at the last poll."""
        self._now = 0.0
        description = folder.description
        if description.protocol != limits.PROTOCOL:
            self.refused = messages.mismatch(
                (limits.VERSION, limits.PROTOCOL),
                (description.version, description.protocol),
            )
            self._connect_at = math.inf

    @property
    def id(self) -> str:
        return self.folder.description.id

    @property
    def name(self) -> str:
        return self.folder.description.name

    @property
    def pid(self) -> int:
        return self.folder.description.pid

    @property
    def counters(self) -> dict[str, int]:
        """The trainer's own counts: dropped_messages, faults, copies, skipped."""
        return self.control.counters() if self.control is not None else {}

    @property
    def paused(self) -> bool:
        return self.control is not None and self.control.paused

    @property
    def waits(self) -> int:
        """The trainer's use of `splatview.wait_while_paused`.

        0: it never has; 1: it calls it; 2: it waits there now.
        """
        return self.control.waits if self.control is not None else 0

    def set_paused(self, paused: bool) -> None:
        """Press the pause button, or release it for all viewers."""
        self.send(messages.Pause(paused))

    def step(self) -> None:
        """Let a paused run pass `wait_while_paused` once."""
        self.send(messages.Step())

    def unfit(self, transport: str, gpu: str) -> str:
        """Return why this process cannot use a transport; "" when it can."""
        if transport in ZERO_COPY:
            publisher = sys.modules.get("splatview_ipc.publisher.publisher")
            if publisher is not None and publisher.is_own(self.id):
                return "a process cannot open its own GPU memory a second time"
        if self._can_take(transport, gpu):
            return ""
        return f"this process cannot open memory of GPU {gpu}"

    def send(self, message: messages.ToTrainer) -> None:
        """Send a message. Never waits.

        If the queue of a stopped trainer is full, the connection is made again.
        """
        if self._connection is None:
            return
        try:
            if not self._connection.send(messages.encode(message)):
                self._disconnect()
        except EndedError:
            pass  # what the trainer sent before is still to be read

    def try_send(self, message: messages.ToTrainer) -> bool:
        """Send a message unless the queue is full; return whether it is sent."""
        if self._connection is None or not self._is_attached:
            return False
        try:
            return self._connection.send(messages.encode(message))
        except EndedError:
            return False

    def poll(self, now: float) -> bool:
        """Take in what happened. Never waits.

        Returns True when a stream, a version, a viewer or the run changed.
        """
        self._now = now
        has_changed = False
        if self._connection is None and self.alive and now >= self._connect_at:
            self._connect_at = now + _CONNECT_PERIOD_S
            self._connect()
        if self._connection is not None:
            has_changed = self._receive()
            if self._awaited:
                has_changed |= self._await_descriptors()
        pause_state = (self.paused, self.waits)
        self.changes += has_changed or pause_state != self._pause_state
        self._pause_state = pause_state
        has_changed |= self._measure(now)
        for stream in list(self.wanted_streams.values()):
            self.share(stream)
            stream.send_rest()
        return has_changed

    def _measure(self, now: float) -> bool:
        """Measure the streams that publish; return whether there are new versions.

        Those at rest cost nothing: a run may have hundreds.
        """
        if self.control is None:
            return False
        versions = self.control.versions()
        if versions != self._versions:
            previous = self._versions or [0] * len(versions)
            for index, version in enumerate(versions):
                if version != previous[index]:
                    self._to_measure.add(index)
            self._versions = versions
            self.total_version = sum(versions)
        has_changed = False
        for index in list(self._to_measure):
            stream = self.streams.get(index)
            if stream is not None:
                has_changed |= stream.measure(now)
            if stream is None or not stream.rate_hz:
                self._to_measure.remove(index)
        return has_changed

    def _connect(self) -> None:
        """Connect to the run and introduce this viewer."""
        inbox = mail.new_socket_name()
        try:
            self._connection = connect(self.folder.path / SOCKET_NAME)
            self._pull = mail.Pull(self._endpoint(self.folder.path, inbox))
        except OSError:  # it ends, or is stopped
            if self.folder.description.is_elsewhere():
                self._disconnect(_elsewhere(self.folder.description))
            return
        except SharingError as error:
            self._disconnect(str(error))
            return
        hello = messages.Hello(
            protocol=limits.PROTOCOL,
            pid=os.getpid(),
            client=self._client,
            namespace=pid_namespace(),
            version=limits.VERSION,
            inbox=inbox,
        )
        self.send(hello)

    def share(self, stream: RemoteStream) -> None:
        """Have the trainer share a stream as it is wanted now."""
        index = stream.info.index
        transport = stream.wanted_transport
        if not self._is_attached or transport == self._requested.get(index, ""):
            return
        self._drop_awaited(index)
        self._requested[index] = transport
        if transport:
            stream.request(transport)
        else:
            self.send(messages.Release(index))

    def has_requested(self, stream: RemoteStream) -> bool:
        """Return whether the trainer was asked to share a stream as it is wanted now."""
        return self._requested.get(stream.info.index) == stream.wanted_transport

    def _receive(self) -> bool:
        """Take in messages; return whether something changed that is shown."""
        has_changed = False
        for _ in range(_MAX_MESSAGES):
            # Streams are known only when their versions can be read.
            if self._pull is None or _CONTROL in self._awaited:
                break
            data = self._pull.receive()
            if data is None:
                break
            has_changed |= self._take(data, [])
        for _ in range(_MAX_MESSAGES):
            if self._connection is None:
                break
            try:
                packet = self._connection.receive(DESCRIPTORS_PER_PACKET)
            except EndedError:
                self._disconnect()
                break
            if packet is None:
                break
            data, fds = packet
            has_changed |= self._take(data, fds)
        return has_changed

    def _take(self, data: bytes, fds: list[int]) -> bool:
        """Take a message; return whether something changed that is shown."""
        try:
            message = messages.decode_to_viewer(data)
        except messages.DecodeError:
            message = None
        if isinstance(message, messages.Descriptors):
            for awaited in self._awaited.values():
                if awaited.is_waiting_for(message.token):
                    awaited.take(message, fds)
                    return False
        close_all(fds)
        match message:
            case messages.Welcome():
                self._wait_for_control(message)
            case messages.Manifest():
                self._take_manifest(message)
            case messages.Offer():
                if message.transport == self._requested.get(message.index):
                    self._wait_for_offer(message)
            case messages.Refused():  # the trainer ends the connection
                self.refused = message.reason
                self._connect_at = self._now + _REFUSED_PERIOD_S
            case _:
                self.dropped += 1
                return False
        return True

    def _take_manifest(self, manifest: messages.Manifest) -> None:
        """Take in the list of streams and viewers, or a part of it."""
        for info in manifest.streams:
            stream = self.streams.get(info.index)
            if stream is None:
                self.streams[info.index] = RemoteStream(self, info)
                self._to_measure.add(info.index)
            elif stream.info != info:
                stream.info_changed(info)
        self.viewers = [{"pid": v.pid, "client": v.client} for v in manifest.viewers]
        self.welcomed = self.welcomed or not manifest.continued

    def _wait_for_control(self, welcome: messages.Welcome) -> None:
        """Have the descriptors of the control block fetched."""
        self._wait_for(_CONTROL, welcome, messages.descriptor_counts(welcome.control))

    def _wait_for_offer(self, offer: messages.Offer) -> None:
        """Have an offer's descriptors fetched, but for those that the reader has."""
        known_tokens = self.streams[offer.index].known_tokens
        counts = messages.descriptor_counts(offer.ref)
        needed = {token: n for token, n in counts.items() if token not in known_tokens}
        self._wait_for(offer.index, offer, needed)

    def _wait_for(
        self,
        key: int,
        message: messages.Welcome | messages.Offer,
        needed: dict[str, int],
    ) -> None:
        """Have the descriptors of a message fetched.

        Args:
            key: key in `_awaited`, whose message is replaced.
            message: the message.
            needed: its tokens, and the number of descriptors behind each.
        """
        are_too_many = sum(needed.values()) > limits.MAX_PIECES
        self._drop_awaited(key)
        self._awaited[key] = _Awaited(message, needed, failed=are_too_many)

    def _await_descriptors(self) -> bool:
        """Request descriptors, and complete the messages that need no more.

        Their descriptors have arrived or cannot be had. Returns whether there are any.
        """
        has_changed = False
        for key, awaited in list(self._awaited.items()):
            if self._awaited.get(key) is not awaited:
                continue  # the connection was lost meanwhile
            if awaited.done:
                del self._awaited[key]
                self._complete(key, awaited)
                awaited.close()
                has_changed = True
            elif self._now >= awaited.request_at:
                self._request_descriptors(key, awaited)
        return has_changed

    def _complete(self, key: int, awaited: _Awaited) -> None:
        """Open what a message announced."""
        message = awaited.message
        if isinstance(message, messages.Offer):
            # Its reader reports missing descriptors.
            self.streams[key].offered(message, awaited.fds)
            return
        try:
            control = ControlReader(message.control, awaited.fds)
        except SharingError as error:
            self._disconnect(str(error))
            return
        if self.control is not None:
            self.control.close()
        self.control = control
        self._is_attached = True
        self.refused = None

    def _request_descriptors(self, key: int, awaited: _Awaited) -> None:
        """Request the descriptors of a message, again if the trainer was silent."""
        if awaited.request_at and isinstance(awaited.message, messages.Offer):
            self.streams[
                key
            ].fault = f"no memory within {_SILENCE_S:.0f} s: is the trainer stopped?"
            self.changes += 1
        awaited.close()
        awaited.request_at = self._now + _SILENCE_S
        for token in awaited.needed:
            self.send(messages.Fetch(token))

    def _drop_awaited(self, key: int) -> None:
        awaited = self._awaited.pop(key, None)
        if awaited is not None:
            awaited.close()

    def _disconnect(self, refused: str = "") -> None:
        """Forget the connection and the requests made over it.

        Idempotent.

        Args:
            refused: the reason why the run cannot be attached to for a while; "": it
                can.
        """
        if refused:
            self.refused = refused
            self.changes += 1
            self._connect_at = self._now + _REFUSED_PERIOD_S
        for key in list(self._awaited):
            self._drop_awaited(key)
        self._requested.clear()
        self._is_attached = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._pull is not None:
            self._pull.close()
            self._pull = None

    def end(self) -> None:
        """Note that the trainer is gone.

        Memory that it shared stays readable as long as it is mapped.
        """
        self.alive = False
        self.changes += 1
        self.ended_at = time.time()
        self._disconnect()
        self.watch.close()

    def close(self) -> None:
        """Detach from the run, and release everything. Idempotent."""
        self.send(messages.Bye())
        self._disconnect()
        for stream in self.streams.values():
            stream.release()
        if self.control is not None:
            self.control.close()
            self.control = None
        self.watch.close()
