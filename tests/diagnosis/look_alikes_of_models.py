"""Errors of models, flags and packages that resemble others: text, class, words of the answer, words that it must not have."""

MODEL_LOOK_ALIKES: dict[str, tuple[str, str, str, str]] = {
    "a request for access that waits": (
        "huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-68)\n\nCannot access gated repo for url https://huggingface.co/acme/tiny/resolve/main/config.json.\nYour request to access model acme/tiny is awaiting a review from the repo authors.",
        "hf_gated_or_auth", "wait for its approval", "export HF_TOKEN",
    ),
    "a token without permission for gated models": (
        "huggingface_hub.errors.HfHubHTTPError: 403 Forbidden: Please enable access to public gated repositories in your fine-grained token settings to view this repository.",
        "hf_gated_or_auth", "token's settings", "export HF_TOKEN",
    ),
    "a name with a tag": (
        "huggingface_hub.errors.HFValidationError: Repo id must use alphanumeric chars or '-', '_', '.', '--' and '..' are forbidden, '-' and '.' cannot start or end the name, max length is 96: 'acme/tiny:7b'.",
        "hf_not_found_or_offline", "tag after a colon", "docker run -v",
    ),
    "a folder without a config": (
        "OSError: /models/tiny does not appear to have a file named config.json. Checkout 'https://huggingface.co//models/tiny/tree/None' for available files.",
        "hf_not_found_or_offline", "wrong (empty) folder", "neither a folder",
    ),
    "a copy without a processor's file": (
        "OSError: Can't load image processor for 'acme/tiny'. If you were trying to load it from 'https://huggingface.co/models', make sure you don't have a local directory with the same name.",
        "hf_not_found_or_offline", "preprocessor_config.json", "No rule",
    ),
    "a link of the cache that leads nowhere": (
        "FileNotFoundError: [Errno 2] No such file or directory: '/x/hub/models--acme--tiny/snapshots/ab/model-00001-of-00005.safetensors'",
        "hf_not_found_or_offline", "its download did not finish", "docker run -v",
    ),
    "a hub that answers too late": (
        "requests.exceptions.ReadTimeout: (ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read timeout=10)\"), '(Request ID: 1)')",
        "hf_not_found_or_offline", "HF_HUB_DOWNLOAD_TIMEOUT", "cannot be reached",
    ),
    "a whole file without a tensor": (
        "safetensors_rust.SafetensorError: File does not contain tensor model.embed_tokens.weight",
        "hf_not_found_or_offline", "does not have a tensor", "damaged",
    ),
    "a config without a type": (
        "ValueError: Unrecognized model in /models/tiny. Should have a `model_type` key in its config.json, or contain one of the following strings in its name: albert, align",
        "unsupported_architecture", "names no model type", "list of supported models",
    ),
    "an architecture of the future": (
        "ValueError: Model architectures ['Qwen4ForCausalLM'] are not supported for now.",
        "unsupported_architecture", "list of supported models", "write Qwen3",
    ),
    "a parser of another model generation": (
        "KeyError: 'invalid tool call parser: glm48 (chose from { glm47, hermes })'",
        "wrong_flag_value", "only if it was made for this model", "write glm47",
    ),
    "a checkpoint with PEFT's names": (
        "ValueError: There is no module or parameter named 'layers.0.self_attn.q_proj.base_layer' in LlamaForCausalLM",
        "unsupported_architecture", "merge_and_unload", "older or newer",
    ),
    "a limit of ranks, not a rank": (
        "  Value error, max_lora_rank (24) must be one of (8, 16, 32, 64, 128, 256, 320, 512).",
        "lora_mismatch", "next larger value", "adapter's rank is larger",
    ),
    "room for adapters in host memory": (
        "ValueError: max_cpu_loras (1) must be >= max_loras (4)",
        "lora_mismatch", "--max-cpu-loras", "--max-loras N",
    ),
    "a feature of PEFT, not a module": (
        "ValueError: vLLM does not yet support DoRA.",
        "lora_mismatch", "use_dora", "target_modules",
    ),
    "a field that the template misses": (
        "jinja2.exceptions.UndefinedError: 'dict object' has no attribute 'content'",
        "tokenizer_mismatch_or_missing_chat_template", "a field that it reads", "in the order",
    ),
    "a model in the place of a command": (
        "vllm: error: argument subparser: invalid choice: 'acme/tiny' (choose from chat, complete, serve, bench)",
        "wrong_flag_value", "vllm serve ORG/MODEL", "later release",
    ),
    "tool calls without a parser": (
        "TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser",
        "wrong_flag_value", "--tool-call-parser NAME", "--help",
    ),
    "a short form of other programs": (
        "vllm serve: error: unrecognized arguments: --tp 2",
        "unknown_flag", "--tensor-parallel-size", "drop --tp",
    ),
    "an argument of a program's code": (
        "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'device'",
        "unknown_flag", "the program that starts vLLM", "command line",
    ),
    "a folder in place of the package": (
        "ImportError: cannot import name 'LLM' from 'vllm' (unknown location)",
        "missing_dependency_or_import_error", "another directory", "PACKAGE==VERSION",
    ),
    "a circle that another version makes": (
        "AttributeError: partially initialized module 'torchvision' has no attribute 'extension' (most likely due to a circular import)",
        "missing_dependency_or_import_error", "built against another version", "rename the script",
    ),
    "an old C++ library": (
        "ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /x/zmq.so)",
        "missing_dependency_or_import_error", "libstdc++", "pip check",
    ),
    "a library of AMD": (
        "OSError: libamdhip64.so.6: cannot open shared object file: No such file or directory",
        "missing_dependency_or_import_error", "ROCm", "apt",
    ),
    "a module of a package of another name": (
        "ModuleNotFoundError: No module named 'pkg_resources'",
        "missing_dependency_or_import_error", "setuptools<81", "opencv",
    ),
    "a file of torch in shared memory": (
        "RuntimeError: unable to write to file </torch_123_0>: No space left on device (28)",
        "disk_full", "/dev/shm", "~/.cache",
    ),
    "a node without disk": (
        "The pod was low on resource: ephemeral-storage. Container vllm was using 103Gi",
        "disk_full", "kubectl describe", "df -h",
    ),
    "a limit of inotify": (
        "OSError: [Errno 28] inotify watch limit reached",
        "unknown", "No rule knows", "disk",
    ),
    "a device of a group": (
        "ERROR: /dev/kfd: Permission denied",
        "folder_not_writable", "--group-add", "ls -ld PATH",
    ),
}  # fmt: skip
