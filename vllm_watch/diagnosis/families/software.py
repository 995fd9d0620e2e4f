"""Failures of data types, attention, quantization and drivers.

Sources: PyTorch; vllm/model_executor/layers/quantization and vllm/platforms of vLLM 0.6 to 0.32; ROCm/TheRock #7472 (HSA).
"""

import re

from vllm_watch.diagnosis.families import flags
from vllm_watch.diagnosis.families.packages import NOT_CUDA
from vllm_watch.diagnosis.report import UNKNOWN
from vllm_watch.diagnosis.rule import Facts, Failure, Rank, Told, Variant, check, cure, rule, when

QUANTIZATION = "quantization_unsupported"
DTYPE = "dtype_unsupported"
ATTENTION = "attention_backend_unavailable"
DRIVER = "driver_cuda_mismatch"

_OTHER_GPU = cure("this host has several GPU models (a startup warning lists them): use one that supports it", "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=N vllm serve …", when(facts=("mixed_gpus",)))  # fmt: skip

_FP8_CACHE = r"kv[_-]cache[_-]dtype\W{1,4}fp8|def reshape_and_cache"

_NO_HALF = r"(?i)gemma-?[23]|glm-?4-|plamo-?2"
"""Models that vLLM refuses to serve in float16."""

RULES = (
    rule(QUANTIZATION, "uantiz", pattern=r"different quantization (?:scheme|config)|some but not all shards of \S{1,200} are quantized|[Uu]nsupported \w+ quantization|quantization with \w+ .{0,40}not supported|(?:[Uu]nknown|[Ii]nvalid|[Uu]nsupported) quantization|quantization (?:method )?\S{0,60} ?(?:is )?(?:currently )?not supported|[Qq]uantization (?:method|scheme).{0,120}(?:not supported|does not match|is deprecated)|does not support .{0,40}quantization|quantization is (?:currently )?not supported|[Cc]annot find (?:any|the config file) .{0,100}quantiz|weight quantization is supported for|quantization (?:config|method).{0,80}(?:unsupported|not found)|requires? .{0,60}for quantization"),
    rule(QUANTIZATION, "itsAndBytes", "itsandbytes", "GGUF", "gguf", "AWQ", "GPTQ", "awq", "gptq", "arlin", pattern=r"(?:BitsAndBytes|bitsandbytes|AWQ|GPTQ|[Mm]arlin|GGUF|gguf|awq|gptq)\b(?! (?:model )?architecture\b).{0,80}(?:not supported|does not support|unsupported|only supports?|is not implemented)"),
    rule(QUANTIZATION, "compute capability", "No kernel", "scaled_mm", "NVFP4", "nvfp4", "MXFP4", "mxfp4", "FP8", "fp8", "No compiled", "No compressed-tensors", pattern=r"_scaled_mm is only supported|No compressed-tensors compatible scheme was found|(?:NVFP4|MXFP4|nvfp4|mxfp4|FP8|fp8(?:_e\dm\d)?|W8A8|w8a8|INT8|int8)\b.{0,100}(?:not supported|unsupported|requires? (?:compute capability|SM)|only supported on|requires Blackwell|requires Hopper)|No (?:compiled|kernel).{0,60}(?:fp[48]|cutlass_scaled_mm|quant)|No valid quant", rank=Rank.GENERAL),
    rule(QUANTIZATION, "Failed to find a kernel that can implement", "weight_scale", "qweight", "qzeros", "g_idx", "Minimum capability", "Min capability", "KeyError: '", "config file for", pattern=r"Failed to find a kernel that can implement|KeyError: '[\w.]{0,200}(?:weight_scale\w{0,40}|weight_zero_point|weight_shape|input_scale|qweight|qzeros|g_idx|(?<=[.'])scales?|[kv]_scale|weight_packed|absmax|quant_state\w{0,40})'|[Cc]annot find the config file for \w*(?:awq|gptq|quant)|[Mm]in(?:imum)? capability:? \d+"),
    rule(QUANTIZATION, "MoE backend", pattern=r"No \w{1,40} MoE backend supports the deployment|\w{1,40} MoE backend '\w{1,60}' does not support the deployment"),
    rule(DTYPE, "float16", "float32", "bf16", "Bfloat16", "Half", "fp8e4nv", "dtype", "data type", "expected scalar type", "Float8_", "fp16 and bf16", "Input type (", pattern=r"Input type \(.{1,60}\) and (?:weight|bias) type|must have the same dtype, but got|only supports? fp16 and bf16|Bfloat16 is only supported on|does not support (?:bfloat16|float16|fp16|bf16)|torch\.b?float(?:16|32) is not supported for|not implemented for '(?:Half|BFloat16|Float8\w*)'|expected scalar type (?!Long|Int\b|Bool|Byte|Short)\w+ but found|to have the same dtype, but got|type fp8e4nv not supported|[Uu]nknown dtype|[Uu]nsupported (?:data type|dtype)|dtype .{0,40}(?:is )?not supported|data type .{0,40}not supported|KV cache is not supported by the Triton"),
    rule(DTYPE, "compute capability", "below 7.0", pattern=r"GPUs with compute capability below|only supported on GPUs with compute capability of at least"),
    rule(ATTENTION, "lash", pattern=r"FlashAttention(?:-?[234])? (?:only supports(?! fp16 and bf16)|requires|is only supported|forward only supports|does not support|is not supported)|[Ff]lash[- ]?[Aa]tt(?:entio)?n? (?:build|version|backend|package).{0,80}(?:not support|not available|not installed|unsupported|requires|is not found)|Flash(?:Infer|MLA|infer)\b(?!.{0,60}\b(?:MoE|MOE|GEMM|[Ss]ampl)).{0,80}(?:is not (?:available|supported|installed|compatible)|only supports?|requires(?! GPUs with sm)|not supported|unavailable|is only supported)|This flash attention build"),
    rule(ATTENTION, "ead size", "head_size", "ead dimension", "headdim", pattern=r"[Hh]ead[ _]size:? ?\S{1,6} is not supported|[Uu]nsupported head[ _](?:size|dim)|only supports? head dim|headdim not being"),
    rule(ATTENTION, "backend", "Backend", "does not support attention", pattern=r"No valid (?:MLA )?(?:prefill )?attention backend|[Nn]o valid .{0,20}prefill backend|[Ss]elected .{0,40}backend .{0,60}(?:is not valid|is not MLA type|does not support)|(?:[Ii]nvalid|[Uu]nknown|[Uu]nsupported) (?:MLA )?attention backend|not supported for attention backend|[Aa]ttention backend .{0,60}(?:not supported|has been removed|is not available|does not support|unsupported)|Backend \S+ is not supported for vit attention|(?:SDPA|[Xx]Formers|[Pp]allas|IPEX|PagedAttention|Triton[Aa]ttention|TRITON_\w{1,40}|FLASH\w{1,40})\b.{0,60}(?:does not support(?! the deployment)|doesn't support|is not available|not supported)"),
    rule(ATTENTION, "inks are only supported", "logits_soft_cap", "BatchPrefillWith", "BatchDecodeWith", "xFormers wasn't build", "memory_efficient_attention_forward", "FA3", "MLA is not supported", "Kernel is only supported on", pattern=r"[Ss]inks are only supported|logits_soft_cap.{0,60}(?:not support|Flashinfer)|Batch(?:Prefill|Decode)With\w+ failed|xFormers wasn't build|No operator found for `memory_efficient|FA3 (?:is|not) (?:not )?supported|MLA is not supported|Attention \w{1,20} Kernel is only supported on", rank=Rank.GENERAL),
    rule(DRIVER, "no kernel image is available", "driver version is insufficient", "NVIDIA driver on your system is too old", "Found no NVIDIA driver on your system", "forward compatibility was attempted", "unsupported toolchain", "orward compatible", "No CUDA GPUs are available", "not compiled with CUDA enabled", "Failed to infer device type", "system not yet initialized", "CUDA unknown error", "Driver/library version mismatch", "driver/library version mismatch", "Can't initialize NVML", "no GPUs found!", "invalid device function", "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "unsatisfied condition: cuda", "libcuda.so.1: cannot open", "libcuda.so: cannot open", "HIP error: no kernel", "unsupported display driver", "No HIP GPUs are available", "No XPU devices are available", "get GPU arch from rocminfo failed", "Unknown GPU architecture: gfx", "This kernel only supports sm", "Driver Not Loaded", "CUDA_VISIBLE_DEVICES is set to empty string", "Unexpected error from hipGetDeviceCount", "Incompatible kernel and userspace", "Cannot access accelerator device when none is available", "CUDA driver initialization failed, you might not have", needs=when(lacks=r"\bnvls\.cc:\d+ (?:\(\w+\) )?NCCL WARN")),
    rule(DRIVER, "of bin package does not match", pattern=r"socversion \S{1,40} of bin package does not match"),
    rule(DRIVER, "device kernel image is invalid", needs=when(lacks=r"(?:Capturing |/jit/\w{1,40}\.hpp).{0,200}device kernel image is invalid")),
    rule(UNKNOWN, "device kernel image is invalid", rank=Rank.GENERAL),
    rule(DRIVER, "HSA_STATUS_ERROR", "hipError", "No compatible code objects", pattern=r"No compatible code objects found|HSA_STATUS_ERROR_(?:OUT_OF_RESOURCES|INVALID_ISA|INCOMPATIBLE\w*|INVALID_CODE_OBJECT)|hipErrorNoBinaryForGpu|hipErrorInvalidImage|hipErrorNoDevice"),
    rule(DRIVER, "not compatible with the current PyTorch installation", rank=Rank.GENERAL, quiet=True),
    rule(DRIVER, "NVML", "CUDA", "nvidia", "device driver", "rror 80", "cudaGetDeviceCount", "please update your driver", pattern=r"Failed to initialize NVML|[Uu]nexpected error from cudaGetDeviceCount|NVMLError_(?:LibraryNotFound|DriverNotLoaded|LibRmVersionMismatch)|NVML Shared Library Not Found|could not select device driver|nvidia-container-cli: .{0,80}(?:error|requirement)|detected CUDA version .{0,60}mismatches|cuda>=\S+, please update your driver|CUDA error: (?:initialization error|no CUDA-capable device|CUDA-capable device\(s\) is/are busy)|no CUDA-capable device is detected"),
    rule(DRIVER, "NVRM: API mismatch", quiet=True),
    rule(DRIVER, "UnspecifiedPlatform", rank=Rank.SYMPTOM, quiet=True),
    rule(DRIVER, "platform is not available because: ", pattern=r"platform is not available because: (?!No module named)", quiet=True, needs=when(r"Failed to infer device type")),
    rule(DRIVER, "CUDA initialization: Found no", rank=Rank.SYMPTOM, quiet=True, needs=when(r"Failed to infer device type")),
    rule(DRIVER, "CUDA initialization: ", pattern=r"CUDA initialization: (?:Unexpected|CUDA|The)", quiet=True),
    rule(DRIVER, "cudaGetDeviceCount() returned", pattern=r"cudaGetDeviceCount\(\) returned cudaError\w+", rank=Rank.SYMPTOM, quiet=True),
)  # fmt: skip


_REASONS = re.compile(r"\b[A-Z][A-Z0-9_]{2,40}: \[([^\]]{1,400})\]")


def _common_reason(text: str, facts: Facts) -> Told:
    each = [set(found.split(", ")) for found in _REASONS.findall(text)]
    common = sorted(set.intersection(*each)) if len(each) > 1 else []
    if not each:
        return flags.value(text, facts)
    return Told(f"All {len(each)} backends are rejected for the same reason: {', '.join(common)}.") if common else Told()  # fmt: skip


FAILURES = (
    Failure(
        slug=QUANTIZATION,
        sentence="this quantization does not work here, with this model, GPU, vLLM and settings",
        why="",
        cures=(
            cure("remove --quantization: vLLM reads the method from the model's config", None, when(r"does not match the quantization|specified in the `?quantization`? argument")),
            cure("if --quantization is set, remove it; if the model's config names the method, check which release or plugin supports it", "grep -A3 quantization_config config.json", when(r"Unknown quantization method|Invalid quantization method")),
            check("check in vLLM's table of quantization support which methods this release supports on this GPU"),
        ),
        deterministic=True,
        numbers=flags.value,
        variants=(
            Variant(
                when=when(r"annot find the config file for \w"),
                sentence="the checkpoint has no config for the quantization method in the message",
                cures=(cure("remove --quantization: vLLM reads the method from the model's config", None, when(r"annot find the config file")),),
            ),
            Variant(
                when=when(r"quantization method .{0,80}is deprecated"),
                sentence="this vLLM rejects a quantization method because it is deprecated",
                why="The method may still work; a later release will not have it.",
                cures=(cure("allow it until then", "--allow-deprecated-quantization", when(r"--allow-deprecated-quantization")), cure("use a checkpoint of the model in another format", None, when(r"deprecated"))),
            ),
            Variant(
                when=when(r"some but not all shards|[Ff]ound different quantization"),
                sentence="layers that vLLM fuses into one have different quantizations in the checkpoint",
                why="vLLM needs one precision for all layers that it fuses. Another GPU does not help.",
                cures=(check("compare the layers that config.json leaves unquantized (ignore, modules_to_not_convert) with the names in the message", "grep -A40 quantization_config config.json"), cure("use a checkpoint that was quantized for vLLM, or the release that the model card requires")),
            ),
            Variant(
                when=when(r"does not support BitsAndBytes quantization|No 'packed_modules_mapping'"),
                sentence="this vLLM cannot quantize this architecture with bitsandbytes",
                why="The model's class in vLLM must support it; the GPU is not the cause.",
                cures=(cure("if the weights are not quantized yet, remove --quantization bitsandbytes and serve them as they are", None, when(r"BitsAndBytes|packed_modules")), cure("use a checkpoint of the model in another format (FP8, AWQ, GPTQ), or check whether a later release supports it")),
            ),
            Variant(
                when=when(r"quantization is (?:currently )?not supported in \w|not supported (?:on|in) (?:rocm|cpu|xpu|tpu|hpu|npu)\b"),
                sentence="this vLLM does not support this quantization on the platform that the message names",
                why="Each platform has its own list of supported methods, which grows with the releases.",
                cures=(
                    cure("if --quantization is set, remove it: vLLM then uses this platform's kernels, if there are any", None, when(r"_marlin")),
                    cure("if the message names another platform than this host's, the wrong build of vLLM is installed: check which one", "python -m pip list | grep -i -E 'vllm|torch'"),
                    check("check which formats vLLM's table of quantization support lists for this platform"),
                ),
            ),
            Variant(
                when=when(r"(?s)Failed to find a kernel that can implement(?:(?!.{0,800}requires capability)|.{0,800}(?:cannot implement due to|not divisible|disabled by))"),
                sentence="no kernel supports this quantized layer on this GPU; the message gives the reason for each kernel",
                cures=(
                    cure("if a size is not divisible, use a smaller --tensor-parallel-size", None, when(r"not divisible|tensor_parallel_size")),
                    cure("if each reason is the GPU or the group size, use a checkpoint of the model in another format"),
                ),
            ),
            Variant(
                when=when(r"MoE backend"),
                sentence="no MoE backend that vLLM may use supports the experts of this model with this GPU and these settings",
                why="The line, or one before it at level DEBUG, gives the reason for each backend.",
                cures=(
                    cure("let vLLM choose the backend: remove --moe-backend", None, when(r"MoE backend '\w+' does not support")),
                    check("check which settings rule out backends (VLLM_BATCH_INVARIANT, VLLM_USE_FLASHINFER_MOE_…, expert parallelism)", "VLLM_LOGGING_LEVEL=DEBUG vllm serve …", when(r"MoE backend")),
                ),
            ),
            Variant(
                when=when(r"(?i)^[^\n]*kv.?cache"), sentence="the KV cache cannot use this data type on this GPU, or with this model or attention backend",
                cures=(cure("keep the KV cache in the model's own data type", "--kv-cache-dtype auto", when(r"(?i)kv.?cache", lacks=r"fp8_e5m2 kv-cache")), cure("use the other FP8 type, or remove the flag", "--kv-cache-dtype fp8_e4m3", when(r"fp8_e5m2 kv-cache"))),
            ),
            Variant(
                when=when(r"[Nn]o compiled "),
                sentence="this build of vLLM has no kernel for this quantization on this GPU generation",
                why="A number in the line is the compute capability without the point.",
                cures=(
                    cure("if the GPU is newer than this vLLM, use a release (or an image) that was built for it", "python -c 'import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())'", when(r"o compiled")),
                    cure("use a checkpoint of the model in another format", None, when(r"o compiled")),
                ),
            ),
            Variant(
                when=when(r"[Cc]urrent capability: (?:-1|None)"),
                sentence="this quantization requires a CUDA compute capability, and vLLM found none",
                why="The age of the GPU is not the cause.",
                cures=(check("check which devices PyTorch finds", "python -c 'import torch; print(torch.cuda.device_count())'"), cure("on another platform, use a quantization that vLLM's list of supported hardware names for it", None, when(r"capability"))),
            ),
            Variant(
                when=when(r"[Cc]urrent capability: [3-6]\d\b"),
                sentence="this GPU is older than vLLM's kernels support: they need compute capability 7.0 (Volta), and current releases 7.5",
                why="Another quantization does not help.",
                cures=(_OTHER_GPU, cure("use a newer GPU, or an engine that supports this one, such as llama.cpp")),
            ),
            Variant(
                when=when(r"only supports? .{1,80}, but (?:got|found) "),
                sentence="this quantization needs another value of a setting; the message names both values",
                cures=(cure("load the weights in its own format", "--load-format bitsandbytes", when(r"only supports? 'bitsandbytes' load format")), cure("set it to the value that the message requires", None, when(r"only support", lacks=r"load format"))),
            ),
            Variant(
                when=when(r"capability|Blackwell|Hopper|_scaled_mm|is not supported on this GPU|for the current GPU|current platform|SM ?\d\d"),
                sentence="this GPU does not support this quantization, or the kernel that was selected for it",
                cures=(
                    _OTHER_GPU,
                    cure("if --quantization is set, remove it: vLLM then uses a kernel that this GPU supports (AWQ and GPTQ have kernels other than Marlin)", None, when(r"(?:awq|gptq)_marlin|(?:AWQ|GPTQ).?Marlin")),
                    cure("use a checkpoint of the model in a format that this GPU supports (AWQ or GPTQ need compute capability 7.5 or 8.0)", None, when(r"(?s)^(?!.{0,600}(?i:awq|gptq|wna16|_scaled_mm|capability:? 7[0-2]\b)).{0,600}(?:capability|Blackwell|Hopper|GPU|platform|SM)", lacks=NOT_CUDA)),
                    cure("if the GPU does not meet the requirement in the message, use a checkpoint of the model that is not FP8", None, when(r"_scaled_mm")),
                    check("compare the GPU with vLLM's table of quantization support; 16-bit weights run on all GPUs in it", None, when(r"(?is)^.{0,600}(?:awq|gptq|wna16|capability:? 7[0-2]\b)")),
                ),
            ),
            Variant(
                when=when(r"No compressed-tensors compatible scheme"),
                sentence="this vLLM does not know the combination of weight and activation formats in the checkpoint's config",
                cures=(check("read the quantization scheme", "grep -A40 quantization_config config.json"), check("check which vLLM release the model card requires, or use another quantization of the model")),
            ),
            Variant(
                when=when(r"KeyError: '|qweight|qzeros|g_idx|weight_scale"),
                sentence="the checkpoint's quantization tensors are not those that this vLLM expects for the model",
                cures=(check("compare quantization_config in config.json with the names in the weights", "grep -A8 quantization_config config.json"), check("check which vLLM release the model card requires")),
            ),
        ),
    ),
    Failure(
        slug=DTYPE,
        sentence="a data type does not fit the GPU, the model or another data type",
        why="",
        cures=(),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"Bfloat16 is only supported|bf(?:loat)?16.{0,80}compute capability.{0,30}\b8\.0"),
                sentence="this GPU does not support bfloat16, which needs compute capability 8.0 (Ampere)",
                cures=(_OTHER_GPU, cure("serve in half precision", "--dtype half", when(r"Bfloat16 is only supported|bf(?:loat)?16", lacks=_NO_HALF)), cure("this model does not support float16: serve it in float32, which needs twice the memory", "--dtype float32", when(r"Bfloat16 is only supported|bf(?:loat)?16", seen=_NO_HALF))),
            ),
            Variant(
                when=when(r"not implemented for 'Float8|^[^\n]{0,300}(?:same dtype|expected scalar type|Input type)[^\n]{0,80}Float8"),
                sentence="a PyTorch operation got FP8 values, which it does not support",
                why="--dtype does not help: it does not change FP8 values.",
                cures=(
                    check("check that config.json has the quantization_config of these weights: without it vLLM does not convert them", "grep -A8 quantization_config config.json"),
                    check("if it has, search vLLM's issues for the operation and the model"),
                ),
            ),
            Variant(
                when=when(r"fp16 and bf16"),
                sentence="FlashAttention supports only float16 and bfloat16, and got another data type",
                cures=(check("check the data type: the engine's config line has dtype=", "grep -i dtype config.json"), cure("serve in 16 bits", "--dtype bfloat16", when(seen=r"dtype[=: ]{1,2}(?:torch\.)?float32|--dtype float32"))),
            ),
            Variant(
                when=when(r"\w_cpu_?\" not implemented for '(?:Half|BFloat16)'"),
                sentence="this PyTorch does not implement this operation for this data type on the CPU",
                why="The operation ran on the CPU.",
                cures=(cure("on a CPU, serve in a data type that it supports", "--dtype bfloat16", when(r"'Half'", seen=r"(?i)device_config=cpu|detected platform cpu|cpu_worker|cpu_executor")), cure("if a GPU should do this work, check that PyTorch sees it", "python -c 'import torch; print(torch.__version__, torch.cuda.is_available())'", when(lacks=r"(?i)device_config=cpu|detected platform cpu|cpu_worker|cpu_executor"))),
            ),
            Variant(
                when=when(r"compute capability below|^(?![^\n]*(?i:bfloat16|fp8))[^\n]*GPUs with compute capability of at least"),
                sentence="this GPU is older than the software supports; the message names the compute capability that it requires",
                why="Another --dtype does not help.",
                cures=(check("check the GPU and its compute capability", "nvidia-smi --query-gpu=name,compute_cap --format=csv"), _OTHER_GPU, cure("use a newer GPU, or an engine that supports this one, such as llama.cpp")),
            ),
            Variant(
                when=when(r"fp8e4nv|^[^\n]*(?:Float8|fp8|FP8)"),
                sentence="the FP8 type in the message is not supported here, on this GPU or by this part of vLLM",
                why="Another --dtype does not help.",
                cures=(
                    cure("keep the KV cache in the model's own data type", "--kv-cache-dtype auto", when(seen=rf"(?i){_FP8_CACHE}|(?:fp8|data type).{{0,60}}kv.?cache")),
                    cure("the KV cache in this log is not FP8: search vLLM's issues for the function that casts to it (weights, speculative decoding) and this GPU", None, when(facts=("kv_cache_dtype",), lacks=r"kv_cache_dtype\W{1,4}(?:auto|fp8)|dtype[= ]fp8")),
                    cure("if its weights are FP8, use a checkpoint of the model that is not FP8 (AWQ, GPTQ, or 16-bit)", None, when(r"fp8e4nv", lacks=rf"(?i){_FP8_CACHE}|kv_cache_dtype\W{{1,4}}(?!auto)")),
                ),
            ),
            Variant(
                when=when(r"does not support float16|Numerical instability"), sentence="this model does not support float16",
                cures=(cure("serve it in bfloat16 (or in float32 on a GPU without bfloat16)", "--dtype bfloat16", when(r"does not support float16|Numerical")),),
            ),
            Variant(
                when=when(r"for quantization method"), sentence="this quantization does not support the requested data type",
                cures=(cure("this platform casts that data type to another, so the quantization does not run here: use weights in another format", None, when(r"Supported dtypes", seen=r"casting to")), cure("use the data type that the message lists", "--dtype half", when(r"Supported dtypes: \[torch\.float16\]", lacks=r"casting to")), cure("use a data type that the message lists", "--dtype …", when(r"Supported dtypes", lacks=r"Supported dtypes: \[torch\.float16\]|casting to"))),
            ),
            Variant(
                when=when(r"."), sentence="two data types do not match, or one is not supported here",
                cures=(cure("remove --dtype and --kv-cache-dtype, if they are set", None, when(seen=r"--(?:kv-cache-)?dtype|'(?:kv_cache_)?dtype': '(?!auto)")), check("search vLLM's issues for the message, the innermost function of the traceback, and the model")),
            ),
        ),
    ),
    Failure(
        slug=ATTENTION,
        sentence="an attention backend, or its library, is not available or does not support this model, GPU or setting",
        numbers=_common_reason,
        why="",
        cures=(
            cure("if --attention-backend or VLLM_ATTENTION_BACKEND is set, remove it: vLLM then chooses a backend", "unset VLLM_ATTENTION_BACKEND", when(r"[Ss]elected|[Uu]nknown|[Ii]nvalid|removed|not valid|is not available", lacks=r"No valid")),
            cure("use the backend that the message names", "--attention-backend FLASHINFER", when(r"Please use Flashinfer")),
            cure("remove --kv-cache-dtype, or choose another data type (the model or the draft model may set it)", None, when(r"Reasons?: .{0,1500}\[['\"]?kv_cache_dtype not supported['\"]?\]|[Ff][Pp]8 kv.?cache")),
            cure("serve with FlexAttention, as the message advises (later releases have --attention-backend for it): it supports any head size", None, when(r"FLEX_ATTENTION to use")),
            cure("serve with Triton attention, which supports sinks on older GPUs", "--attention-backend TRITON_ATTN   (in 0.10: VLLM_ATTENTION_BACKEND=TRITON_ATTN_VLLM_V1)", when(r"[Ss]inks are only supported")),
            check("check which part chose FlashAttention: the model's layers, a vision encoder, or code of the model itself (the traceback shows it)", None, when(r"only supports? Ampere|FA[23] is not supported|head dimension at most")),
            cure("if it is the model's layers, serve with another attention backend", "--attention-backend TRITON_ATTN", when(r"only supports? Ampere|FA[23] is not supported|head dimension at most|does not support (?:headdim|tanh)")),
            check("check which FlashInfer is installed; if no flag or variable chose it, install the one that this vLLM requires", "python -m pip list | grep -i -E 'vllm|flashinfer'; env | grep -i -E 'flashinfer|attention_backend'", when(r"(?i)flashinfer.{0,80}(?:not installed|not available|nstall the package)")),
            cure("this build has no FlashMLA, or FlashMLA was not compiled for this GPU generation: check the GPU, and use an official vLLM image if you built vLLM yourself", "nvidia-smi --query-gpu=name,compute_cap --format=csv; python -m pip show vllm", when(r"_flashmla_C is not available")),
            check("check that xFormers was built for the installed PyTorch", "python -m xformers.info", when(r"xFormers wasn't build")),
            check("test whether another attention backend works", "--attention-backend FLASH_ATTN   (or TRITON_ATTN)", when(r"Batch(?:Prefill|Decode)With\w+ failed")),
            cure("the model's sparse attention has kernels only for some GPUs (in most releases Hopper and data-center Blackwell): check the model's recipe", "nvidia-smi --query-gpu=name,compute_cap --format=csv", when(r"use_sparse=True.{0,1500}compute capability not supported|Sparse Attention \w{1,20} Kernel is only supported")),
            check("compare head size, data type and GPU with vLLM's table of attention backends"),
        ),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"(?:[Uu]nknown|[Ii]nvalid) attention backend"),
                sentence="this vLLM does not have the requested attention backend",
                why="Each release has its own list. The backends of other hardware come with a plugin, whose version must match this vLLM.",
                cures=(cure("if you set --attention-backend or VLLM_ATTENTION_BACKEND, use a name from the list, or remove it", None, when(r"(?:nknown|nvalid) attention backend")), cure("if a plugin set it, check that its version matches this vLLM", "python -m pip list | grep -i vllm")),
            ),
        ),
    ),
    Failure(
        slug=DRIVER,
        sentence="the driver, CUDA (or ROCm) and the build of PyTorch or vLLM do not match this GPU, or no GPU is visible",
        why="",
        cures=(check("check the driver and GPU that this process sees", "nvidia-smi", when(lacks=r"HSA_|hip|HIP|gfx|rocm|XPU")), check("check the GPU and driver that this process sees", "rocminfo | grep -i gfx; rocm-smi", when(seen=r"HSA_|hip|HIP|gfx"))),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"Triton Error.{0,80}(?:device kernel image is invalid|no kernel image)"),
                sentence="the GPU's driver could not load a kernel that Triton compiled here",
                deterministic=None,
                cures=(
                    check("compare the driver's CUDA with that of PyTorch and of ptxas", "nvidia-smi; python -c 'import torch, triton; print(torch.version.cuda, triton.__version__)'; echo $TRITON_PTXAS_PATH", when(lacks=r"Triton Error \[HIP\]")),
                    check("compare the GPU's gfx with an override and with PyTorch's ROCm", "rocminfo | grep -i gfx; env | grep HSA_OVERRIDE; python -c 'import torch, triton; print(torch.version.hip, triton.__version__)'", when(r"Triton Error \[HIP\]")),
                    cure("if the driver is older, upgrade it, or use an image for its CUDA or ROCm; otherwise delete the cache, which Triton rebuilds", "rm -rf ~/.triton/cache", when(r"Triton Error")),
                ),
            ),
            Variant(
                when=when(r"NVRM: API mismatch"), sentence="the driver's kernel module and its libraries have different versions",
                why="No CUDA program that loads these libraries starts until the versions match.",
                cures=(check("compare the version of the loaded module with that of the libraries", "cat /proc/driver/nvidia/version; ldconfig -p | grep libcuda"), cure("if the driver of this host was updated, reboot the host, or reload the nvidia modules", None, when(r"API mismatch"))),
            ),
            Variant(
                when=when(r"^[^\n]*UnspecifiedPlatform"), sentence="vLLM found no device that it can use, so it cannot serve here",
                why="vLLM checks each kind of device (CUDA, ROCm, TPU, XPU, CPU), and none was available: only the reason for this host's kind of device counts.",
                cures=(check("read the reason for your kind of device (\"platform is not available because\")", "VLLM_LOGGING_LEVEL=DEBUG vllm --version", when(r"UnspecifiedPlatform")), check("check that its management library works in this environment (NVIDIA: NVML, AMD: amdsmi)", "nvidia-smi || python -c 'import amdsmi'"), check("check that this vLLM was built for it", "python -m pip list | grep -i -E 'vllm|torch'")),
            ),
            Variant(
                when=when(r"This kernel only supports sm"), sentence="a kernel supports only the GPU generation in the message, and stops on this GPU",
                cures=(
                    check("compare it with this GPU", "nvidia-smi --query-gpu=name,compute_cap --format=csv"),
                    cure("if this GPU is of another generation, use a vLLM (or an image) that was built for it, or use another kernel for this operation (the traceback names it)", None, when(r"only supports")),
                ),
            ),
            Variant(
                when=when(r"Unknown GPU architecture: gfx"), sentence="a library of this image (such as AITER) does not know this AMD GPU",
                cures=(cure("use an image or a release of the library that supports this GPU"), check("test whether it works without AITER", "VLLM_ROCM_USE_AITER=0", when(frames=r"aiter/"))),
            ),
            Variant(
                when=when(r"of bin package does not match"), sentence="the image was built for a different Ascend chip than this one",
                why="Its operators are compiled for the chip that the line names first.",
                cures=(cure("use vllm-ascend's image for this chip (310P and A3 have their own tags), or build it with this chip's SOC_VERSION", "npu-smi info", when(r"bin package")),),
            ),
            Variant(
                when=when(r"no kernel image|invalid device function", frames=r"-packages/(?!torch/|vllm|triton/|transformers/|uvloop/)\w"),
                sentence="a kernel that a library in the traceback calls has no code for this GPU",
                cures=(cure("if PyTorch's list has this GPU, install a build of the library for it, or build it here for the GPU's architecture", "TORCH_CUDA_ARCH_LIST=X.Y pip install --no-binary LIBRARY LIBRARY", when(r"kernel image|device function", lacks=r"\bHIP\b|hipError")), check("compare the GPU's architecture with PyTorch's list", "python -c 'import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())'")),
            ),
            Variant(
                when=when(r"(?<!NVIDIA )device kernel image is invalid|hipErrorInvalidImage", lacks=r"no kernel image|not compatible with the current PyTorch"),
                sentence="the GPU's driver could not load a compiled kernel",
                cures=(
                    check("compare the driver's CUDA with PyTorch's, and the GPU with the build's list", "nvidia-smi; python -c 'import torch; print(torch.version.cuda, torch.cuda.get_device_capability(), torch.cuda.get_arch_list())'"),
                    cure("if the driver is older, upgrade it or use an image for its CUDA; if the GPU is not in the list, use a build that lists it", None, when(r"kernel image|InvalidImage")),
                    cure("if both match, delete the caches of compiled kernels, which vLLM and the libraries rebuild", "rm -rf ~/.triton/cache ~/.cache/flashinfer ~/.nv/ComputeCache", when(r"kernel image|InvalidImage")),
                ),
            ),
            Variant(
                when=when(r"no kernel image|not compatible with the current PyTorch|device kernel image is invalid|NO_BINARY|invalid device function|NoBinaryForGpu|No compatible code objects|INVALID_ISA|InvalidImage|HIP error: no kernel"),
                sentence="the installed build of PyTorch or vLLM, or of another library, has no code for this GPU",
                cures=(check("compare the GPU with those that PyTorch was built for", "python -c 'import torch; print(torch.version.cuda or torch.version.hip, torch.cuda.get_device_capability(), torch.cuda.get_arch_list())'"), cure("if it is in the list, a library such as FlashInfer or vLLM's own extension lacks it: read the traceback's innermost frames"), check("check for an override of the GPU's architecture", "rocminfo | grep -i gfx; env | grep HSA_OVERRIDE", when(r"HIP|hip|gfx|code objects|INVALID_ISA")), cure("use wheels or an image that list this GPU's architecture")),
            ),
            Variant(
                when=when(r"[Ee]rror 803|unsupported display driver|SYSTEM_DRIVER_MISMATCH"),
                sentence="the loaded CUDA driver library (libcuda) does not match the host's kernel driver",
                why="CUDA error 803 is a mismatch within the driver, which may be new enough.",
                cures=(check("compare the loaded library with the kernel's driver", "ldconfig -p | grep libcuda; cat /proc/driver/nvidia/version"), cure("if it is in a cuda-compat directory, remove that directory from LD_LIBRARY_PATH and ld.so.conf.d", None, when(r"803|display driver|DRIVER_MISMATCH"))),
            ),
            Variant(
                when=when(r"[Ee]rror 804|orward compatibility was attempted"),
                sentence="the loaded libcuda is newer than the kernel's driver (as in CUDA's compatibility package), and this GPU does not support that",
                cures=(
                    check("check the driver's CUDA, and which libcuda is loaded", "nvidia-smi; ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH"),
                    cure("if it is in a compat directory and the driver's major CUDA version is the image's, remove that directory from LD_LIBRARY_PATH and ld.so.conf.d", None, when(r"804|orward compat")),
                    cure("otherwise upgrade the driver, or use wheels (or an image) for a CUDA version that it supports", None, when(r"804|orward compat")),
                ),
            ),
            Variant(
                when=when(r"driver version is insufficient|driver on your system is too old|forward compat|unsupported toolchain|please update your driver|unsatisfied condition|[Ee]rror 804|older than what this build"),
                sentence="the NVIDIA driver is older than the CUDA that PyTorch (or the image) was built for, or cannot be loaded",
                cures=(check("check the driver version, and the newest CUDA version that it supports", "nvidia-smi"), cure("upgrade the driver, or use wheels (or an image) for a CUDA version that it supports", None, when(r"driver|compat|toolchain|cuda|[Ee]rror 80"))),
            ),
            Variant(
                when=when(r"ibrary version mismatch"), sentence="the NVIDIA driver's libraries and its loaded kernel module have different versions",
                cures=(cure("if the driver of the host was upgraded, reload the module, or reboot the host", "cat /proc/driver/nvidia/version; nvidia-smi"),),
            ),
            Variant(
                when=when(r"No HIP GPUs|rocminfo failed|hipErrorNoDevice|hipGetDeviceCount|Incompatible kernel and userspace"),
                sentence="this process sees no AMD GPU, or cannot identify it",
                deterministic=False,
                cures=(
                    check("check the GPUs and permissions that this process sees", "rocminfo | grep -i gfx; ls -l /dev/kfd /dev/dri; id; env | grep VISIBLE_DEVICES"),
                    cure("in a container, pass the devices through", "docker run --device /dev/kfd --device /dev/dri --group-add video …", when(r"No HIP GPUs|rocminfo|NoDevice")),
                ),
            ),
            Variant(
                when=when(r"No XPU devices"), sentence="this process sees no Intel GPU",
                deterministic=False,
                cures=(check("check the devices and permissions that this process sees", "ls -l /dev/dri; id; env | grep ZE_AFFINITY_MASK"), cure("in a container, pass them through", "docker run --device /dev/dri …", when(r"No XPU devices"))),
            ),
            Variant(
                when=when(r"infer device type", facts=("missing_library",)),
                sentence="vLLM found no device, and a library that this build needs is missing (missing_library in the facts)",
                why="libcudart.so.N belongs to CUDA N, and an AMD or Intel GPU needs its own build.",
                cures=(
                    check("compare it with the GPU here, and with the installed PyTorch", "python -c 'import torch; print(torch.__version__, torch.version.cuda, torch.version.hip)'; lspci | grep -i -E 'nvidia|amd|intel'"),
                    cure("if they do not match, install the vLLM build for this GPU and this CUDA or ROCm", None, when(r"device type")),
                ),
            ),
            Variant(
                when=when(r"could not select device driver"),
                sentence="Docker cannot pass GPUs to containers here: NVIDIA's container toolkit is not installed, or Docker is not configured for it",
                why="The container was not started, so vLLM did not run.", deterministic=False,
                cures=(check("check that the host itself sees its GPUs", "nvidia-smi; nvidia-ctk --version"), cure("install nvidia-container-toolkit, and configure Docker for it", "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker", when(r"device driver"))),
            ),
            Variant(
                when=when(r"nvidia-container-cli: device error"),
                sentence="the container requests a GPU that the host does not have",
                why="The line has its index or UUID. The container was not started, so vLLM did not run.", deterministic=False,
                cures=(check("compare it with the host's GPUs", "nvidia-smi -L"), cure("use a GPU from that list in --gpus, NVIDIA_VISIBLE_DEVICES or the compose file", None, when(r"device error"))),
            ),
            Variant(
                when=when(r"nvidia-container-cli: .{0,80}(?:load library failed|nvml error|not loaded|initialization error)"),
                sentence="NVIDIA's container toolkit could not reach the host's driver",
                why="The container was not started, so vLLM did not run.", deterministic=False,
                cures=(check("check the driver on the host itself", "nvidia-smi; lsmod | grep nvidia"), cure("if it works there, check which Docker runs", "docker context ls; docker info | grep -i -E 'operating system|runtimes'"), cure("otherwise install or load the host's driver first", None, when(r"container-cli"))),
            ),
            Variant(
                when=when(r"Failed to initialize NVML: Unknown Error"),
                sentence="the driver's library (NVML) was found, but could not be initialized",
                deterministic=False,
                cures=(check("compare the host with the container", "nvidia-smi; docker exec CONTAINER sh -c 'nvidia-smi; ls -l /dev/nvidia*'"), cure("if it works only on the host, start the container again with explicit devices, which survive a reload", "docker run --gpus all --device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm …", when(r"NVML"))),
            ),
            Variant(
                when=when(r"not compiled with CUDA"),
                sentence="the installed PyTorch is a build without CUDA",
                why="It cannot use an NVIDIA GPU with any driver.",
                cures=(check("check which build it is", "python -c 'import torch; print(torch.__version__, torch.version.cuda, torch.version.hip)'"), cure("on a machine with an NVIDIA GPU, install vLLM with its PyTorch into a fresh environment", "uv venv && uv pip install vllm --torch-backend=auto", when(r"not compiled with CUDA", lacks=NOT_CUDA))),
            ),
            Variant(
                when=when(r"detected CUDA version"),
                sentence="an extension is compiled here, and the CUDA toolkit (nvcc) has a different version than PyTorch's CUDA",
                why="The driver and the GPU are not the cause: CUDA_HOME or PATH selects the toolkit.",
                cures=(check("compare both", "which -a nvcc; nvcc --version; echo $CUDA_HOME; python -c 'import torch; print(torch.version.cuda)'"), cure("select a toolkit of PyTorch's CUDA version, or install a prebuilt wheel of the extension", "export CUDA_HOME=/usr/local/cuda-X.Y", when(r"detected CUDA"))),
            ),
            Variant(
                when=when(r"No CUDA GPUs|no NVIDIA driver|Found no NVIDIA|no CUDA-capable|NVML|nvml|libcuda\.so|select device driver|no GPUs found|infer device type|HIP GPUs|hipErrorNoDevice|Driver Not Loaded|set to empty string|accelerator device when none|you might not have a CUDA|platform is not available"),
                sentence="this process sees no GPU or driver that it can use",
                deterministic=False,
                cures=(
                    check("check the driver and GPU that this process sees", "nvidia-smi; echo $CUDA_VISIBLE_DEVICES"),
                    cure("in a container, pass the GPUs through (NVIDIA's container toolkit must be installed)", "docker run --gpus all …", when(seen=r"No CUDA GPUs|no NVIDIA driver|Found no NVIDIA|select device driver|libcuda\.so|NVML|nvml|CUDA platform", lacks=r"\bHIP\b|hipError|XPU|NPU")),
                    cure("if Ray started this process, check that its actor has a GPU (num_gpus)", "ray status", when(r"No CUDA GPUs", seen=r"RayWorker|RayDistributed|\bray::|\(raylet\)")),
                    check("in Kubernetes, check that the pod requests a GPU and that the driver's libraries are in LD_LIBRARY_PATH", "kubectl describe pod POD | grep -i -A3 limits; find / -name 'libnvidia-ml.so*'", when(r"NVML|nvml|libcuda")),
                    check("check whether PyTorch was built for this GPU (CUDA, ROCm)", "python -c 'import torch; print(torch.__version__, torch.version.cuda, torch.version.hip)'", when(r"device type", lacks=r"CUDA initialization: Found no|NVML|nvml")),
                ),
            ),
            Variant(
                when=when(r"system not yet initialized|[Ee]rror 802"),
                sentence="the GPUs are not initialized yet: on machines with NVSwitch, the fabric manager must run first",
                cures=(check("check that it runs, and that its version is the driver's", "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric"),),
                deterministic=False,
            ),
            Variant(
                when=when(r"CUDA unknown error|are busy|initialization error|cudaGetDeviceCount\(\)(?: returned|\.)"), sentence="CUDA could not be initialized",
                cures=(
                    check("check the driver and GPU that this process sees", "nvidia-smi"),
                    check("check whether the GPU is in exclusive mode, and which process has it", "nvidia-smi -q -d COMPUTE; nvidia-smi --query-compute-apps=pid,name --format=csv", when(r"are busy")),
                    cure("if a script used CUDA before vLLM started its workers, start them with spawn", "VLLM_WORKER_MULTIPROC_METHOD=spawn", when(r"CUDA error: initialization error")),
                    check("if nvidia-smi works, check /dev/nvidia-uvm and the kernel log: after a suspend or an update, the module must be reloaded", "ls -l /dev/nvidia-uvm; dmesg -T | grep -i -E 'nvrm|uvm'", when(r"CUDA unknown error")),
                ),
                deterministic=False,
            ),
            Variant(
                when=when(r"HSA_STATUS_ERROR_OUT_OF_RESOURCES.{0,300}[Ff]ree mem"),
                sentence="the AMD GPU's runtime ran out of a resource, such as GPU memory",
                why="The line shows how much memory was free.",
                cures=(check("check which processes hold memory on this GPU", "rocm-smi --showmeminfo vram --showpids"), cure("if the free memory in the line is near zero, leave more of it for the runtime: lower --gpu-memory-utilization by 0.05", None, when(r"OUT_OF_RESOURCES"))),
                deterministic=None,
            ),
            Variant(
                when=when(r"HSA_STATUS_ERROR_OUT_OF_RESOURCES"), sentence="the HSA runtime of AMD GPUs could not get a resource",
                cures=(check("check the GPU's gfx, any override, and the permissions", "rocminfo | grep -i gfx; env | grep HSA; ls -l /dev/kfd /dev/dri"),),
            ),
        ),
    ),
)  # fmt: skip
