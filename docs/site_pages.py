"""What the site has beside docs/: the README, the changelog, and files of the repository that pages link to.

A hook of mkdocs (mkdocs.yml). In the repository a link such as `../deploy/systemd` leads to a folder, as a code host
shows it. In the site there is no folder: there it leads to a page with the text of each file in it.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = "docs"
PAGES = {"README.md": "readme.md", "CHANGELOG.md": "changelog.md"}
SHOWN = "repository"  # the folder in the site
LINK = re.compile(r"(?<=\]\()(?P<link>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
KINDS = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".py": "python", ".service": "ini", ".conf": "ini"}  # fmt: skip


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the page of every kind of incident, where the shelf Operate has its place."""
    for shelf in config.nav or ():
        for part in (each for parts in shelf.values() for each in parts if "Runbooks" in each):
            pages = sorted((ROOT / DOCS / "detectors").glob("*.md"))
            part["Runbooks"] = [f"detectors/{page.name}" for page in pages]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text()))
    for path in sorted(linked()):
        uri = f"{SHOWN}/{path}.md"
        files.append(File.generated(config, uri, content=shown(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave docs/ to where the site has what they lead to."""
    uri = page.file.src_uri
    source = {site: name for name, site in PAGES.items()}.get(uri, f"{DOCS}/{uri}")
    return LINK.sub(lambda found: in_the_site(found, source, uri), markdown)


def in_the_site(found: re.Match[str], source: str, uri: str) -> str:
    """One link of the file `source` as the page `uri` has it."""
    if "://" in found["link"]:
        return found[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), found["link"]))
    target = PAGES.get(path) or (
        path.removeprefix(f"{DOCS}/") if path.startswith(f"{DOCS}/") else f"{SHOWN}/{path}.md"
    )
    return posixpath.relpath(target, posixpath.dirname(uri) or ".") + (found["anchor"] or "")


def linked() -> set[str]:
    """What of the repository, outside docs/, its pages link to."""
    sources = [*(ROOT / name for name in PAGES), *(ROOT / DOCS).rglob("*.md")]
    places: set[str] = set()
    for source in sources:
        for found in LINK.finditer(source.read_text()):
            place = (source.parent / found["link"]).resolve()
            if "://" not in found["link"] and place.exists() and place.is_relative_to(ROOT):
                places.add(place.relative_to(ROOT).as_posix())
    return {p for p in places if p not in PAGES and p != DOCS and not p.startswith(f"{DOCS}/")}


def shown(place: Path) -> str:
    """A page with the text of a file, or of each file of a folder."""
    name = place.relative_to(ROOT).as_posix()
    if place.is_file():
        return f"# {name}\n\n{fenced(place)}"
    inside = sorted(
        path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    return f"# {name}\n\n" + "\n".join(
        f"## {path.relative_to(place).as_posix()}\n\n{fenced(path)}" for path in inside
    )


def fenced(file: Path) -> str:
    """Its text as a block of code."""
    return f"~~~~{KINDS.get(file.suffix, 'text')}\n{file.read_text().rstrip()}\n~~~~\n"
