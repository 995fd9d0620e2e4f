"""Format the processes that hold GPU memory as JSON and text."""

import pwd
from collections.abc import Sequence
from typing import Any

from vllm_watch.export.status import public_arguments
from vllm_watch.signals.holders import groups
from vllm_watch.signals.holders.records import STALE, GpuHolders, Holder
from vllm_watch.support.visible import visible


def report(gpus: Sequence[GpuHolders], note: str, *, local: bool) -> dict[str, Any]:
    """Return the JSON. If `local`, user names are resolved."""
    return {
        "gpus": [_gpu(each, local=local) for each in gpus],
        "remarks": list(groups.remarks(gpus)),
        "note": note or None,
    }


def _gpu(judged: GpuHolders, *, local: bool) -> dict[str, Any]:
    gpu, rest = judged.gpu, judged.unaccounted
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "mig_parent_uuid": gpu.mig_parent_uuid,
        "lost": gpu.lost,
        "memory_total_bytes": gpu.memory_total_bytes,
        "memory_used_bytes": gpu.memory_used_bytes,
        "memory_reserved_bytes": gpu.memory_reserved_bytes,
        "stale_bytes": judged.stale_bytes,
        "unaccounted_bytes": judged.unaccounted_bytes,
        "unaccounted": {
            "verdict": rest.verdict,
            "reason": rest.reason,
            "evidence": list(rest.evidence),
            "remedy": rest.remedy,
        },
        "holders": [_holder(each, local=local) for each in judged.holders or ()],
    }


def _holder(holder: Holder, *, local: bool) -> dict[str, Any]:
    process, judged = holder.process, holder.judged
    return {
        "pid": process.pid,
        "used_bytes": process.used_bytes,
        "user": user(holder, local=local),
        "command": command(holder),
        "age_seconds": holder.age_seconds,
        "place": holder.place,
        "verdict": judged.verdict,
        "reason": judged.reason if judged.verdict == STALE else None,
        "evidence": list(judged.evidence),
        "remedy": judged.remedy,
    }


def user(holder: Holder, *, local: bool) -> str | None:
    """Return the user's name or number."""
    uid = holder.process.uid
    if uid is None:
        return None
    if local:
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            pass
    return str(uid)


def command(holder: Holder) -> str | None:
    """Return the command without secrets, or the process's name."""
    shown = " ".join(public_arguments(holder.process.cmdline) or ()) or holder.process.name
    return shown and visible(shown)
