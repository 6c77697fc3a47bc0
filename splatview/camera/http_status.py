"""Ask servers that give no stream for their refusal, which FFmpeg does not report."""

from __future__ import annotations

import base64
import contextlib
import http.client
import ssl
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_MAX_REASON_LENGTH = 60
_HINTS = {
    401: "; user and password go into the address, http://USER:PASSWORD@HOST/",
    404: "; look for the address of the stream in the camera's manual",
}


def refusal_of(address: str, timeout_s: float) -> str:
    """Ask a server for an http or https address; return its refusal.

    Redirects are not followed.

    Returns:
        For example "401 Unauthorized"; "" for another answer, none, or another
        protocol.
    """
    try:
        url = urlsplit(address)
        connection = _connection(url, timeout_s)
    except ValueError:
        return ""
    if connection is None:
        return ""
    with contextlib.closing(connection):
        try:
            target = url._replace(scheme="", netloc="", fragment="").geturl() or "/"
            connection.request("GET", target, headers=_headers(url))
            answer = connection.getresponse()
        except (OSError, ValueError, http.client.HTTPException):
            return ""
        status = answer.status
        # A login by digest is left to FFmpeg: that it is refused here says nothing.
        has_digest = "digest" in answer.getheader("WWW-Authenticate", "").lower()
        is_open = status < 400 or (status == 401 and url.username and has_digest)
        if is_open:
            return ""
        reason = printable(answer.reason)[:_MAX_REASON_LENGTH]
        return f"{status} {reason}".rstrip() + _HINTS.get(status, "")


def _connection(
    url: SplitResult, timeout_s: float
) -> http.client.HTTPConnection | None:
    """Return a connection that is opened by its first request; None for other schemes.

    Raises ValueError for an odd port.
    """
    host = url.hostname
    port = url.port
    if not host:
        return None
    if url.scheme == "https":
        # Certificates are not checked, as FFmpeg does not by default.
        context = ssl._create_unverified_context()
        return http.client.HTTPSConnection(
            host, port, timeout=timeout_s, context=context
        )
    if url.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    return None


def _headers(url: SplitResult) -> dict[str, str]:
    """Return the headers of a request, with the address's login."""
    headers = {"User-Agent": "Lavf", "Connection": "close"}
    if url.username:
        login = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    return headers
