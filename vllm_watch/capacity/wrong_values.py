"""Config values of a wrong kind."""

from collections.abc import Iterator, Mapping
from typing import Any

from vllm_watch.capacity.bounds import shown
from vllm_watch.errors import WatchError

Config = Mapping[str, Any]

_REMEDY = "take the config.json of the checkpoint as it was published"
_NUMBERS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "hidden_size", "n_embd", "d_model",
    "num_attention_heads", "n_head", "n_heads", "vocab_size", "padded_vocab_size", "head_dim",
    "kv_lora_rank", "qk_rope_head_dim",
)  # fmt: skip
_NUMBERS_OR_LISTS = (
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num",
    "num_attention_groups", "intermediate_size", "moe_intermediate_size", "num_local_experts",
    "num_experts", "n_routed_experts", "moe_num_experts",
)  # fmt: skip
_OPTIONAL = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "sliding_window",
    "attention_chunk_size", "num_kv_shared_layers", "first_k_dense_replace", "n_shared_experts",
    "num_experts_per_tok",
)  # fmt: skip


def refuse_wrong_values(config: Config) -> None:
    """Refuse such sizes."""
    for key in (*_NUMBERS, *_NUMBERS_OR_LISTS):
        value = config.get(key)
        each_layer = isinstance(value, list | tuple) and key in _NUMBERS_OR_LISTS
        for each in value if each_layer and value else (value,):
            if not _is_number(each):
                negative = isinstance(each, int) and each < 0
                raise WatchError(
                    f"{key}: {_said(each)} is not {'possible' if negative else 'a whole number'}",
                    _REMEDY,
                )


def refuse_unless(value: Any, kind: type, key: str, named: str) -> None:
    """Refuse another kind."""
    if value and not isinstance(value, kind):
        raise WatchError(f"{key}: {_said(value)} is not {named}", _REMEDY)


def ignored_values(config: Config) -> Iterator[str]:
    """Note other keys."""
    for key in _OPTIONAL:
        value = config.get(key)
        if not _is_number(value) and not isinstance(value, list | tuple):
            yield f"{key}: {_said(value)} is ignored: it is not a whole number from 0 on"


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def _said(value: Any) -> str:
    return shown(f"'{value}'" if isinstance(value, str) else value)
