"""Announcements to viewers: the streams of the run, and where their frames are.

All of it happens on the helper thread.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from splatview_ipc.control import limits, messages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from splatview_ipc.publisher.stream import Stream
    from splatview_ipc.publisher.viewers import ViewerPeer

_ANNOUNCE_PERIOD_S = 0.05
"""Seconds between two manifests, and until a full queue is tried again."""


class Announcer:
    """Sends viewers the manifests and offers that have changed."""

    def __init__(self) -> None:
        self.must_announce = False
        """True if manifests may have changed, or a full queue refused something."""
        self._announced_at = -math.inf

    def announce_soon(self) -> None:
        """Have a manifest sent at the next opportunity, to a new viewer."""
        self._announced_at = -math.inf
        self.must_announce = True

    def hasten(self) -> bool:
        """Let the next manifest wait for no period; return whether one is to be sent.

        May be called from any thread.
        """
        # First: whatever is to be sent from now on goes at once.
        self._announced_at = -math.inf
        return self.must_announce

    def announce(
        self, peers: Collection[ViewerPeer], streams: dict[int, Stream], now: float
    ) -> float | None:
        """Send offers and manifests that have changed; return when the rest is due.

        Args:
            peers: the viewers.
            streams: all streams of the run, by index.
            now: the clock's seconds.
        """
        if self.must_announce and now >= self._announced_at + _ANNOUNCE_PERIOD_S:
            self._announced_at = now
            self.must_announce = False
            self._send_manifest(peers, streams.values())
        for peer in peers:
            self._send_offers(peer, streams)
        if self.must_announce and peers:
            return self._announced_at + _ANNOUNCE_PERIOD_S
        return None

    def _send_manifest(
        self, peers: Collection[ViewerPeer], streams: Iterable[Stream]
    ) -> None:
        """Send the list of streams and viewers to all that have another one."""
        manifest = _manifest_of(peers, streams)
        packets: list[bytes] = []
        for peer in peers:
            if peer.manifest == manifest:
                continue
            packets = packets or _packets(manifest)
            if all(map(peer.push.send, packets)):
                peer.manifest = manifest
            else:
                self.must_announce = True

    def _send_offers(self, peer: ViewerPeer, streams: dict[int, Stream]) -> None:
        """Tell a viewer where the frames of its streams are, if that has changed."""
        for index, transport in peer.opened.items():
            offer = streams[index].offer(transport)
            if offer is None:
                continue
            ref, note = offer
            if ref is peer.offered.get(index):
                continue
            message = messages.Offer(index, transport, ref, note)  # type: ignore[arg-type]
            if peer.push.send(messages.encode(message)):
                peer.offered[index] = ref
            else:
                self.must_announce = True


def _manifest_of(
    peers: Iterable[ViewerPeer], streams: Iterable[Stream]
) -> messages.Manifest:
    """Return the list of a run's streams and viewers."""
    infos = [stream.info for stream in streams]
    hellos = [peer.hello for peer in peers]
    return messages.Manifest(
        streams=tuple(info for info in infos if info is not None),
        viewers=tuple(messages.ViewerInfo(h.pid, h.client) for h in hellos),
    )


def _packets(manifest: messages.Manifest) -> list[bytes]:
    """Return a manifest as messages, in as many as its streams need."""
    packet = messages.encode(manifest)
    streams = manifest.streams
    if len(packet) <= limits.MAX_MESSAGE or len(streams) < 2:
        return [packet]
    middle = len(streams) // 2
    first = messages.Manifest(streams[:middle], manifest.viewers, continued=True)
    second = messages.Manifest(streams[middle:], manifest.viewers, manifest.continued)
    return [*_packets(first), *_packets(second)]
