"""The documentation as a site (make docs): it asks nobody else for anything, and says what the pages say.

`make docs` builds it strictly and runs these over what it has built.
"""

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytestmark = pytest.mark.site

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build/site"
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="default-src \'self\';')
# Names of formats and of where code is from, in comments of the theme's scripts; and what these would fetch for
# pages of kinds that there are none of here (charts, a repository's stars), which the policy above forbids anyway.
KNOWN = {
    "http://www.w3.org", "http://www.mozilla.org", "https://github.com", "http://snowball.tartarus.org",
    "http://code.google.com", "https://clipboardjs.com", "http://lunrjs.com", "http://chasen.org",
    "http://underscorejs.org", "http://narwhaljs.org", "http://wiki.ecmascript.org", "http://wiki.commonjs.org",
    "http://tartarus.org", "http://people.mozilla.org", "http://msdn.microsoft.com", "http://docs.python.org",
    "http://en.wikipedia.org", "https://developer.mozilla.org", "https://bit.ly", "https://fontawesome.com",
    "https://unpkg.com", "https://api.github.com", "https://$",
}  # fmt: skip
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
PAGES = sorted(SITE.rglob("*.html"))
SOURCES = sorted((ROOT / "docs").rglob("*.md"))


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


def name(path: Path) -> str:
    return str(path.relative_to(SITE if path.is_relative_to(SITE) else ROOT))


def test_there_is_a_site() -> None:
    """make docs has built it; the rest would pass over nothing."""
    assert {"index.html", "readme/index.html", "changelog/index.html"} <= {
        name(page) for page in PAGES
    }
    assert len(PAGES) > len(SOURCES)


def test_pages_ask_nobody_else() -> None:
    """No page has a resource of another host, and each forbids the browser to fetch one."""
    texts = {name(page): page.read_text() for page in PAGES}
    assert {page: found for page, text in texts.items() if (found := foreign(text))} == {}
    assert [page for page, text in texts.items() if not POLICY.search(text)] == []


def test_styles_and_scripts_ask_nobody_else() -> None:
    """No style fetches from another host, and no script names one that is not known here."""
    styles = {name(file): IN_STYLES.findall(file.read_text()) for file in SITE.rglob("*.css")}
    assert len(styles) >= 2
    assert [found for found in styles.items() if found[1]] == []
    named = {url for file in SITE.rglob("*.js") for url in IN_SCRIPTS.findall(file.read_text())}
    assert named <= KNOWN


@pytest.mark.parametrize("source", SOURCES, ids=name)
def test_page_says_what_a_code_host_shows(source: Path) -> None:
    """Lists, tables, code and links are read as CommonMark reads them, which the site's parser is not."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - of the group docs

    place = source.relative_to(ROOT / "docs").with_suffix("")
    built = SITE / (place.parent if place.name == "index" else place) / "index.html"
    plain = MarkdownIt("commonmark").enable("table").render(source.read_text())
    assert counts(built.read_text(), whole=False) == counts(plain, whole=True)
