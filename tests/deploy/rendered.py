"""What `kubectl kustomize` makes of a folder of deploy/kubernetes.

The folders are written in today's language. kubectl before 1.21, as Debian 12 has it, knows only the first one,
which says the same in other words: for that kubectl they are put into them, in a copy.
"""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from tests.daemon_process import ROOT

FOLDER = ROOT / "deploy/kubernetes"
WAYS = ("fleet", "fleet-evict", "fleet-secure", "node", "node-host-pid", "sidecar", "sidecar-kserve", "sidecar-production-stack")  # fmt: skip
RIGHTS = tuple(f"rights/{each.name}" for each in sorted((FOLDER / "rights").iterdir()))
ALL = (*WAYS, *RIGHTS, "monitoring", "monitors")
TODAYS_LANGUAGE = 21  # the minor version of kubectl from which on it is understood

Object = dict[str, Any]


@cache
def minor_version(kubectl: str = "kubectl") -> int:
    """Of this kubectl: 32 of 1.32."""
    done = run(kubectl, "version", "--client", "-o", "json")
    return int(json.loads(done)["clientVersion"]["minor"].rstrip("+"))


def run(*command: str) -> str:
    """What it prints; raises RuntimeError with what it complains of."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


@cache
def rendered(folder: str, kubectl: str = "kubectl") -> tuple[Object, ...]:
    """The objects, in kustomize's order."""
    return render(ROOT, folder, kubectl)


def render(root: Path, folder: str, kubectl: str = "kubectl") -> tuple[Object, ...]:
    """The same, of a copy of the repository's folders at `root`."""
    if minor_version(kubectl) >= TODAYS_LANGUAGE:
        return _loaded(run(kubectl, "kustomize", str(root / "deploy/kubernetes" / folder)))
    with TemporaryDirectory() as copy:
        copied(root, Path(copy))
        for file in Path(copy).rglob("kustomization.yaml"):
            file.write_text(yaml.safe_dump(in_its_first_language(file)))
        objects = _loaded(run(kubectl, "kustomize", f"{copy}/deploy/kubernetes/{folder}"))
        return tuple(_without_nothing(each) for each in objects)


def copied(root: Path, to: Path) -> None:
    """Copy all that a rendering reads."""
    for each in ("deploy/kubernetes", "dashboards"):
        shutil.copytree(root / each, to / each)


def in_its_first_language(file: Path) -> Object:
    """Of folders among the resources, and of patches, the names have changed."""
    document: Object = yaml.safe_load(file.read_text())
    resources = document.pop("resources", [])
    folders = [each for each in resources if (file.parent / each).is_dir()]
    patches = document.pop("patches", [])
    assert all(each.keys() == {"path"} for each in patches), "a patch that selects its objects"
    words = {
        "bases": folders,
        "resources": [each for each in resources if each not in folders],
        "patchesStrategicMerge": [each["path"] for each in patches],
    }
    return document | {key: value for key, value in words.items() if value}


def _without_nothing(value: Any) -> Any:
    """It leaves a null where a patch takes something away that was not there, which the API server ignores."""
    if isinstance(value, dict):
        return {key: _without_nothing(each) for key, each in value.items() if each is not None}
    return [_without_nothing(each) for each in value] if isinstance(value, list) else value


def _loaded(text: str) -> tuple[Object, ...]:
    return tuple(each for each in yaml.safe_load_all(text) if each)


def of_kind(folder: str, *kinds: str) -> list[Object]:
    """Those of one kind."""
    return [each for each in rendered(folder) if each["kind"] in kinds]
