"""Makes a model folder with random weights: a Llama of 1 MB that any CPU serves, and nothing to download.

Run by the Python of vLLM's own environment, which has `tokenizers`: `python model.py FOLDER [CONFIG]`, the
config.json as text.
vLLM is then started with `--load-format dummy`, so the folder holds no weights at all.
"""

import json
import sys
from pathlib import Path
from typing import Any

VOCAB_SIZE = 1024
MAX_POSITION_EMBEDDINGS = 8192

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": MAX_POSITION_EMBEDDINGS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
}
TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "model_max_length": MAX_POSITION_EMBEDDINGS,
    "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
}
# Any text does: the model says nothing that means anything.
CORPUS = (
    "the quick brown fox jumps over the lazy dog",
    "0123456789 watch the engine, not the clock",
)


def make_model(folder: Path, config: dict[str, Any] | None = None) -> None:
    """Write config.json, tokenizer.json and tokenizer_config.json into `folder`; None: the usual Llama."""
    # Here, since those who import our constants have no tokenizers.
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(config or CONFIG, indent=1))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG, indent=1))


if __name__ == "__main__":
    make_model(Path(sys.argv[1]), *map(json.loads, sys.argv[2:]))
