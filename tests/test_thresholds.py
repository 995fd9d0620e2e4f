"""No number without a reason: what judgement rests on stands in the docs, and why in the code."""

import importlib.util
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location(
    "generate_thresholds", ROOT / "docs/generate_thresholds.py"
)
assert SPEC is not None
assert SPEC.loader is not None
generator = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = generator
SPEC.loader.exec_module(generator)

NAMED = [
    (file, threshold)
    for folder in generator.FOLDERS
    for file in generator.files(folder)
    for threshold in generator.thresholds(file)
]


def test_every_number_has_a_reason_and_stands_in_the_docs():
    """The reason is the text after it in the code, in a sentence or a part of one."""
    pages = ("thresholds", "configuration")
    rows = "".join((ROOT / f"docs/{page}.md").read_text() for page in pages)
    unexplained = [
        f"{file.stem}.{each.name}"
        for file, each in NAMED
        if len(each.reason) < 15 or not re.search(rf"`{each.name}=([\w+]+ )?[\d-]", rows)
    ]
    assert unexplained == [], "say why, in a text after it, and make generate"


def test_none_is_overlooked():
    names = {(file.name, each.name) for file, each in NAMED}
    for folder in generator.FOLDERS:
        for file in generator.files(folder):
            found = re.findall(
                r"^(_?[A-Z][A-Z_]+)(?:: [\w.]+)? = -?\d", file.read_text(), re.MULTILINE
            )
            assert {(file.name, name) for name in found if name not in generator.HTTP} <= names
