"""A page without a browser: a WebSocket client with blocking calls, for tests of the serving side."""

from __future__ import annotations

import asyncio
import math
import queue
import re
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from splatview_viewer.web import messages as m
from support.wait import PATIENCE

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Coroutine

    from splatview_viewer.web.connection import Connection


def address(viewer: subprocess.Popen[str], said: list[str]) -> tuple[int, str]:
    """Port and token of a page's address, once a viewer prints it; `said`: what it has printed goes there."""
    assert viewer.stderr is not None
    while True:
        line = viewer.stderr.readline()
        assert line, f"it ended: {said}"
        said.append(line)
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/?\?token=(\S+)", line):
            return int(found[1]), found[2]


class Image(m.Picture, frozen=True, tag="picture"):
    """A picture with its image."""

    data: bytes = b""


_decoder = msgspec.json.Decoder(m.ServerMessage)


class Pictures:
    """Pictures that a test has made, for a connection."""

    due = math.inf

    def __init__(self, connection: Connection) -> None:
        self.acks: list[int] = []
        self._connection = connection
        self._waiting: deque[tuple[m.Picture, bytes]] = deque()
        connection.pictures = self

    def put(self, picture: m.Picture, image: bytes) -> None:
        self._waiting.append((picture, image))
        self._connection.work()

    async def next(self, now: float) -> tuple[m.Picture, bytes] | None:
        return self._waiting.popleft() if self._waiting else None

    def acked(self, number: int, took: float, now: float) -> None:
        self.acks.append(number)
        self._connection.wake()


class Page:
    """One connection to a viewer at 127.0.0.1.

    What arrives is read in a thread: `receive` gives the messages and `picture` the pictures, each in order of
    arrival. `reading=False` reads nothing: a page on a stalled link.
    """

    def __init__(self, port: int, *, acks: bool = False, reading: bool = True):
        self.port = port
        self.acks = acks  # answer every picture, as a page that has drawn it does
        self.close_code: int | None = None
        self.close_reason = ""
        self._reading = reading
        self._messages: queue.Queue[m.ServerMessage] = queue.Queue()
        self._pictures: queue.Queue[Image] = queue.Queue()
        self._over = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="page", daemon=True)
        self._thread.start()
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse[Any] | None = None
        self._reader: asyncio.Task[None] | None = None

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def connect(self, *, token: str | None = None, headers: dict[str, str] | None = None) -> Page:
        """Open the socket. Raises aiohttp.WSServerHandshakeError when it is refused; `headers` replace the usual ones,
        "" leaves one out."""
        sent = {"Origin": f"http://127.0.0.1:{self.port}", **(headers or {})}
        self._run(self._connect({k: v for k, v in sent.items() if v}, token))
        return self

    def greet(self, width: int = 320, height: int = 240, scale: float = 1.0, *, id: str = "page",
              visible: bool = True) -> m.Welcome:
        """Say hello; the viewer's welcome."""
        self.send(m.Hello(protocol=m.PROTOCOL, id=id, width=width, height=height, scale=scale, visible=visible))
        answer = self.receive()
        assert isinstance(answer, m.Welcome), answer
        return answer

    def read(self) -> None:
        """Begin to read, for a page with `reading=False`."""
        self._loop.call_soon_threadsafe(self._start_reading)

    def send(self, message: m.ClientMessage | str | bytes) -> None:
        """A message, or any text or bytes in its place."""
        assert self._socket is not None
        if isinstance(message, bytes):
            self._run(self._socket.send_bytes(message))
        else:
            self._run(self._socket.send_str(message if isinstance(message, str) else m.encode(message)))

    def receive(self) -> m.ServerMessage:
        return self._next(self._messages, "message")

    def messages(self) -> list[m.ServerMessage]:
        """The messages that have come since this was asked last. Does not wait."""
        return [self._messages.get() for _ in range(self._messages.qsize())]

    def picture(self) -> Image:
        return self._next(self._pictures, "picture")

    def next_picture(self) -> Image | None:
        """The next picture; None where it has not come. Does not wait."""
        return None if self._pictures.empty() else self._pictures.get()

    @property
    def waiting(self) -> int:
        """Pictures that have come and were not taken."""
        return self._pictures.qsize()

    def newest(self) -> Image:
        """The last picture that has come, or else the next one."""
        picture = self.picture()
        return self.latest() or picture

    def latest(self) -> Image | None:
        """The last picture that has come since this was asked last; None for none. Does not wait."""
        picture = None
        while (later := self.next_picture()) is not None:
            picture = later
        return picture

    def ended(self) -> bool:
        """Whether the server closes the connection; then `close_code` and `close_reason` are set."""
        return self._over.wait(PATIENCE)

    @property
    def over(self) -> bool:
        """Whether it has closed it."""
        return self._over.is_set()

    def drop(self) -> None:
        """The connection is gone without a word, as when a machine loses its network."""
        assert self._socket is not None
        transport = self._socket._writer.transport
        self._loop.call_soon_threadsafe(transport.abort)

    def end(self) -> None:
        """Close everything. Idempotent."""
        if self._loop.is_closed():
            return
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _next(self, source: queue.Queue[Any], what: str) -> Any:
        try:
            return source.get(timeout=PATIENCE)
        except queue.Empty:
            state = f"closed: {self.close_code} {self.close_reason}" if self.over else "open"
            raise AssertionError(f"no {what} within {PATIENCE} s; the connection is {state}") from None

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _connect(self, headers: dict[str, str], token: str | None) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        query = f"?token={token}" if token is not None else ""
        self._socket = await self._session.ws_connect(f"http://127.0.0.1:{self.port}/ws{query}", headers=headers,
                                                      max_msg_size=0)
        if self._reading:
            self._start_reading()

    def _start_reading(self) -> None:
        self._reader = self._loop.create_task(self._read())

    async def _read(self) -> None:
        socket = self._socket
        assert socket is not None
        coming, came = None, 0.0
        while True:
            message = await socket.receive()
            if message.type is aiohttp.WSMsgType.CLOSE:
                self.close_reason = message.extra or ""
            if message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                break
            if message.type is aiohttp.WSMsgType.TEXT:
                answer, came = _decoder.decode(message.data), self._loop.time()
                if isinstance(answer, m.Picture):
                    coming = answer
                else:
                    self._messages.put(answer)
                continue
            assert coming is not None
            self._pictures.put(Image(**msgspec.structs.asdict(coming), data=message.data))
            if self.acks:
                await socket.send_str(m.encode(m.Ack(coming.number, (self._loop.time() - came) * 1e3)))
            coming = None
        self.close_code = socket.close_code
        self._over.set()

    async def _end(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait((self._reader,))
        if self._socket is not None:
            self._socket._writer.transport.abort()
            await self._socket.close()
        if self._session is not None:
            await self._session.close()
        await asyncio.sleep(0)
