"""Renders the runbooks that the daemon serves: docs/detectors/*.md, alerts.md and restart.md as HTML of its package.

Rendered here, not by the daemon: it needs no Markdown library, and they are of its version. Links between runbooks
are kept; those to pages that the daemon does not serve are left as text.
"""

import re
import sys
from html import escape
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

sys.path.insert(0, str(Path(__file__).parent))

from generated import write_or_check

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SERVED = ROOT / "vllm_watch" / "export" / "runbooks"
PAGES = (*sorted((DOCS / "detectors").glob("*.md")), DOCS / "alerts.md", DOCS / "restart.md")
NAMES = tuple(page.stem for page in PAGES)

FRAME = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · vllm-watch runbook</title>
<link rel="icon" type="image/svg+xml" href="../page/icon.svg">
<link rel="stylesheet" href="../page/runbook.css">
</head>
<body>
<nav aria-label="Runbooks"><a href="../">Status page</a> {links}</nav>
<main>
{body}</main>
</body>
</html>
"""


def anchor(title: str) -> str:
    """The anchor of a heading, spelled as code hosts spell it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _address(link: str) -> str | None:
    """Where a link leads from a served runbook; None: the daemon does not serve it."""
    if link.startswith(("#", "https://", "http://")):
        return link
    path, hash_, place = link.partition("#")
    name = Path(path).stem
    return f"{name}{hash_}{place}" if path.endswith(".md") and name in NAMES else None


def _linked(tokens: list[Token]) -> list[Token]:
    """The tokens with links that lead somewhere."""
    kept: list[Token] = []
    dropped: list[bool] = []  # of each link that is open now
    for token in tokens:
        if token.type == "link_open":
            address = _address(str(token.attrs["href"]))
            dropped.append(address is None)
            if address is None:
                continue
            token.attrs["href"] = address
        elif token.type == "link_close" and dropped.pop():
            continue
        kept.append(token)
    return kept


def rendered(text: str) -> str:
    """One page of Markdown as the HTML between `<main>` and its end."""
    markdown = MarkdownIt("commonmark").enable("table")
    tokens = markdown.parse(text)
    for heading, inline in pairwise(tokens):
        if heading.type == "heading_open":
            heading.attrs["id"] = anchor(inline.content)
        if inline.children:
            inline.children = _linked(inline.children)
    html = str(markdown.renderer.render(tokens, markdown.options, {}))
    html = html.replace(' class="language-sh"', "")  # of commands the page knows one kind
    return re.sub(r"(?<=<pre><code>).*?(?=</code></pre>)", _lines, html, flags=re.DOTALL)


def _lines(code: re.Match[str]) -> str:
    """Each command by itself, so that a click selects one and not those of other platforms with it."""
    return "\n".join(f"<span>{line}</span>" for line in code[0].splitlines())


def page(name: str, text: str) -> str:
    """The whole HTML file."""
    links = " ".join(
        f'<a href="{each}"{" aria-current=page" if each == name else ""}>{each}</a>'
        for each in NAMES
    )
    title = text.partition("\n")[0].removeprefix("# ")
    return FRAME.format(title=escape(title), links=links, body=rendered(text))


if __name__ == "__main__":
    made = {SERVED / f"{each.stem}.html": page(each.stem, each.read_text()) for each in PAGES}
    sys.exit(write_or_check(made, SERVED.glob("*.html")))
