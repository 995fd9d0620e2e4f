"""A host for preflight: stub GPUs, a model's folder, an installed vLLM that is a shell script, and our command."""

import json
import os
import struct
import subprocess
import sys

from tests.nvml_stub import GIB, NvmlStub, h200

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32,
    "hidden_size": 4096, "num_attention_heads": 28, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 128256,
    "intermediate_size": 14336, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
SAYS = 'echo "vllm got $*"; echo "gpus $CUDA_VISIBLE_DEVICES"; exit 7'
SECONDS_MAX = 60


def h100(index=0, processes=None, **changes):
    """A card of 80 GiB, of which CUDA offers 79, that does nothing."""
    return h200(
        index, processes, **({"name": "NVIDIA H100 80GB HBM3", "memory_total": 80 * GIB, "utilization": 0} | changes)
    )  # fmt: skip


class PreflightHost:
    """Everything that a test may change is an attribute or a file below `folder`."""

    def __init__(self, library, folder):
        self.folder = folder
        self.stub = NvmlStub(library)
        self.stub.state_path = folder / "nvml.state"
        self.model = folder / "model"
        self.home = folder / "hf"
        self.environment = {"HF_HOME": str(self.home)}
        self.gpus(h100())
        self.install()
        self.write_model()

    def gpus(self, *gpus, **keys):
        described = dict(enumerate(gpus))
        self.stub.set_state(gpus=described, release_on_exit=1, **keys)

    def install(self, script=SAYS, vllm="0.11.0", torch="2.8.0+cu128"):
        """A vLLM as pip leaves it: a script, and folders that name the versions."""
        venv = self.folder / "venv"
        (venv / "bin").mkdir(parents=True, exist_ok=True)
        program = venv / "bin" / "vllm"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        packages = venv / "lib" / "python3.12" / "site-packages"
        for old in packages.glob("*.dist-info"):
            old.rmdir()
        for name, version in (("vllm", vllm), ("torch", torch)):
            (packages / f"{name}-{version}.dist-info").mkdir(parents=True)

    def write_model(self, shards=2, folder=None, **config):
        """Config, tokenizer and an index with its shards, of a few bytes each."""
        folder = folder or self.model
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(CONFIG | config))
        (folder / "tokenizer.json").write_text("{}")
        names = [f"model-{number:05}-of-{shards:05}.safetensors" for number in range(1, shards + 1)]
        for name in names:
            (folder / name).write_bytes(shard())
        index = {"metadata": {"total_size": 15 * GIB}, "weight_map": {f"layer.{name}": name for name in names}}  # fmt: skip
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return [folder / name for name in names]

    def cached(self, repository, **config):
        """The model in the hub's cache; its snapshot's folder."""
        entry = self.home / "hub" / f"models--{repository.replace('/', '--')}"
        (entry / "refs").mkdir(parents=True)
        (entry / "refs" / "main").write_text("abc123")
        self.write_model(folder=entry / "snapshots" / "abc123", **config)
        return entry / "snapshots" / "abc123"

    def command(self, *arguments, options=()):
        launch = ["vllm", "serve", str(self.model), *map(str, arguments)]
        return [sys.executable, "-m", "vllm_watch", "preflight", *map(str, options), "--", *launch]

    def env(self):
        path = f"{self.folder / 'venv' / 'bin'}:{os.environ['PATH']}"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "CUDA_", "VLLM_"))}  # fmt: skip
        return kept | self.stub.env() | {"PATH": path} | self.environment

    def start(self, command, **how):
        return subprocess.Popen(
            command, env=self.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how
        )  # fmt: skip

    def run(self, command):
        return subprocess.run(
            command, env=self.env(), capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def check(self, *arguments, model=None, before=()):
        """(exit status, findings by check) of a launch."""
        command = self.command(*arguments, options=["--json"])
        if model is not None:
            command[command.index(str(self.model))] = model
        done = self.run([*before, *command])
        assert done.stdout, done.stderr
        said = json.loads(done.stdout)
        assert said["go"] == (done.returncode == 0)
        assert done.returncode in (0, 3)
        return done.returncode, {each["check"]: each for each in reversed(said["findings"])}


def shard(missing=0):
    """A file of safetensors with one tensor, short of its last bytes."""
    header = json.dumps({"layer": {"dtype": "BF16", "shape": [8], "data_offsets": [0, 16]}}).encode()  # fmt: skip
    return (struct.pack("<Q", len(header)) + header + b"0" * 16)[: -missing or None]
