"""Writes docs/llms.txt, the index of the documentation for language models (https://llmstxt.org), from mkdocs.yml."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))

from generated import write_or_check

DOCS = Path(__file__).parent
PAGE = DOCS / "llms.txt"


def text() -> str:
    """Return the index: one section for each of the site's, one line for each page."""
    site = yaml.load((DOCS.parent / "mkdocs.yml").read_text(), yaml.BaseLoader)  # noqa: S506 - it makes texts only
    return f"# {site['site_name']}\n\n> {site['site_description']}.\n" + "".join(
        f"\n## {title}\n\n" + "".join(f"{line}\n" for line in lines(pages))
        for section in site["nav"]
        for title, pages in section.items()
    )


def lines(pages: Any) -> Iterator[str]:
    """Yield one line for each page below, however deep the navigation is; docs/site_pages.py makes those that are no file."""
    if isinstance(pages, dict):
        for title, below in pages.items():
            found = [f"detectors/{file.name}" for file in sorted((DOCS / "detectors").glob("*.md"))]
            yield from lines(found if title == "Runbooks" else below)
    elif isinstance(pages, list):
        for each in pages:
            yield from lines(each)
    elif (DOCS / pages).exists():
        title, about = summary((DOCS / pages).read_text())
        yield f"- [{title}]({pages}): {about}"


def summary(page: str) -> tuple[str, str]:
    """Return a page's title, and the first sentence below it without its links."""
    title = re.findall(r"^# (.+)$", page, re.MULTILINE)[0]
    body = re.sub(
        r"<!--.*?-->|^```.*?^```",
        "",
        page.partition(f"# {title}")[2],
        flags=re.DOTALL | re.MULTILINE,
    )
    texts = [each for each in re.split(r"\n\s*\n", body) if re.match(r"\s*[A-Za-z`*\[]", each)]
    first = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(texts[0].split()) if texts else "")
    return title, re.split(r"(?<=[.:])\s", first)[0].rstrip(":")


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: text()}))
