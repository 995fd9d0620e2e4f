"""The services of deploy/compose.yaml, with their variables filled in."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.daemon_process import ROOT

FOLDER = ROOT / "deploy"
FILE = FOLDER / "compose.yaml"


@dataclass(frozen=True)
class Mount:
    """A volume of a service: `source` is a path of the host, or the name of a volume."""

    source: str
    target: str
    named: bool


@dataclass(frozen=True)
class Service:
    """One service, with variables filled in."""

    name: str
    image: str
    mounts: tuple[Mount, ...]
    names: frozenset[str]  # under which others reach it
    raw: dict[str, Any]


def environment() -> dict[str, str]:
    """What deploy/.env sets."""
    lines = (FOLDER / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def services(profile: str, file: Path = FILE) -> dict[str, Service]:
    """The services that a profile starts, by name."""
    text = re.sub(r"\$\{(\w+)[^}]*\}", lambda found: environment()[found[1]], file.read_text())
    data = yaml.safe_load(text)["services"]
    return {
        name: _service(name, raw)
        for name, raw in data.items() if profile in raw.get("profiles", [profile])
    }  # fmt: skip


def _service(name: str, raw: dict[str, Any]) -> Service:
    networks = raw.get("networks", {})
    aliases = [alias for network in networks.values() for alias in network.get("aliases", ())]
    mounts = tuple(_mount(text) for text in raw.get("volumes", ()))
    return Service(name, raw["image"], mounts, frozenset({name, *aliases}), raw)


def _mount(text: str) -> Mount:
    source, target, *_ = text.split(":")
    if not source.startswith("."):
        return Mount(source, target, named=True)
    return Mount(os.path.normpath(FOLDER / source), target, named=False)
