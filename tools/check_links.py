"""Check the links between built pages: files and anchors must exist.

    python tools/check_links.py build/docs

Links to other sites are left to `make links`.
"""

from __future__ import annotations

import argparse
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINKING_ATTRIBUTES = ("href", "src")


class PageParser(HTMLParser):
    """Collects the anchors of a page and the addresses that it names."""

    def __init__(self) -> None:
        """Start without anchors and addresses."""
        super().__init__()
        self.anchors: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect from one element."""
        for name, value in attrs:
            if not value:
                continue
            if name == "id":
                self.anchors.add(value)
            if name in _LINKING_ATTRIBUTES:
                self.addresses.append(value)


def parse_pages(folder: Path) -> dict[Path, PageParser]:
    """Parse every page below a folder."""
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        pages[path] = PageParser()
        pages[path].feed(path.read_text())
    return pages


def dead_link(address: str, page: Path, pages: dict[Path, PageParser]) -> str:
    """Return what an address of a page lacks; "" if it leads somewhere or outside."""
    url = urlsplit(address)
    if url.scheme or url.netloc:
        return ""
    target = page
    if url.path:
        target = (page.parent / unquote(url.path)).resolve()
    if not target.is_file():
        return "no such file"
    anchor = unquote(url.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return "no such anchor"
    return ""


def main() -> int:
    """Print the dead links below a folder; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what `make docs` built")
    folder = parser.parse_args().folder.resolve()
    pages = parse_pages(folder)
    if not pages:
        print(f"{folder} has no pages: run make docs", file=sys.stderr)
        return 1
    count = 0
    dead = 0
    for page, parsed in pages.items():
        for address in parsed.addresses:
            count += 1
            problem = dead_link(address, page, pages)
            if problem:
                dead += 1
                print(f"{page.relative_to(folder)}: {address}: {problem}")
    print(f"{len(pages)} pages, {count} links, {dead} dead")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
