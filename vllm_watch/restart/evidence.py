"""Archive the evidence for a restart before the restart destroys it."""

import asyncio
import io
import tarfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Protocol

from vllm_watch.state.attempt import Attempt
from vllm_watch.support.private_files import opener, own_folder

BUNDLES_MAX = 20
"""At most this many archives are kept."""

BYTES_MAX = 64 << 20

PART_SECONDS = 10.0
"""Timeout of one part. A hanging part must not block the others."""

ALL_SECONDS = 20.0
"""Timeout of all parts together. The rest of EVIDENCE_SECONDS is left for writing the archive."""

_WHY_CHARACTERS_MAX = 300

Parts = Mapping[str, AsyncIterator[bytes]]


class EvidenceSource(Protocol):
    """Supplies evidence of a target."""

    def parts(self, target: str) -> Parts:
        """Return the parts to archive, by file name."""


class EvidenceStore:
    """The archives of one watcher; if `folder` is None, nothing is kept."""

    def __init__(self, folder: Path | None, source: EvidenceSource) -> None:
        self._folder = folder
        self._source = source

    async def keep(self, attempt: Attempt) -> str | None:
        if self._folder is None:
            return None
        name, parts = f"{attempt.target}-{attempt.id}", self._source.parts(attempt.target)
        return str(await write(self._folder, name, parts))


async def write(folder: Path, name: str, parts: Parts) -> Path:
    """Write `name`.tar and delete the oldest archives. Raises OSError. `missing.txt` in the archive lists parts that failed or were too large."""
    gathered: dict[str, bytes] = {}
    missing: list[str] = []
    left = BYTES_MAX
    until_s = time.monotonic() + ALL_SECONDS
    for part, chunks in parts.items():
        try:
            async with asyncio.timeout(min(PART_SECONDS, until_s - time.monotonic())):
                body = await _whole(chunks, left)
        except Exception as error:  # noqa: BLE001 - the other parts are worth having
            why = "not in time" if isinstance(error, TimeoutError) else str(error)
            missing.append(f"{part}: {type(error).__name__}: {why}"[:_WHY_CHARACTERS_MAX])
            continue
        gathered[part] = body
        left -= len(body)
    if missing:
        gathered["missing.txt"] = "\n".join(missing).encode()
    return await asyncio.to_thread(_write, folder, name, gathered)


async def _whole(chunks: AsyncIterator[bytes], bytes_max: int) -> bytes:
    body = io.BytesIO()
    async for chunk in chunks:
        body.write(chunk)
        if body.tell() > bytes_max:
            raise ValueError(f"larger than the {bytes_max} bytes that are left")
    return body.getvalue()


def _write(folder: Path, name: str, parts: Mapping[str, bytes]) -> Path:
    own_folder(folder)
    path = folder / f"{_safe(name)}.tar"
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    try:
        # Mode "x" does not follow a planted symlink.
        with (
            open(new, "xb", opener=opener) as file,
            tarfile.open(fileobj=file, mode="w") as archive,
        ):
            for part, body in parts.items():
                entry = tarfile.TarInfo(f"{_safe(name)}/{_safe(part)}")
                entry.size, entry.mtime, entry.mode = len(body), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(body))
        new.rename(path)
    except BaseException:
        new.unlink(missing_ok=True)  # the journal needs the space
        raise
    for old in sorted(folder.glob("*.tar"), key=lambda each: each.lstat().st_mtime)[:-BUNDLES_MAX]:
        old.unlink(missing_ok=True)
    return path


def _safe(name: str) -> str:
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name)
    return kept.lstrip(".")[:150] or "unnamed"
