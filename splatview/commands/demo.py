"""`splatview demo`: the options are `splatview.demo.command`'s."""

from __future__ import annotations


def main(args: list[str]) -> int:
    import tyro

    from splatview.demo.command import Demo, run

    return run(tyro.cli(Demo, args=args, prog="splatview demo", description=Demo.__doc__))
