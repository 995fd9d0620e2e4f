"""Judges idle processes that hold GPU memory for engines.

Engines map this memory, and end if the process ends. Examples are vLLM's weight daemon, NVIDIA's
GPU Memory Service, and the KV servers of LMCache and Mooncake. Neither /proc nor NVML shows such
mappings, so command lines are the only sign. Source: vLLM #54921, #56680, #57577; ai-dynamo/dynamo
#6818.
"""

import re
from collections.abc import Iterable

from vllm_watch.samples.process import ProcessSample
from vllm_watch.signals.holders import roles
from vllm_watch.signals.holders.case import Case
from vllm_watch.signals.holders.records import ACTIVE, UNKNOWN, Judged

_BORROWS = re.compile(r"--load[-_]format[= ](ipc_cache|gms)\b|--gms-shadow-mode\b")

_LENDS = "it holds GPU memory that engines map: ending it ends all of these engines"
_MAY_LEND = "an engine on this GPU maps memory of another process (--load-format ipc_cache or gms), which may be this one"
_REMEDY = "stop the engines that map its memory first, then stop it where it was started"


def borrows(processes: Iterable[ProcessSample]) -> bool:
    """Return True if an engine among these maps another process's memory."""
    return any(
        _BORROWS.search(command)
        for process in processes
        for command in (" ".join(process.cmdline or ()), *(process.ancestors or ()))
    )


def lends(case: Case) -> Judged | None:
    """Judge a process that may hold weights or KV for engines. It is never stale."""
    if case.role == roles.LENDER:
        return Judged(verdict=ACTIVE, evidence=(_LENDS,), remedy=_REMEDY)
    if case.borrowed_here and case.role in (None, roles.POOL_WORKER):
        return Judged(verdict=UNKNOWN, evidence=(_MAY_LEND,), remedy=_REMEDY)
    return None
