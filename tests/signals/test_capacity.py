"""How many tokens fit into an engine's KV cache, whatever its release says of it."""

import pytest

from vllm_watch.signals.capacity import kv_cache_tokens


@pytest.mark.parametrize(
    ("config", "engines", "tokens"),
    [
        (None, 1, None),
        ({}, 1, None),
        ({"num_gpu_blocks": "512", "block_size": "32"}, 1, 16384),
        (
            {"num_gpu_blocks": "None", "block_size": "16"},
            1,
            None,
        ),  # V1 up to 0.8.5: not counted yet
        ({"num_gpu_blocks": "1000", "block_size": "16"}, 2, 8000),  # data parallel: the sum of both
        ({"num_gpu_blocks": "1000", "block_size": "16", "kv_cache_size_tokens": "9000"}, 2, 9000),
        ({"num_gpu_blocks": "1000", "block_size": "16", "kv_cache_size_tokens": "None"}, 1, 16000),
        (
            {"num_gpu_blocks": "0", "block_size": "16"},
            1,
            None,
        ),  # an attention-free model has no cache
    ],
)
def test_tokens_of_a_configuration(config, engines, tokens):
    """What vLLM says per engine is preferred; else blocks times block size, shared by its engines."""
    assert kv_cache_tokens(config, engines) == tokens
