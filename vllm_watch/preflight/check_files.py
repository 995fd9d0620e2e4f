"""Check that the model's files are complete, or can be downloaded."""

import shlex
from collections.abc import Iterator

from vllm_watch.capacity.units import GIB
from vllm_watch.preflight.facts import (
    ABSENT,
    CACHE,
    OK,
    PROBLEM,
    REMOTE,
    UNKNOWN,
    Facts,
    Finding,
    Fix,
    ModelFiles,
)

_FILES_NAMED = 3
_NO_WEIGHTS = ("dummy", "tensorizer", "runai_streamer", "runai_streamer_sharded", "sharded_state", "fastsafetensors")  # fmt: skip
"""Load formats that do not read the checkpoint's files."""


def check_files(facts: Facts) -> Iterator[Finding]:
    """Check config, weights and tokenizer."""
    files, command = facts.files, facts.command
    if files is None:
        yield Finding("files", UNKNOWN, "no model is named: vLLM takes the default of its release")
    elif files.kind == REMOTE:
        yield Finding("files", UNKNOWN, f"{command.model} is not loaded from files or the hub's cache: it is not checked")  # fmt: skip
    elif files.kind == ABSENT:
        yield _absent(facts, files)
    elif files.config_error is not None:
        yield Finding("files", PROBLEM, files.config_error, "config_missing", (_fetch(files),))
    elif files.damaged:
        more = f" and {len(files.damaged) - 1} more" if len(files.damaged) > 1 else ""
        yield Finding("files", PROBLEM, f"{files.path}: {files.damaged[0]}{more}", "files_damaged", (_fetch(files, again=True),))  # fmt: skip
    elif files.missing:
        yield _incomplete(facts, files)
    elif not files.weights and command.text("load-format") not in _NO_WEIGHTS:
        yield Finding("files", PROBLEM, f"{files.path} has a config.json and no weights (*.safetensors, *.bin, *.pt, *.gguf)", "weights_missing", (_fetch(files),))  # fmt: skip
    elif not files.tokenizer and not command.switch("skip-tokenizer-init") and command.text("tokenizer") is None:  # fmt: skip
        yield Finding("files", PROBLEM, f"{files.path} has no tokenizer (tokenizer.json, tokenizer.model, vocab.json or tekken.json)", "tokenizer_missing", (_fetch(files), Fix("name another", command.shown(tokenizer="MODEL"))))  # fmt: skip
    else:
        size = "" if not files.bytes_here else f", {files.bytes_here / GIB:.1f} GiB"
        yield Finding("files", OK, f"{files.weights} {'file' if files.weights == 1 else 'files'} of weights{size}, in {files.path}")  # fmt: skip


def check_token(facts: Facts) -> Iterator[Finding]:
    """Check for a Hugging Face token. Only the hub knows whether the model needs it."""
    if facts.files is None or not _fetches(facts):
        return
    if facts.token:
        yield Finding("token", OK, "a Hugging Face token is here; only the hub knows whether it may read this model")  # fmt: skip
    else:
        yield Finding("token", UNKNOWN, f"no Hugging Face token is here: should {facts.files.repository or facts.command.model} be gated, set HF_TOKEN (hf auth login)")  # fmt: skip


def check_disk(facts: Facts) -> Iterator[Finding]:
    """Check the space for the download."""
    room, files = facts.download_room, facts.files
    if files is None or not _fetches(facts):
        return
    if room is None:
        yield Finding("disk", UNKNOWN, "the free space for the download cannot be read")
        return
    move = Fix("fetch to a larger disk", f"HF_HOME=/DISK {facts.command.shown()}")
    if not room.writable:
        yield Finding("disk", PROBLEM, f"the model must be fetched, and {room.path} cannot be written by this user", "disk_not_writable", (move,))  # fmt: skip
        return
    needed = None if files.bytes_total is None else max(0, files.bytes_total - files.bytes_here)
    free = f"{room.free_bytes / GIB:.1f} GiB are free in {room.path}"
    if needed is None:
        yield Finding("disk", UNKNOWN, f"{free}; only the hub knows the size of the download")  # fmt: skip
    elif needed > room.free_bytes:
        yield Finding("disk", PROBLEM, f"{needed / GIB:.1f} GiB are to be fetched, {free}", "disk_full", (move, Fix("see the size of the cache", "hf cache ls || huggingface-cli scan-cache")))  # fmt: skip
    else:
        yield Finding("disk", OK, f"{needed / GIB:.1f} GiB are to be fetched, {free}")


def _fetches(facts: Facts) -> bool:
    files = facts.files
    if files is None or facts.offline:
        return False
    from_hub = files.kind == ABSENT and files.repository is not None
    return from_hub or (files.kind == CACHE and bool(files.missing or not files.weights))


def _absent(facts: Facts, files: ModelFiles) -> Finding:
    if files.repository is None:
        return Finding("files", PROBLEM, f"there is no folder {files.path}, and it is not a name of the hub (ORGANISATION/MODEL)", "model_not_found", (Fix("check the folder; in a container, mount it", f"ls -l {shlex.quote(_parent(files.path))}"),))  # fmt: skip
    if facts.offline:
        return Finding("files", PROBLEM, f"{files.repository} is not in the hub's cache ({files.path}), and HF_HUB_OFFLINE forbids the download", "model_offline", (_fetch(files), Fix("allow it", f"HF_HUB_OFFLINE=0 {facts.command.shown()}")))  # fmt: skip
    return Finding("files", UNKNOWN, f"{files.repository} is not in the hub's cache ({files.path}): vLLM will fetch it")  # fmt: skip


def _incomplete(facts: Facts, files: ModelFiles) -> Finding:
    named = ", ".join(files.missing[:_FILES_NAMED])
    more = len(files.missing) - _FILES_NAMED
    every = files.weights + len(files.missing)
    text = f"{len(files.missing)} of {every} files of weights are missing in {files.path}: {named}{f' and {more} more' if more > 0 else ''}"
    if files.kind == CACHE and not facts.offline:
        return Finding("files", UNKNOWN, f"{text}; vLLM will fetch them")
    return Finding("files", PROBLEM, text, "weights_missing", (_fetch(files),))


def _fetch(files: ModelFiles, *, again: bool = False) -> Fix:
    if files.repository is None:
        return Fix("copy the whole model again from its source")
    words = ["HF_HUB_OFFLINE=0", "hf", "download", files.repository]
    if files.kind not in (CACHE, ABSENT):
        words += ["--local-dir", shlex.quote(files.path)]
    if again:
        words.append("--force-download")
    return Fix("fetch the missing files" if not again else "fetch it again", " ".join(words))


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or "."
