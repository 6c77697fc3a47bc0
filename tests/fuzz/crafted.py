"""Small files whose headers claim much, or are made to be slow to look up: damage hardly ever finds these.

A function takes a seed of its target.
"""

from __future__ import annotations

import json


def wide_and_deep(seed: bytes) -> dict[str, bytes]:
    """Return JSON that is slow to look up, or nested."""
    document = json.loads(seed)
    made = {f"{n} levels": b'{"a": ' + b"[" * n + b"]" * n + b"}" for n in (200, 900, 980, 100_000)}
    made |= {f"{key}, {n} levels": json.dumps({**document, key: "@"}).replace('"@"', "[" * n + "]" * n).encode()
             for key in document for n in (400, 980)}
    many = {f"key {i:06}": i for i in range(30_000)}
    return made | {"30,000 keys": json.dumps(document | many).encode(), "nested names": b'{"a":' * 100_000}


ENDLESS = (b"\x80\x02](K\x01K\x01\x86q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(60))
           + b"}h\x3cK\x01se.")
"""A small pickle with a key that is hashed without end: a tower of values that each hold the one before twice."""
