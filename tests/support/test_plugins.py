"""Modules of a folder are found by what they define."""

import sys

import pytest

from vllm_watch.support import plugins


@pytest.fixture
def folder(tmp_path, monkeypatch):
    package = tmp_path / "made_up_folder"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "base.py").write_text("class Settings: ...\nclass Detector: ...\n")
    (package / "zebra.py").write_text("class Settings: ...\nclass Detector: ...\n")
    (package / "ant.py").write_text("class Settings: ...\nclass Detector: ...\n")
    (package / "helper.py").write_text("class Settings: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "made_up_folder"
    for name in [name for name in sys.modules if name.startswith("made_up_folder")]:
        del sys.modules[name]


def test_what_is_whole_is_found_by_name(folder):
    """The contract and what has only some of the names are left out."""
    found = plugins.modules(folder, ("Settings", "Detector"))
    assert [plugins.slug(module) for module in found] == ["ant", "zebra"]
