"""Programs of another user of the machine, for tests: requests to a web server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.wait import PATIENCE

if TYPE_CHECKING:
    from support.programs import Programs

OTHER = 65534


def why_not() -> str:
    """Return why programs here cannot become another user; "" when they can."""
    if os.getuid() != 0:
        return "only root can become another user"
    become = f"import os; os.setgroups([]); os.setgid({OTHER}); os.setuid({OTHER})"
    if subprocess.run([sys.executable, "-ISc", become], capture_output=True).returncode:
        return "this machine lets root not become another user (a user namespace without other ids, or seccomp)"
    return ""


needs_root = pytest.mark.skipif(bool(why_not()), reason=why_not() or "programs can become another user")

_REQUESTS = r"""
import json, os, re, socket, sys
"".encode("idna")  # modules of the interpreter may be out of the other user's reach
port, uid, patience, requests = json.loads(sys.argv[1])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
answers = []
for request in requests:
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as client:
        client.sendall(request.encode())
        answer = b""
        while part := client.recv(65536):
            answer += part
            head, _, body = answer.partition(b"\r\n\r\n")
            size = re.search(rb"Content-Length: (\d+)", head)
            if b" 101 " in head[:20] or size and len(body) >= int(size[1]):
                break
        answers.append(answer.decode(errors="replace"))
print(json.dumps(answers))
"""


def ask_as(programs: Programs, port: int, requests: list[bytes], uid: int = OTHER) -> list[str]:
    """Send each request from a process of `uid`; return the answers, of a WebSocket the head."""
    texts = [request.decode() for request in requests]
    program = programs.code(_REQUESTS, json.dumps([port, uid, PATIENCE, texts]), PYTHONPATH="")
    said, errors = program.communicate(timeout=PATIENCE * len(requests))
    assert said, errors
    return json.loads(said)
