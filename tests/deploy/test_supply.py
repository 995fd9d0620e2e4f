"""What is shipped beside the code, by tools that know its formats (make supply)."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from docs import generate_dependencies
from vllm_watch import __version__

pytestmark = pytest.mark.supply

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
WORKFLOW = ROOT / ".github/workflows/release.yml"
ON_CHANGES = ROOT / ".github/workflows/ci.yml"
UPDATES = ROOT / ".github/dependabot.yml"
COMPOSE = ROOT / "deploy/compose.yaml"
LOCKS = (
    "requirements.lock",
    "requirements-apprise.lock",
    "requirements-host.lock",
    "requirements-build.lock",
    "requirements-dev.lock",
)
SCHEMAS = {
    COMPOSE: "vendor.compose-spec", WORKFLOW: "vendor.github-workflows", ON_CHANGES: "vendor.github-workflows",
    UPDATES: "vendor.dependabot",
}  # fmt: skip


def run(tool: str, *arguments: str | Path) -> tuple[int, str]:
    """(exit status, what it says)."""
    done = subprocess.run(
        [BIN / tool, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("file", "schema"), SCHEMAS.items(), ids=lambda each: Path(each).name)
def test_file_is_of_its_schema(file: Path, schema: str) -> None:
    """compose.yaml by the compose specification, the workflow by GitHub's."""
    status, said = run("check-jsonschema", "--builtin-schema", schema, file)
    assert status == 0, said


@pytest.mark.parametrize("workflow", [WORKFLOW, ON_CHANGES, UPDATES], ids=lambda each: each.name)
def test_workflow_gives_an_attacker_nothing(workflow: Path) -> None:
    """Pinned actions, no secret that is kept, no text of others in a script, least rights."""
    status, said = run("zizmor", "--offline", "--no-progress", workflow)
    assert status == 0, said


def test_dockerfile_is_well_written() -> None:
    """hadolint has nothing to say."""
    assert run("hadolint", ROOT / "Dockerfile") == (0, "")


def test_sbom_names_all_that_is_locked() -> None:
    """Each package with its version and its licence, and ourselves as what it is about."""
    sbom = json.loads((ROOT / "dist/vllm-watch.cdx.json").read_text())
    about = sbom["metadata"]["component"]
    assert (about["name"], about["version"]) == ("vllm-watch", __version__)
    listed = {
        each["name"].lower().replace("_", "-"): each["version"]
        for each in sbom["components"] if each["licenses"]
    }  # fmt: skip
    locked = {e.name: e.version for e in generate_dependencies.locked() if "win32" not in e.marker}
    assert locked.items() <= listed.items()
    assert listed.keys() - locked.keys() <= {"vllm-watch"}


def test_locks_are_what_make_lock_writes() -> None:
    """Nothing was added, taken away or written by hand; newer versions alone change nothing."""
    before = {ROOT / name: (ROOT / name).read_bytes() for name in LOCKS}
    try:
        subprocess.run(["make", "-s", "lock"], cwd=ROOT, check=True, timeout=600)
        changed = [file.name for file, text in before.items() if file.read_bytes() != text]
    finally:
        for file, text in before.items():
            file.write_bytes(text)
    assert changed == []


def test_what_an_image_is_made_of_and_with_is_pinned_by_hash() -> None:
    """A tag may name another image tomorrow, and what is attested would be made of that."""
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["image"]["steps"]
    emulator = next(each["with"]["image"] for each in steps if "qemu" in each.get("uses", ""))
    push = next(each for each in steps if each.get("id") == "push")
    for image in (emulator, *(push["env"][each] for each in ("BASE", "BUILDKIT", "SCANNER"))):
        assert re.fullmatch(r"docker\.io/[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image)
    assert '--driver-opt "image=$BUILDKIT"' in push["run"]
    assert '--sbom "generator=$SCANNER"' in push["run"]
    assert '--build-arg "BASE=$BASE"' in push["run"]
