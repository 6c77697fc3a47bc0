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
        parts = urlsplit(address)
        connection = _connection(parts, timeout_s)
    except ValueError:
        return ""
    if connection is None:
        return ""
    with contextlib.closing(connection):
        try:
            target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
            connection.request("GET", target, headers=_headers(parts))
            answer = connection.getresponse()
        except (OSError, ValueError, http.client.HTTPException):
            return ""
        status = answer.status
        # A login by digest is left to FFmpeg: that it is refused here says nothing.
        has_digest = "digest" in answer.getheader("WWW-Authenticate", "").lower()
        is_open = status < 400 or (status == 401 and parts.username and has_digest)
        if is_open:
            return ""
        reason = printable(answer.reason)[:_MAX_REASON_LENGTH]
        return f"{status} {reason}".rstrip() + _HINTS.get(status, "")


def _connection(
    parts: SplitResult, timeout_s: float
) -> http.client.HTTPConnection | None:
    """Return a connection that is opened by its first request; None for other schemes.

    Raises ValueError for an odd port.
    """
    host = parts.hostname
    port = parts.port
    if not host:
        return None
    if parts.scheme == "https":
        # Certificates are not checked, as FFmpeg does not by default.
        context = ssl._create_unverified_context()
        return http.client.HTTPSConnection(
            host, port, timeout=timeout_s, context=context
        )
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    return None


def _headers(parts: SplitResult) -> dict[str, str]:
    """Return the headers of a request, with the address's login."""
    headers = {"User-Agent": "Lavf", "Connection": "close"}
    if parts.username:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    return headers
