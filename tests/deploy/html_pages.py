"""Reads pages of HTML: what a browser would fetch for them, and how many of each element their text has."""

import re
from collections import Counter
from html.parser import HTMLParser

# Tag → the attributes for which a browser asks somebody without being clicked. `a` is not among them.
FETCHED = {
    "script": ("src",), "link": ("href",), "img": ("src", "srcset"), "iframe": ("src",), "source": ("src", "srcset"),
    "video": ("src", "poster"), "audio": ("src",), "embed": ("src",), "object": ("data",), "track": ("src",),
    "form": ("action",), "base": ("href",), "image": ("href",), "use": ("href",), "input": ("src",),
}  # fmt: skip
COUNTED = {
    "h1", "h2", "h3", "h4", "ul", "ol", "li", "table", "tr", "th", "td", "pre", "code", "em", "strong", "img",
    "blockquote", "a",
}  # fmt: skip
FOREIGN = re.compile(r"^\s*(?:https?:|wss?:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"(?:url\(|@import)\s*[\"']?\s*((?:https?:)?//[^\"')\s;]+)", re.IGNORECASE)
IN_SCRIPTS = re.compile(r"(?:https?|wss?)://[\w.\-$]+")


class _Fetches(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            fetched = name in FETCHED.get(tag, ()) or (name == "xlink:href" and tag == "use")
            if fetched and FOREIGN.match(value or ""):
                self.found.append(f"<{tag} {name}={value}>")


def foreign(html: str) -> list[str]:
    """What the page makes a browser ask of another host."""
    parser = _Fetches()
    parser.feed(html)
    return parser.found + IN_STYLES.findall(html)


class _Counts(HTMLParser):
    """Of a whole text, or of what stands in `article`; without what the theme adds to it."""

    def __init__(self, *, whole: bool) -> None:
        super().__init__()
        self.inside = whole
        self.found: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = self.inside or tag == "article"
        given = dict(attrs)
        theirs = tag == "a" and (not given.get("href") or "headerlink" in (given.get("class") or ""))  # fmt: skip
        if self.inside and tag in COUNTED and not theirs:
            self.found[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self.inside = False


def counts(html: str, *, whole: bool) -> Counter[str]:
    """How many of each element: the same where a page is read in the same way."""
    parser = _Counts(whole=whole)
    parser.feed(html)
    return parser.found
