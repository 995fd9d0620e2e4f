"""Errors of models, flags and packages that resemble others: text, class, words of the answer, words that it must not have."""

from tests.diagnosis.look_alikes import CORE

MODEL_LOOK_ALIKES: dict[str, tuple[str, str, str, str]] = {
    "a request for access that waits": (
        "huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1-68)\n\nCannot access gated repo for url https://huggingface.co/acme/tiny/resolve/main/config.json.\nYour request to access model acme/tiny is awaiting a review from the repo authors.",
        "hf_gated_or_auth", "wait for approval", "export HF_TOKEN",
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
        "hf_not_found_or_offline", "lacks a file that vLLM looked for", "neither a folder",
    ),
    "a copy without a processor's file": (
        "OSError: Can't load image processor for 'acme/tiny'. If you were trying to load it from 'https://huggingface.co/models', make sure you don't have a local directory with the same name.",
        "hf_not_found_or_offline", "preprocessor_config.json", "No rule",
    ),
    "a link of the cache that leads nowhere": (
        "FileNotFoundError: [Errno 2] No such file or directory: '/x/hub/models--acme--tiny/snapshots/ab/model-00001-of-00005.safetensors'",
        "hf_not_found_or_offline", "is missing from the Hub cache", "docker run -v",
    ),
    "a hub that answers too late": (
        "requests.exceptions.ReadTimeout: (ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read timeout=10)\"), '(Request ID: 1)')",
        "hf_not_found_or_offline", "HF_HUB_DOWNLOAD_TIMEOUT", "cannot be reached",
    ),
    "a whole file without a tensor": (
        "safetensors_rust.SafetensorError: File does not contain tensor model.embed_tokens.weight",
        "hf_not_found_or_offline", "lacks a tensor", "damaged",
    ),
    "a config without a type": (
        "ValueError: Unrecognized model in /models/tiny. Should have a `model_type` key in its config.json, or contain one of the following strings in its name: albert, align",
        "unsupported_architecture", "has no model_type", "list of supported models",
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
        "lora_mismatch", "smallest value in the list", "adapter's rank exceeds",
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
        "tokenizer_mismatch_or_missing_chat_template", "a field that is not there", "and the order",
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
        "missing_dependency_or_import_error", "built for another version", "rename the script",
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
        "unknown", "No rule matches", "disk",
    ),
    "a device of a group": (
        "ERROR: /dev/kfd: Permission denied",
        "folder_not_writable", "--group-add", "ls -ld PATH",
    ),
    "a flag of a program around vLLM": (
        "router: error: unrecognized arguments: --pod-discovery-kind ip",
        "unknown_flag", "not among the flags of any vLLM release", "vllm serve",
    ),
    "a parent that only waited": (
        CORE + "TimeoutError: The stage did not become ready within 600s\n(Worker pid=8) huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach the hub",
        "hf_not_found_or_offline", "this process is offline", "No rule",
    ),
    "a variable that the template reads": (
        "jinja2.exceptions.UndefinedError: 'policy' is undefined",
        "tokenizer_mismatch_or_missing_chat_template", "chat_template_kwargs", "roles",
    ),
    "a flag with another word": (
        "vllm: error: unrecognized arguments: --enable-metrics",
        "unknown_flag", "not among the flags of any vLLM release", "use --",
    ),
    "a library that this user may not read": (
        "python3: error while loading shared libraries: /root/.local/lib/libpython3.12.so.1.0: cannot open shared object file: Permission denied",
        "folder_not_writable", "id; ls -ld PATH", "LD_LIBRARY_PATH",
    ),
    "a weight that the model does not have": (
        CORE + "KeyError: 'model.layers.30.self_attn.q_norm.weight'",
        "unsupported_architecture", "checkpoint", "No rule",
    ),
    "a module that is needed": (
        "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory",
        "missing_dependency_or_import_error", "for the same CUDA", "below level ERROR",
    ),
    "a setting that needs another": (
        "1 validation error for CacheConfig\n  Value error, --a-size can only be set with --enable-b [type=value_error, input_value=A, input_type=B]",
        "rope_or_config_mismatch", "the message names both", "values that the flag accepts",
    ),
    "a flag whose value names another trouble": (
        'vllm: error: unrecognized arguments: --rope-scaling={"rope_type":"yarn"}',
        "unknown_flag", "The program does not know --rope-scaling", "config.json",
    ),
    "a limit below zero": (
        "1 validation error for SchedulerConfig\n  Value error, max_num_scheduled_tokens is set to -900, which does not allow any tokens [type=value_error, input_value=(), input_type=A]",
        "rope_or_config_mismatch", "lower --max-num-seqs", "the message names it",
    ),
    "a library that the system does not find, below its wrapper": (
        "OSError: libfoo.so.2: cannot open shared object file: No such file or directory\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\nOSError: Could not load plugin /x/plugin.bin",
        "missing_dependency_or_import_error", "add its directory to LD_LIBRARY_PATH", "no rule",
    ),
    "an operator whose extension was not loaded": (
        "WARNING 03-03 10:00:00 [x.py:1] Failed to import my_plugin_C:libmy_ops.so: cannot open shared object file: No such file or directory. One feature is off.\nINFO 03-03 10:00:09 [x.py:1] go\nERROR 03-03 10:00:10 [core.py:9] AttributeError: '_OpNamespace' '_C_mine' object has no attribute 'swap'",
        "missing_dependency_or_import_error", "rebuild or reinstall the extension's package", "pip check",
    ),
    "an operator without a warning": (
        "ERROR 03-03 10:00:10 [core.py:9] AttributeError: '_OpNamespace' '_C_mine' object has no attribute 'swap'",
        "missing_dependency_or_import_error", "pip check", "rebuild or reinstall the extension's package",
    ),
    "a loader of one format proves no missing files": (
        'Traceback (most recent call last):\n  File "/x/site-packages/vllm/tokenizers/mistral.py", line 9, in from_pretrained\nValueError: No tokenizer file found in directory: /models/qwen',
        "tokenizer_mismatch_or_missing_chat_template", "--tokenizer-mode hf", "does not match the model",
    ),
    "the usual loader does": (
        'Traceback (most recent call last):\n  File "/x/site-packages/transformers/tokenization_utils.py", line 9, in from_pretrained\nValueError: No tokenizer file found in directory: /models/qwen',
        "tokenizer_mismatch_or_missing_chat_template", "does not match the model", "--tokenizer-mode hf",
    ),
    "an option that is a whole name": (
        "vllm serve: error: ambiguous option: --model could match --model-impl, --model-loader-extra-config",
        "unknown_flag", "pass the model without a flag", "in full",
    ),
    "a field of a flag's JSON": (
        "vllm serve: error: argument --kv-config/-kc: 1 validation error for KvConfig\nuse_ring\n  Unexpected keyword argument [type=unexpected_keyword_argument, input_value=False, input_type=bool]",
        "wrong_flag_value", "use_ring: Unexpected keyword argument", "--help",
    ),
    "a command without a model": (
        "vllm serve: error: the following arguments are required: model_tag",
        "wrong_flag_value", "The command lacks model_tag", "value",
    ),
    "missing weights of a few layers": (
        "ValueError: Following weights were not initialized from checkpoint: {'model.layers.47.mlp.up.weight', 'model.layers.47.norm.weight', 'model.layers.48.mlp.up.weight'}",
        "unsupported_architecture", "parts of some layers", "under these names",
    ),
    "missing weights of one kind in all layers": (
        "ValueError: Following weights were not initialized from checkpoint: {'model.layers.0.mlp.up.weight', 'model.layers.0.norm.weight', 'model.layers.1.mlp.up.weight'}",
        "unsupported_architecture", "under these names", "parts of some layers",
    ),
    "a certificate that cannot be verified": (
        "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /a (Caused by SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))",
        "hf_not_found_or_offline", "TLS certificate of the Hub", "curl -sI",
    ),
    "a parser of a later release": (
        "INFO 01-01 10:00:00 [api_server.py:1] vLLM API server version 0.14.0\nKeyError: 'invalid tool call parser: ling3 (chose from { hermes })'",
        "wrong_flag_value", "vLLM has ling3 from 0.28.0 on", "removed",
    ),
    "Triton without a driver": (
        "INFO [importing.py:4] Triton is installed but 2 active driver(s) found (expected 1)\nAttributeError: module 'triton' has no attribute 'ring'",
        "missing_dependency_or_import_error", "N active driver", "pip check",
    ),
    "a tokenizer in Mistral's format": (
        "AttributeError: 'MistralTokenizer' object has no attribute 'convert_rings'",
        "tokenizer_mismatch_or_missing_chat_template", "--tokenizer-mode hf", "pip check",
    ),
    "Triton on a Mac": (
        "ModuleNotFoundError: No module named 'triton'\nINFO 03-16 22:15:08 [__init__.py:256] Automatically detected platform cpu.",
        "missing_dependency_or_import_error", "CPU builds do not include", "install the package",
    ),
    "a wrapper around a known error": (
        "xoscar.serialization.exception.UnpickleableError: [pid=257] Error cannot be pickled, error type: <class 'A'>, raw error:\n1 validation error for ModelConfig\n  Value error, The checkpoint you are trying to load has model type `ring` but Transformers does not recognize this architecture.",
        "unsupported_architecture", "Transformers does not know", "No rule",
    ),
    "a repository without a readable config": (
        "ValueError: No supported config format found in meta-llama/Llama-9",
        "hf_not_found_or_offline", "accept its licence", "tensor",
    ),
    "libraries of another CUDA in the search path": (
        "ImportError: /x/site-packages/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12",
        "missing_dependency_or_import_error", "LD_LIBRARY_PATH", "fresh environment",
    ),
    "a package that pip could not build": (
        "  error: subprocess-exited-with-error\n  × Building wheel for ring (pyproject.toml) did not run successfully.",
        "missing_dependency_or_import_error", "could not be built from source", "No rule",
    ),
}  # fmt: skip
