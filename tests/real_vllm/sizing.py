"""Starts one vLLM engine after another in this process and says how large each made its KV cache.

Run by the Python of vLLM's own environment: `python sizing.py SHAPES FOUND`. SHAPES holds a JSON list of
{"name", "config", "flags"}; FOUND gets one JSON object per line. It is vLLM's real start: engine core, worker, model with random
weights, the profiling run, then the KV cache; only the process is shared, since loading vLLM takes most
of a start.
"""

import gc
import json
import sys
import tempfile
import traceback
from pathlib import Path

from model import make_model


def size(folder: Path, shape: dict) -> dict:
    """What vLLM settled for this model."""
    from vllm import LLM  # type: ignore[import-not-found]  # noqa: PLC0415 - takes 10 seconds

    make_model(folder, shape["config"])
    engine = LLM(
        model=str(folder), load_format="dummy", enforce_eager=True, disable_log_stats=True, **shape["flags"]
    )  # fmt: skip
    config = engine.llm_engine.vllm_config
    cache = config.cache_config
    found = {
        "num_gpu_blocks": cache.num_gpu_blocks,
        "kv_cache_size_tokens": cache.kv_cache_size_tokens,
        "block_size": cache.block_size,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
    }
    engine.llm_engine.engine_core.shutdown()
    return found


def main() -> None:
    """All shapes of the file, in order; what fails is told and does not end the rest."""
    for shape in json.loads(Path(sys.argv[1]).read_text()):
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = size(Path(folder), shape)
            except Exception as error:  # noqa: BLE001 - whatever vLLM raises is the answer
                traceback.print_exc()
                found = {"error": f"{type(error).__name__}: {error}"}
        gc.collect()
        with Path(sys.argv[2]).open("a") as results:
            results.write(json.dumps({"name": shape["name"], **found}) + "\n")


if __name__ == "__main__":
    main()
