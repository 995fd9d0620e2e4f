"""Configs, files and flags that nobody would write: a plan or a sentence, and within no time."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.capacity.models import LLAMA_31_8B, Config
from tests.capacity.models import MODELS as OLDER_MODELS
from tests.capacity.planning import named_rows
from tests.capacity.published_models import NEW_MODELS
from tests.examples import examples
from vllm_watch.__main__ import main
from vllm_watch.capacity.flags import Flags
from vllm_watch.capacity.plan import Checkpoint, Machine, make_plan
from vllm_watch.capacity.read_config import read_config
from vllm_watch.cli.capacity import report
from vllm_watch.errors import WatchError

GIB = 1 << 30
MODELS = OLDER_MODELS | NEW_MODELS
_NASTY: tuple[Any, ...] = (
    0, -1, 1, 3, 10_000, 10_001, 10**9, 1 << 40, (1 << 40) + 1, 10**400, -(10**400), 0.0, 0.5, 1e-160, 1e300,
    float("inf"), float("nan"), True, None, "", "x", "9" * 400, [], [0], [10**400], ["x"] * 50, {}, {"a": 1},
    {"num_hidden_layers": 10**9}, {"quant_method": "gptq", "bits": 1e-300, "group_size": 10**400},
    {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 10**300}}}},
    {"quantization": 7, "producer": 1}, {"quant_method": "modelopt", "quantization": []},
)  # fmt: skip
_KEYS = sorted(
    {key for config in MODELS.values() for key in (*config, *config.get("text_config", ()))}
    | {
        "quantization_config", "expert_dtype", "head_dim", "expansion_ratio", "mamba_expand", "mamba_n_heads",
        "mamba_d_head", "mamba_d_state", "attn_layer_indices", "linear_attn_config", "conv_L_cache", "conv_dim",
        "attn_type_list", "sliding_window", "attention_chunk_size", "model_max_length", "num_nextn_predict_layers",
        "hybrid_override_pattern", "torch_dtype", "vision_config", "text_config", "use_sliding_window",
        "max_window_layers", "layers_block_type", "attn_config", "ffn_config", "num_kv_shared_layers",
    }
)  # fmt: skip


@st.composite
def configs(draw: st.DrawFn) -> Config:
    config: Config = copy.deepcopy(MODELS[draw(st.sampled_from(sorted(MODELS)))])
    for _ in range(draw(st.integers(1, 4))):
        inner = config.get("text_config")
        target = inner if isinstance(inner, dict) and draw(st.booleans()) else config
        key = draw(st.sampled_from(_KEYS))
        if draw(st.integers(0, 9)) == 0:
            target.pop(key, None)
        else:
            target[key] = draw(st.sampled_from(_NASTY))
    return config


@given(configs())
@examples(60)
def test_a_plan_or_a_sentence(config: Config) -> None:
    """Nothing but a WatchError comes out, and no number runs away."""
    machine = Machine(80 * GIB, "80 GiB")
    try:
        found = report(make_plan(read_config(config), Flags(), machine, Checkpoint()))
    except WatchError as error:
        assert len(error.cause) < 400  # noqa: PT017 - what it says is asserted, not that it is raised
        return
    json.dumps(found)


# Story, what is changed in a config of Llama, how the sentence goes on.
SENTENCES: tuple[tuple[str, Config, str], ...] = (
    ("a billion layers", {"num_hidden_layers": 10**9}, "num_hidden_layers: 1000000000 is not possible"),
    ("400 digits", {"hidden_size": 10**400}, "hidden_size: 100000000000000000… (401 characters) is not possible"),
    ("below nothing", {"num_hidden_layers": -1}, "num_hidden_layers: -1 is not possible"),
    ("an MLP of 10^400", {"intermediate_size": 10**400}, "the config makes intermediate_size 100000000000000000…"),
    ("a string that would be repeated", {"layer_types": ["mamba"] * 32, "linear_attn_config": {"num_heads": "x", "head_dim": 1 << 39}}, "the config cannot be understood: ValueError: num_heads: x"),
)  # fmt: skip


@named_rows("changed, says", SENTENCES)
def test_the_sentence_names_the_key(changed: Config, says: str) -> None:
    with pytest.raises(WatchError) as raised:
        read_config(LLAMA_31_8B | changed)
    assert raised.value.cause.startswith(says)


# Story, words of the command (MODEL is the folder), part of what stands on stderr.
COMMANDS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("weights of 10^300 GiB", ("--weights-gib", "1e300"), "--weights-gib 1e+300 is not above 0"),
    ("a GPU of 10^300 GiB", ("--gpu-memory-gib", "1e300"), "--gpu-memory-gib 1e+300 is not above 0"),
    ("an offload without end", ("--cpu-offload-gb", "inf"), "--cpu-offload-gb inf is above 1,048,576"),
    ("ranks of 400 digits", ("--tensor-parallel-size", "9" * 400), "--tensor-parallel-size 999999999999999999…"),
    ("a length of 400 digits", ("--max-model-len", "9" * 400), "is more than any model has"),
    ("a speculation without end", ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1000000000000}'), "num_speculative_tokens: 1000000000000 is not a whole number"),
    ("a speculation that is deep", ("--speculative-config", "[" * 200_000), "is not a JSON object"),
    ("a name that is too long", ("--from-log", "x" * 5000), "cannot be"),
)  # fmt: skip


@named_rows("words, says", COMMANDS)
def test_flags_are_bounded(words: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_31_8B))
    gpu = () if "--gpu-memory-gib" in words else ("--gpu-name", "H100")
    try:
        status = main(["capacity", str(tmp_path), *gpu, *words])
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status == 2
    assert says in capsys.readouterr().err


def _itself(folder: Path, name: str) -> None:
    (folder / name).symlink_to(folder / name)


def _drafter(folder: Path, text: str) -> tuple[str, ...]:
    (folder / "drafter").mkdir()
    (folder / "drafter" / "config.json").write_text(text)
    return ("--speculative-config", json.dumps({"model": str(folder / "drafter")}))


def test_odd_files_beside_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Links to themselves and to nowhere count nothing; an index that lies is left aside; so is a size beyond all."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_31_8B))
    _itself(tmp_path, "model-1.safetensors")
    (tmp_path / "model-2.safetensors").symlink_to(tmp_path / "nowhere")
    for total in (10**400, -1, "x", [1]):
        weights = {"a": "model-1.safetensors", "b": "x" * 300}  # no file has a name this long
        index = {"metadata": {"total_size": total}, "weight_map": weights}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        assert main(["capacity", str(tmp_path), "--gpu-name", "H100", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["weights_bytes_per_gpu"] == pytest.approx(16.06e9, rel=0.001)  # fmt: skip
        assert main(["preflight", "--", "vllm", "serve", str(tmp_path)]) == 3
        assert "2 of 2 files of weights are missing" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{", "[]", "7", '{"num_hidden_layers": 1e999}', '{"num_hidden_layers": 1000000000}', "[" * 100_000])  # fmt: skip
def test_a_drafters_config_is_read_as_any_other(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_31_8B))
    words = _drafter(tmp_path, text)
    assert main(["capacity", str(tmp_path), "--gpu-name", "H100", *words]) == 2
    assert "the drafter's " in capsys.readouterr().err
    main(["preflight", "--", "vllm", "serve", str(tmp_path), *words])
    assert "the drafter's " in capsys.readouterr().out


@pytest.mark.parametrize("named", ["x" * 5000, "~nobody-of-this-name/model", "itself"])
def test_names_that_lead_nowhere(named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Too long, somebody's home that is not there, a link to itself."""
    monkeypatch.chdir(tmp_path)
    os.symlink("itself", "itself")
    assert main(["capacity", named, "--gpu-name", "H100"]) == 2
    assert main(["preflight", "--", "vllm", "serve", named]) in (0, 3)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [("-tp", "9" * 5000), ("-tp", "999999999999"), ("--max-model-len", "9" * 400), ("--gpu-memory-utilization", "1e400"), ("-dp", "9" * 400), ("--port", "9" * 5000)])  # fmt: skip
def test_preflight_reads_bounded_flags(words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """A finding, and no traceback; a config's own limit of 10^400 is none."""
    config = LLAMA_31_8B | {"max_position_embeddings": 131072, "n_positions": 10**400}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["preflight", "--", "vllm", "serve", str(tmp_path), *words]) in (0, 3)
    assert "Traceback" not in capsys.readouterr().err
