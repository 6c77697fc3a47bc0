"""`splatview demo`: the options are `splatview.demo.command`'s."""

from __future__ import annotations


def main(args: list[str]) -> int:
    from splatview.demo.command import Demo, run
    from splatview_ipc.system import entry

    return run(entry.options(Demo, "splatview demo", args))
