"""The viewers that are attached to a run, and their requests.

All of it happens on the helper thread.
"""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from splatview_ipc.control import descriptors, limits, mail, messages
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.sockets import pid_namespace
from splatview_ipc.publisher.announcer import Announcer
from splatview_ipc.publisher.selection_masks import SelectionMask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from splatview_ipc.control.messages import Ref
    from splatview_ipc.control.sockets import Connection, Server
    from splatview_ipc.publisher.stream import Stream
    from splatview_ipc.shm.control_block import ControlBlock

_MAX_NAMED = 2
"""Number of viewers that are named as those that paused the run."""


@dataclass
class ViewerPeer:
    """A viewer that is attached to the run."""

    connection: Connection
    hello: messages.Hello
    push: mail.Push
    pidfd: int = -1
    """Becomes readable when the viewer dies; -1: none.

    A process that the viewer forked may keep the connection beyond that.
    """
    paused: bool = False
    """True while this viewer wants the run paused."""
    manifest: messages.Manifest | None = None
    """The manifest sent last."""
    opened: dict[int, str] = field(default_factory=dict)
    """Transports by stream."""
    paces: dict[int, float] = field(default_factory=dict)
    """Versions a second that it takes at most, by stream, as far as it has said."""
    offered: dict[int, Ref] = field(default_factory=dict)
    """References sent last, by stream."""
    masks: dict[int, SelectionMask] = field(default_factory=dict)
    """Masks of which pieces are still to come, by stream."""

    def close(self) -> None:
        self.push.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)


class Viewers:
    """Serves the viewers that are attached to a run."""

    def __init__(
        self,
        folder: Path,
        server: Server,
        control: ControlBlock,
        streams: Callable[[], Iterable[Stream]],
        on_request: dict[tuple[str, str], Callable[[Any], None]],
        endpoint: Callable[[Path, str], str],
    ) -> None:
        """Start without viewers.

        Args:
            folder: the run's folder.
            server: the trainer's end of all connections.
            control: the run's control block.
            streams: returns all streams of the run.
            on_request: as `Publisher.on_request`.
            endpoint: as `mail.endpoint`.
        """
        self._folder = folder
        self._server = server
        self._control = control
        self._streams = streams
        self._on_request = on_request
        self._endpoint = endpoint
        self._namespace = pid_namespace()
        self._peers: dict[Connection, ViewerPeer] = {}
        self._selecting: dict[str, Connection] = {}
        """The connection of the viewer whose user selected last, by stream."""
        self.announcer = Announcer()

    def pidfds(self) -> list[int]:
        """Return the descriptors that become readable when a viewer dies."""
        return [peer.pidfd for peer in self._peers.values() if peer.pidfd >= 0]

    def detach_dead(self, ready: set[int]) -> None:
        """Detach the viewers whose descriptors are among those that are readable."""
        dead = [peer for peer in self._peers.values() if peer.pidfd in ready]
        for peer in dead:
            self.detach(peer.connection)

    def handle(self, connection: Connection, message: messages.ToTrainer) -> bool:
        """Serve a message; return whether it was valid. Raises EndedError."""
        peer = self._peers.get(connection)
        if peer is not None:
            return self._serve(peer, message)
        if isinstance(message, messages.Hello):
            self._welcome(connection, message)
            return True
        return False

    def _serve(self, peer: ViewerPeer, message: messages.ToTrainer) -> bool:
        """Serve a viewer's request; return False if it is invalid.

        Raises EndedError.
        """
        match message:
            case messages.Fetch():
                descriptors.send(peer.connection, message.token)
            case messages.Open():
                return self._open(peer, message)
            case messages.Release():
                return self._release(peer, message.index)
            case messages.VersionPace():
                return self._note_pace(peer, message)
            case (
                messages.Snapshot()
                | messages.Photos()
                | messages.Draw()
                | messages.SetControl()
            ):
                return self._pass_on(peer, message)
            case messages.SelectionBits():
                return self._take_mask(peer, message)
            case messages.Pause():
                # A viewer that resumes the run resumes it for all.
                changed = [peer] if message.paused else self._peers.values()
                for changed_peer in changed:
                    changed_peer.paused = message.paused
                self._update_pause()
            case messages.Step():
                self._control.granted_steps += self._control.paused
            case messages.Bye():
                self.detach(peer.connection)
            case _:
                return False
        return True

    def _open(self, peer: ViewerPeer, message: messages.Open) -> bool:
        """Share a stream over a transport; return whether that is offered."""
        index = message.index
        transport = message.transport
        stream = _by_index(self._streams()).get(index)
        info = stream.info if stream is not None else None
        if stream is None or info is None or transport not in info.transports:
            return False
        last_transport = peer.opened.get(index)
        peer.offered.pop(index, None)  # a repeated Open requests the offer again
        peer.paces.pop(index, None)
        if transport != last_transport:
            stream.open(transport)
            _call(self._on_request, stream, message)
            peer.opened[index] = transport
            if last_transport is not None:
                stream.release(last_transport)
                _follow_paces(self._peers.values(), stream, last_transport)
        _follow_paces(self._peers.values(), stream, transport)
        return True

    def _release(self, peer: ViewerPeer, index: int) -> bool:
        """End the sharing of a stream; return whether it was shared."""
        transport = peer.opened.pop(index, None)
        if transport is None:
            return False
        peer.offered.pop(index, None)
        peer.paces.pop(index, None)
        peer.masks.pop(index, None)
        stream = _by_index(self._streams())[index]
        stream.release(transport)
        _follow_paces(self._peers.values(), stream, transport)
        return True

    def _note_pace(self, peer: ViewerPeer, message: messages.VersionPace) -> bool:
        """Note how many versions a viewer takes; return whether the stream is open."""
        index = message.index
        transport = peer.opened.get(index)
        if transport is None:
            return False
        peer.paces[index] = message.hz
        stream = _by_index(self._streams())[index]
        _follow_paces(self._peers.values(), stream, transport)
        return True

    def _pass_on(
        self,
        peer: ViewerPeer,
        message: messages.Snapshot
        | messages.Photos
        | messages.Draw
        | messages.SetControl,
    ) -> bool:
        """Call the run's function for a request; return whether its stream is open."""
        if message.index not in peer.opened:
            return False
        _call(self._on_request, _by_index(self._streams())[message.index], message)
        return True

    def _take_mask(self, peer: ViewerPeer, bits_piece: messages.SelectionBits) -> bool:
        """Take a piece of a mask; return whether the script has asked for it.

        A piece of a scene of another size, or out of turn, ends its mask.
        """
        stream = _by_index(self._streams()).get(bits_piece.index)
        if stream is None or bits_piece.index not in peer.opened:
            return False
        if not stream.wants_selection:
            return False
        mask = peer.masks.pop(bits_piece.index, None)
        if bits_piece.offset == 0:
            mask = SelectionMask(bits_piece, stream.resize_count)
        if bits_piece.count not in (0, stream.count) or mask is None:
            return True
        if not mask.add(bits_piece):
            return True
        if not mask.is_whole:
            peer.masks[bits_piece.index] = mask
            return True
        selecting = self._selecting.get(stream.name, peer.connection)
        is_others = selecting is not peer.connection and selecting in self._peers
        if mask.is_again and is_others:
            return True
        self._selecting[stream.name] = peer.connection
        _call(self._on_request, stream, mask)
        return True

    def _welcome(self, connection: Connection, hello: messages.Hello) -> None:
        """Attach a viewer, or refuse it with a reason."""
        reason = ""
        push: mail.Push | None = None
        if hello.protocol != limits.PROTOCOL or not hello.inbox:
            own_version = limits.VERSION, limits.PROTOCOL
            reason = messages.mismatch((hello.version, hello.protocol), own_version)
        elif len(self._peers) >= limits.MAX_VIEWERS:
            reason = (
                f"{limits.MAX_VIEWERS} viewers are attached to this run already: close "
                "one"
            )
        else:
            try:
                push = mail.Push(self._endpoint(self._folder, hello.inbox))
            except SharingError as error:
                reason = f"the run cannot answer now: {error}"
        if push is None:
            connection.send(messages.encode(messages.Refused(reason)))
            self.detach(connection)  # what was sent arrives
            return
        peer = ViewerPeer(connection, hello, push)
        self._peers[connection] = peer
        connection.closes_at = math.inf
        if hello.namespace in (0, self._namespace):
            # Without a pidfd its connection tells that it has ended.
            with contextlib.suppress(OSError):
                peer.pidfd = os.pidfd_open(hello.pid)
        push.send(messages.encode(messages.Welcome(self._control.segment.ref)))
        self.announcer.announce_soon()

    def detach(self, connection: Connection) -> None:
        """End a connection, and take back all that its viewer has. Idempotent."""
        peer = self._peers.pop(connection, None)
        self._server.close_connection(connection)
        if peer is None:
            return
        for index in list(peer.opened):
            self._release(peer, index)
        peer.close()
        # A viewer that was killed did not remove its inbox.
        with contextlib.suppress(OSError):
            (self._folder / peer.hello.inbox).unlink()
        self._update_pause()  # its pause ends with it
        self.announcer.must_announce = True

    def _update_pause(self) -> None:
        """Pause the run while a viewer wants it, and name those that do."""
        names = [
            f"{peer.hello.client or 'viewer'} (process {peer.hello.pid})"
            for peer in self._peers.values()
            if peer.paused
        ]
        if len(names) > _MAX_NAMED:
            names = [*names[:_MAX_NAMED], "others"]
        self._control.pause(" and ".join(names))

    def announce(self, now: float) -> float | None:
        """Send offers and manifests that have changed; return when the rest is due."""
        return self.announcer.announce(
            self._peers.values(), _by_index(self._streams()), now
        )

    def close(self) -> None:
        """Close what belongs to the viewers, but for their connections."""
        for peer in self._peers.values():
            peer.close()


def _by_index(streams: Iterable[Stream]) -> dict[int, Stream]:
    return {stream.index: stream for stream in streams}


def _call(
    on_request: dict[tuple[str, str], Callable[[Any], None]],
    stream: Stream,
    message: object,
) -> None:
    """Call the run's function for a message about a stream, if there is one."""
    call = on_request.get((type(message).__name__, stream.name))
    if call is not None:
        call(message)


def _follow_paces(peers: Iterable[ViewerPeer], stream: Stream, transport: str) -> None:
    """Have a stream be written as often as the fastest reader of a transport needs it."""
    index = stream.index
    paces = [
        peer.paces.get(index, limits.MAX_PACE)
        for peer in peers
        if peer.opened.get(index) == transport
    ]
    if paces:
        stream.follow_pace(transport, max(paces))
