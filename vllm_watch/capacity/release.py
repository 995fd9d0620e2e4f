"""vLLM releases that changed its memory use. An unknown release counts as NEWEST. Source: vLLM's
tags and the pull requests below."""

import re
from typing import NamedTuple

from vllm_watch.errors import WatchError


class Release(NamedTuple):
    """Major, minor, patch."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return ".".join(map(str, self))


OLDEST = Release(0, 6, 0)  # earlier ones are refused
NEWEST = Release(0, 32, 0)  # the newest release that was checked

# The cache is emptied before profiling, and the peak includes all used memory (PR 9352).
PROFILES_CLEAN_DEVICE = Release(0, 6, 4)
LEAVES_OUT_CONTEXT = Release(0, 6, 5)  # the peak includes only memory allocated while profiling
CHUNK_OF_2048 = Release(0, 6, 4)  # before: 512
MLA_LATENT_CACHE = Release(0, 7, 1)  # before: MLA models had plain heads in the cache
MLA_UNPADDED = Release(0, 7, 3)  # 0.7.1 and 0.7.2 pad 576 to 640 elements (PR 13022 and after)
V1_BY_DEFAULT = Release(0, 8, 0)
BATCH_DEFAULTS_BY_GPU = Release(0, 8, 3)  # 8192 tokens, 1024 sequences on large GPUs
MOE_SHARES_BUFFER = Release(0, 9, 0)  # before: the experts had three separate buffers
SMALL_BATCH_OF_A100 = Release(0, 9, 0)  # the A100 has the small defaults (PR 17885)
HYBRID_POOL = Release(0, 9, 2)  # sliding windows and states get their own pages (PR 17996)
V0_IS_GONE = Release(0, 11, 0)
LARGE_BATCH_OF_160_GIB = Release(0, 21, 0)
STATE_PAGES_FOR_PREFIXES = Release(0, 20, 0)  # hybrids keep two states per request by default
STATE_BLOCK_PER_SEQUENCE = Release(0, 20, 0)  # max_num_seqs may not exceed the blocks
STATE_CHECKPOINTS = Release(0, 32, 0)  # observed: Mamba 2 and KDA keep one more state for prefixes
TOKENS_FROM_CONCURRENCY = Release(0, 21, 0)  # the log prints concurrency × max_model_len (PR 40694)
# Before: experts need whole fp8 blocks; 0.25 to 0.31 unchecked.
FP8_BLOCKS_REFINED = Release(0, 25, 0)
CHECKPOINT_CACHE_DTYPE = Release(0, 15, 0)  # auto follows the checkpoint (PR 30141)
SAMPLER_DOES_NOT_SORT = Release(0, 21, 0)  # FlashInfer or Triton samples instead (PRs 40376, 33538)
GRAPHS_IN_BUDGET = Release(0, 21, 0)  # CUDA graphs are profiled and included (PR 30515)
UTILIZATION_92 = Release(0, 20, 0)  # before: 0.90 by default
WINDOW_KEEPS_IN_FLIGHT = Release(0, 26, 0)  # with async scheduling, windows reserve for two batches
NULL_BLOCK_RESERVED = Release(0, 26, 0)  # a request must fit into all blocks but one


# A release without a patch number counts as its last patch, which pip installs.
_LAST_PATCHES = {
    (0, 1): 7, (0, 2): 7, (0, 3): 3, (0, 4): 3, (0, 5): 5, (0, 6): 6, (0, 7): 3, (0, 8): 5, (0, 9): 2,
    (0, 10): 2, (0, 11): 2, (0, 14): 1, (0, 15): 1,
}  # fmt: skip


def parse_release(text: str | None) -> Release:
    """Parse a release such as 0.11.0, v0.8.5.post1 or 0.26.1rc1.dev608+g1a2b3c."""
    if text is None:
        return NEWEST
    found = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.+a-z].*)?", text.strip().lower())
    if not found:
        raise WatchError(
            f"'{text}' is not a vLLM release", "write it as vllm --version does: 0.11.0"
        )
    minor = int(found[1]), int(found[2])
    patch = int(found[3]) if found[3] else _LAST_PATCHES.get(minor, 0)
    return Release(*minor, patch)
