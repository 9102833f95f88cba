#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""links.py FOLDER: every link, picture, script and style of the HTML files there leads to a file of the folder, and to an anchor of it; nothing that is
needed to see a page comes from another address. Prints what does not, as page: target."""
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.anchors, self.links, self.needed = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors |= {attributes[key] for key in ("id", "name") if attributes.get(key)}
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        for key in ("src", "data"):
            if attributes.get(key) and tag in ("img", "script", "iframe", "source", "object", "embed"):
                self.needed.append(attributes[key])
        if tag == "link" and attributes.get("href"):
            self.needed.append(attributes["href"])


def main(folder: Path) -> int:
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8", errors="replace")) for path in folder.rglob("*.html")}
    wrong, count = [], 0
    for path, page in pages.items():
        for target in page.links + page.needed:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.needed and parts.scheme not in ("data", "javascript", "about"):
                    wrong.append((path, target + " (needed to see the page)"))
                continue
            count += 1
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if file.is_dir():
                file = file / "index.html"
            if not file.exists():
                wrong.append((path, target))
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].anchors:
                # `search.html#` and the like need no anchor.
                wrong.append((path, target + " (no such anchor)"))
    for path, target in sorted(set(wrong)):
        print(f"{path.relative_to(folder.resolve())}: {target}")
    print(f"{len(pages)} pages, {count} links, {len(set(wrong))} broken")
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
