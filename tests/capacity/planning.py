"""A plan from a config and flags in one line, and tests of tables."""

from collections.abc import Sequence
from typing import Any

import pytest

from vllm_watch.capacity.flags import Flags
from vllm_watch.capacity.gpus import cuda_memory_bytes, find_gpu
from vllm_watch.capacity.plan import Checkpoint, Machine, Plan, make_plan
from vllm_watch.capacity.read_config import read_config
from vllm_watch.capacity.release import parse_release


def plan(
    config: dict[str, Any],
    *,
    gpu: str = "H100",
    gib: float | None = None,
    gpus: int | None = None,
    version: str | None = None,
    weights_gib: float | None = None,
    checkpoint_bytes: int | None = None,
    **flags: Any,
) -> Plan:
    given = Flags(release=parse_release(version), **flags)
    known = find_gpu(gpu, gib)
    memory, source = cuda_memory_bytes(gib or (known.catalogue_gib if known else 0), known)
    machine = Machine(memory, source, known, gpu, gpus)
    return make_plan(read_config(config), given, machine, Checkpoint(weights_gib, checkpoint_bytes))


def named_rows(names: str, table: Sequence[tuple[Any, ...]]) -> pytest.MarkDecorator:
    """Make a case of each row; its first column is the case's name."""
    return pytest.mark.parametrize(names, [row[1:] for row in table], ids=[row[0] for row in table])
