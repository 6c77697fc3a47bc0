"""`python -m viewer_app serve | shot`: what `splatview serve` and `splatview shot` run."""

from __future__ import annotations

import sys


def main(args: list[str] | None = None) -> int:
    """The exit status: 0 when all went well, 2 for anything that a message can explain."""
    from viewer_app.commands import parse
    from viewer_app.errors import ViewerError

    command = parse(sys.argv[1:] if args is None else args)
    _allow_descriptors()
    try:
        command.execute()
    except ViewerError as e:
        print(f"splatview: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _allow_descriptors() -> None:
    """As many descriptors as may be had: a trainer's expandable segments come as one for each 20 MiB."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
