"""Failures caused by the model, its files, tokenizer or LoRA adapters.

Sources: vllm/config, vllm/lora, vllm/transformers_utils of vLLM 0.6 to 0.32; vllm #24541; QwenPaw #3084 (TokenizersBackend).
"""

import re

from vllm_watch.diagnosis.families import flags
from vllm_watch.diagnosis.report import UNKNOWN, Fix
from vllm_watch.diagnosis.rule import (
    WHOLE,
    Facts,
    Failure,
    Rank,
    Told,
    Variant,
    check,
    cure,
    rule,
    when,
)
from vllm_watch.support import vllm_flags

_SHAPES = re.compile(rf"load weights? (?:of size )?\(?torch\.Size\(\[({WHOLE}), 1\]\)\)? ?(?:to a|into) parameter (?:of size )?\(?torch\.Size\(\[({WHOLE}), ({WHOLE})\]\)")  # fmt: skip


def is_packed(text: str) -> bool:
    """Return True if the weight is the parameter in 4-bit form."""
    found = _SHAPES.search(text)
    return found is not None and int(found[1]) * 2 == int(found[2]) * int(found[3])


_MISSING = re.compile(r"not initialized from checkpoints?: \{([^{}]{1,8000})")
_LAYER = re.compile(r"layers\.(\d{1,4})\.([\w.]+)")


def lacks_some_layers(text: str) -> bool:
    """Return True if all missing weights are of a few layers, and several of each layer are missing."""
    found = _MISSING.search(text)
    names = found[1].split(", ") if found else []
    layers = [each for each in map(_LAYER.search, names) if each]
    numbers = {int(each[1]) for each in layers}
    return len(layers) == len(names) > len(numbers) > 0 and 0 not in numbers


_ARCHITECTURE = re.compile(r"[Aa]rchitectures? \[?['\"]?(\w{4,80})|\b(\w{4,80}) has no vLLM\b|model module\. '(\w{4,80})'")  # fmt: skip


def architecture(text: str, facts: Facts) -> Told:
    """Name the releases that have the architecture."""
    return flags.of_release(vllm_flags.ARCHITECTURE, _ARCHITECTURE.search(text), facts)


ARCHITECTURE = "unsupported_architecture"
TOKENIZER = "tokenizer_mismatch_or_missing_chat_template"
CONFIG = "rope_or_config_mismatch"
_RANK = re.compile(rf"rank \(?({WHOLE})\)? is greater than max_lora_rank")
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values that --max-lora-rank takes (vllm/config/lora.py)."""


_MERGE = "merge the adapter into the model's weights before serving (peft: merge_and_unload)"


def _rank(text: str, facts: Facts) -> Told:
    found = _RANK.search(text)
    if not found:
        return Told()
    wanted = int(found[1])
    enough = next((each for each in _RANKS if each >= wanted), None)
    if enough is None:
        return Told(f"Rank {wanted} is above vLLM's limit ({_RANKS[-1]}).", (Fix(_MERGE),))
    return Told(
        f"The adapter's rank is {wanted}.",
        (Fix("allow the adapter's rank", f"--max-lora-rank {enough}"),),
    )


LORA = "lora_mismatch"

RULES = (
    rule(ARCHITECTURE, "odel architectures", pattern=r"[Mm]odel architectures? .{0,300}(?:not supported|failed to be inspected)"),
    rule(ARCHITECTURE, "does not recognize this architecture", "has no vLLM implementation", "has no vLLM or Transformers implementation", "Unrecognized configuration class", "Unrecognized model in", "Cannot find model module", "model type should be one of", "Unsupported model type", "not supported by the Transformers backend", "does not support `--runner", "This model does not support the", "GGUF model with architecture"),
    rule(ARCHITECTURE, "Unsupported architecture", "not compatible with vLLM", pattern=r"(?<!\): )Unsupported architecture(?!.{0,40}(?:\b[sS][mM]|gfx|\d\d|[Gg][Ee][Mm][Mm]|[Kk]ernel))|[Mm]odel.{0,80}not compatible with vLLM"),
    rule(ARCHITECTURE, "but Transformers does not recognize", "Pipeline parallelism is not supported for this model", "The Transformers implementation of"),
    rule(ARCHITECTURE, "not supported", "was not supported", pattern=r"[Mm]odel (?:class |type |arch\w* )?\S{1,80} (?:is|are|was) not supported(?! for Lo)|(?:ForCausalLM|ForConditionalGeneration|Model)\S{0,3} (?:is|are|has been) not supported(?! for Lo)|architectures? \S+ (?:is|are) not supported|\bArchitecture \S{1,60} not supported", rank=Rank.GENERAL),
    rule(ARCHITECTURE, "KeyError: '", "configuration_auto", pattern=r"CONFIG_MAPPING\[|configuration_auto\.py.{0,800}KeyError", rank=Rank.GENERAL),
    rule(ARCHITECTURE, "There is no module or parameter named", "Following weights were not initialized from checkpoint", "Some weights are not initialized from checkpoints", rank=Rank.GENERAL),
    rule(ARCHITECTURE, "KeyError: '", pattern=r"KeyError: '(?![\w.]{0,200}(?:attn|mixer|mamba|indexer|experts|moe|cache)')(?:model\.|layers\.|transformer\.|visual\.|language_model\.|lm_head|block_sparse|[\w.]*\.layers?\.\d+\.)", rank=Rank.GENERAL),
    rule(TOKENIZER, "chat template", "chat_template", pattern=r"default chat template is no longer allowed|must provide a chat template|chat_template is not set|chat template.{0,60}(?:not defined|does not exist|not found|failed|looks like a file path)|no chat template|ChatTemplateResolutionError|[Ff]ound a chat template.{0,800}failed|apply_chat_template.{0,800}chat_template"),
    rule(TOKENIZER, "onversation roles must alternate", "ystem role not supported", "fter the optional system message", "jinja2.exceptions.", "TemplateSyntaxError", "TemplateError:", "Only user and assistant roles"),
    rule(TOKENIZER, "okenizer", pattern=r"Tokenizer class \S+ does not exist or is not currently imported|[Cc]an't load tokenizer for|[Cc]ouldn't instantiate the backend tokenizer|[Nn]o tokenizer file found|[Cc]annot (?:find|load) (?:the )?tokenizer|Unrecognized tokenizer|[Tt]okenizer.{0,60}(?:does not match|mismatch)|[Uu]nable to load (?:vocabulary|tokenizer)"),
    rule(TOKENIZER, "data did not match any variant of untagged enum", "expected value at line 1 column 1", pattern=r"untagged enum \w*Wrapper|Exception: expected value at line 1 column 1"),
    rule(TOKENIZER, "Error while initializing BPE", "Error parsing line b'", "piece id is out of range", "Non-consecutive added token", "tekken.json", "Converting from Tiktoken failed", "Converting from SentencePiece"),
    rule(TOKENIZER, "Tokenizer", pattern=r"AttributeError: (?:'?\w{0,80}Tokenizer\w{0,80}'? (?:object )?has no attribute|.{0,800}tokenizer.{0,800}has no attribute)|TypeError: not a string.{0,800}|sentencepiece.{0,800}(?:RuntimeError|TypeError)", rank=Rank.GENERAL),
    rule(TOKENIZER, "ailed to load the tokenizer", rank=Rank.GENERAL),
    rule(CONFIG, "User-specified max_model_len", pattern=r"User-specified max_model_len \(\d+\) is greater"),
    rule(CONFIG, "rope", "Rope", "RoPE", "ROPE", "longrope", "mrope", pattern=r"(?:Error|error|assert|must|Unrecognized|Unknown|missing|invalid)\b.{0,200}\b(?:rope_(?:scaling|type|parameters|theta)|RoPE scaling|mrope_section|RoPE type)|\brope_(?:scaling|parameters)`?(?:'s)? .{0,60}(?:must|should|Missing|field|dictionary)|KeyError: '(?:rope_\w+|original_max_position_embeddings|short_factor|long_factor|mrope_section|rope_scaling)'"),
    rule(CONFIG, "max_num_batched_tokens", pattern=r"max_num_batched_tokens \(\d+\) (?:is smaller than|must be greater)"),
    rule(CONFIG, "Tried to load weights of size", "Attempted to load weight", "loaded_weight.shape", "size mismatch for", pattern=r"Tried to load weights of size|Attempted to load weight|assert .{0,800}loaded_weight\.shape|size mismatch for", rank=Rank.GENERAL, needs=when(serving=False)),
    rule(UNKNOWN, "shapes cannot be multiplied", "must match the size of tensor", "must match the existing size", "invalid for input of size", rank=Rank.GENERAL),
    rule(CONFIG, "onfig", pattern=r"AttributeError: '?(?!(?:Vllm|Model|Parallel|Cache|Scheduler|Load|Device|Compilation|LoRA|Lora|Speculative|KVTransfer|Kernel|Attention|Observability|StructuredOutputs|MultiModal|Pooler|Profiler|Offload|ECTransfer|EPLB|\w{0,40}Quant\w{0,40}|Fp8|AWQ\w{0,40}|GPTQ\w{0,40}|CompressedTensors|ModelOpt\w{0,40}|BitsAndBytes|Quark|Mxfp4|LMCache\w{0,40})Config\b)\w{0,100}Config'? object has no attribute|text_config extracted from the model config does not have|config\.json.{0,40}(?:JSONDecodeError|is not a valid JSON)", rank=Rank.GENERAL),
    rule(CONFIG, "No model architectures are specified", "requires you to execute the configuration file", "contains custom code which must be executed", rank=Rank.GENERAL),
    rule(CONFIG, "validation error", pattern=r"(?<!\d)\d{1,6} validation errors? for (?:\w{0,80}Config|\w{0,80}Args)\b", rank=Rank.SYMPTOM),
    rule(UNKNOWN, "Assertion failed, ", pattern=r"^\W{0,8}(?:\([^()]{1,80}\) )*(?:.{0,60}\] )?\s*Assertion failed, \S", rank=Rank.GENERAL),
    rule(CONFIG, "Value error, ", rank=Rank.GENERAL, needs=when(seen=r"validation errors? for \w*(?:Config|Args)\b|^(?!.*validation error)")),
    rule(LORA, "LoRA rank", "lora_rank", pattern=r"LoRA rank \S+ is greater than max_lora_rank|max_lora_rank \(\d+\) must be"),
    rule(LORA, "LoRA", "Lora", "lora", "LORA", "Adapter bias", "No suitable kernel. h_in", pattern=r"No suitable kernel\. h_in|does not support (?:LoRA|LORA|lora)|not supported for (?:LoRA|LORA)|LoRA (?:is|was) not (?:enabled|supported)|LoRA is not enabled|no support for LORA|is unsupported LoRA weight|[Uu]nsupported LoRA weight|No adapter found for|LoRA added vocab size|[Nn]o free (?:LoRA|lora) slots|greater than the number of GPU LoRA slots|Adapter bias cannot be used|LoRA adapter .{0,80}(?:not found|does not exist|contains)|The lora adapter .{0,80}(?:does not exist|not found)|When using LoRA, vocab|max_cpu_loras \(\d+\) must be|[Pp]unica LoRA kernels|Long LoRA scaling factor|supported LoRA modules found|LoRA path must be"),
    rule(LORA, "Loading lora", pattern=r"Loading lora \S+ failed(?!: No adapter)", rank=Rank.SYMPTOM),
    rule(LORA, "expected target modules in", "adapter_config.json", "vLLM only supports modules_to_save", "vLLM does not yet support DoRA", "Adapter rank", pattern=r"expected target modules in|(?:Error|error|not|No)\b.{0,200}adapter_config\.json|adapter_config\.json.{0,80}(?:not|missing)|vLLM only supports modules_to_save|vLLM does not yet support DoRA"),
)  # fmt: skip

_ROLES = r"[Rr]ole|optional system message|TemplateError"
_PINNED_TRANSFORMERS = check("check whether this vLLM supports the installed Transformers version", "python -m pip check; python -m pip show vllm transformers")  # fmt: skip


FAILURES = (
    Failure(
        slug=ARCHITECTURE,
        sentence="this vLLM (with its Transformers) cannot serve this model as it is",
        why="",
        cures=(
            check("check vLLM's list of supported models for the architecture and the first release that supports it"),
            cure("if the list does not have it for this release, use a later release that does", None, when(r"not supported for now|has no vLLM|not recognize this architecture|annot find model module|CONFIG_MAPPING|does not recognize")),
        ),
        deterministic=True,
        numbers=architecture,
        variants=(
            Variant(
                when=when(r"Unrecognized model in "), sentence="config.json has no model_type, so Transformers cannot identify the architecture",
                cures=(
                    check("check its contents", "grep -E 'model_type|architectures' /path/to/model/config.json; ls -lL /path/to/model"),
                    cure("if the folder has adapter_config.json, serve the base model with this adapter", "vllm serve BASE --enable-lora --lora-modules NAME=/path", when(r"Unrecognized model")),
                    cure("if it has params.json and consolidated weights, load it in Mistral's format", "--tokenizer-mode mistral --config-format mistral --load-format mistral", when(r"Unrecognized model")),
                ),
            ),
            Variant(
                when=when(r"Unrecognized configuration class [^\n]{0,300}(?:AutoTokenizer|AutoProcessor|AutoImageProcessor)"), sentence="Transformers has no tokenizer or processor for this model's config class",
                cures=(check("check whether the files exist and name a class or auto_map", "ls -lL /path/to/model; grep -E 'tokenizer_class|auto_map' /path/to/model/*.json"), _PINNED_TRANSFORMERS, cure("if you trust the repository's code (auto_map), allow it", "--trust-remote-code", when(r"Unrecognized"))),
            ),
            Variant(
                when=when(r"no module or parameter named|KeyError: '", frames=r"(?:update|sync|receive)_weights"),
                sentence="a trainer sent weights to the running engine under names that vLLM's model does not have",
                why="The names come from the trainer (verl, TRL, OpenRLHF …), including LoRA names; the checkpoint on disk is not the cause.",
                cures=(check("check whether the trainer release supports this vLLM, and how it maps or merges LoRA weights", "python -m pip show vllm verl trl openrlhf", when(frames=r"_weights")),),
            ),
            Variant(
                when=when(r"no module or parameter named '[^']{0,200}(?:base_layer|lora_[AB]|base_model)"), sentence="the checkpoint has PEFT's names of a LoRA adapter that is attached and not merged",
                why="PEFT creates names like base_layer and lora_A; the model's own layers do not have them.", cures=(cure("merge the adapter before saving (peft: merge_and_unload), or save and serve it as an adapter of the base model", None, when(r"named '")),),
            ),
            Variant(
                when=when(r"failed to be inspected"),
                sentence="vLLM knows this model's architecture, but could not inspect the code that implements it",
                why="The error of the inspection is above this line.",
                cures=(check("read the traceback above"), cure("if the traceback ends with No module named, install that package into the Python that runs vLLM", None, when(seen=r"No module named '"))),
            ),
            Variant(
                when=when(r"Transformers does not recognize|CONFIG_MAPPING|not recognize this architecture"),
                sentence="the installed Transformers does not know this model type",
                why="Each vLLM release accepts only some Transformers versions.",
                cures=(cure("if a later Transformers knows it, use a vLLM release that accepts this Transformers (or a nightly build, for a very new model)", None, when(r"not recognize|CONFIG_MAPPING")), check("check which versions are installed and whether they are compatible", "python -m pip check")),
            ),
            Variant(
                when=when(r"Pipeline parallelism is not supported"),
                sentence="this model does not support pipeline parallelism",
                cures=(cure("use tensor parallelism only", "--pipeline-parallel-size 1", when(r"Pipeline parallelism")),),
            ),
            Variant(
                when=when(r"[Aa]rchitectures? \[?'(?:Eagle|Medusa|MLPSpeculator|DFlash|\w*MTP)"),
                sentence="this vLLM does not support the architecture of the draft model (speculative decoding)",
                why="Such a model only drafts tokens for another model. If --model names it, name the target model instead.",
                cures=(cure("serve without speculative decoding: remove --speculative-config", None, when(r"rchitecture", seen=r"speculative[-_]config['\"]?[ =:]{1,3}(?!None)")), cure("use a draft model (or method) that vLLM's page on speculative decoding lists for this release")),
            ),
            Variant(
                when=when(facts=("some_layers_missing",)),
                sentence="vLLM found no weights in the checkpoint for parts of some layers",
                cures=(check("compare the files and their sizes with model.safetensors.index.json, and num_hidden_layers with its layers", "ls -lL /path/to/model"), cure("if files are missing, download them", "hf download ORG/MODEL", when(facts=("some_layers_missing",)))),
            ),
            Variant(
                when=when(r"not initialized from checkpoint.{0,40}\{'(?:score|classifier)\.weight'"),
                sentence="vLLM found no weights in the checkpoint for the classification head, which the configured task needs",
                why="A checkpoint for text generation has none, unless vLLM derives the head from the language model's output (classifier_from_token).",
                cures=(cure("remove --task or --runner if the model should generate text, or use a checkpoint with a head", None, when(r"score|classifier")),),
            ),
            Variant(
                when=when(r"not initialized from checkpoint"),
                sentence="vLLM's implementation of this model expects weights that it did not find in the checkpoint under these names",
                cures=(check("search for the message's names in model.safetensors.index.json, and check that all its files exist", "ls -lL /path/to/model"), check("check which vLLM release the model's page requires")),
            ),
            Variant(
                when=when(r"KeyError: '", frames=r"is_layer_skipped|/quantization/|quant_config"),
                sentence="the checkpoint's quantization description has no entry for a layer of the model",
                cures=(check("compare its names with the name in this line", "grep -m3 -n q_proj /path/to/model/quant*.json; grep -A8 quantization_config /path/to/model/config.json"),),
            ),
            Variant(
                when=when(r"no module or parameter named|KeyError: '"),
                sentence="the checkpoint has a weight name that vLLM's implementation of this model does not have",
                cures=(check("compare the names with those in model.safetensors.index.json"), check("check which vLLM release the model's page requires")),
            ),
            Variant(
                when=when(r"--runner|--task|\b(?:task|pooling|generat\w+|embed\w*|classif\w+|scor\w+|transcri\w+)\b.{0,80}\b(?:API|task|runner)|'embed' task"),
                sentence="the model, as started, does not support the task that a flag or a request asks for",
                cures=(cure("request a task that the message lists, or, if the command line sets it, remove --task or --runner", None, when(r"task|runner")), cure("for embeddings or scores, check that the model is made for them, and start it for that task", "--runner pooling   (before 0.11: --task embed)", when(r"(?i)embed|pooling|scor|classif|reward"))),
            ),
            Variant(
                when=when(r"GGUF"),
                sentence="this vLLM cannot load this architecture from a GGUF file",
                cures=(cure("serve the original weights (safetensors) or another quantization of them", None, when(r"GGUF")),),
            ),
        ),
    ),
    Failure(
        slug=TOKENIZER,
        sentence="the tokenizer or its chat template is missing or incompatible",
        why="",
        cures=(),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"okenizer class TokenizersBackend"),
                sentence="the checkpoint was saved with transformers 5, and this server runs an older version",
                why="transformers 5 writes tokenizer_class TokenizersBackend, which transformers 4 does not know.",
                cures=(
                    cure("use a vLLM release that runs on transformers 5 (or, if this vLLM allows it, install transformers 5)", "pip install 'transformers>=5'", when(r"TokenizersBackend")),
                    cure("or set tokenizer_class in the model's tokenizer_config.json to the actual class, such as Qwen2Tokenizer", None, when(r"TokenizersBackend")),
                ),
            ),
            Variant(
                when=when(r"okenizer class \S+ does not exist"),
                sentence="the installed Transformers does not have the tokenizer class that the model names",
                cures=(
                    check("check tokenizer_class in tokenizer_config.json, and which Transformers version added it", "python -c 'import transformers; print(transformers.__version__)'"),
                    cure("if the repository contains the code (auto_map in tokenizer_config.json), allow it", "--trust-remote-code", when(r"does not exist")),
                ),
            ),
            Variant(
                when=when(r"UndefinedError: .{1,120} is undefined"),
                sentence="the chat template uses a name that is not defined; the line has the name",
                cures=(cure("if the model's page lists it as a variable, send it with the request", "\"chat_template_kwargs\": {\"NAME\": …}", when(r"is undefined")),),
                deterministic=False,
            ),
            Variant(
                when=when(r"UndefinedError: .{1,160} has no (?:attribute|element)"), sentence="the chat template failed on the messages of a request: it reads a field that is not there",
                cures=(check("compare the messages and tools of the request with the fields that the template reads", None, when(r"has no")), cure("if content is a list of parts, let vLLM join them into a string", "--chat-template-content-format string", when(r"has no"))),
                deterministic=False,
            ),
            Variant(
                when=when(r"TemplateSyntaxError"), sentence="the chat template is not valid Jinja for this process",
                cures=(check("check the file that --chat-template or the tokenizer's config names, and the quoting of an inline template", None, when(r"TemplateSyntaxError")),),
            ),
            Variant(
                when=when(r"[Rr]oles must alternate|[Ss]ystem role not supported|optional system message|Only user and assistant|jinja2\.exceptions|TemplateError|TemplateSyntaxError"),
                sentence="the chat template failed on the messages of a request",
                why="The message of the exception has the reason.",
                cures=(cure("send messages with the roles and the order that the template requires", None, when(_ROLES)), cure("if clients cannot, use a modified copy of the template", "--chat-template ./template.jinja", when(_ROLES))),
                deterministic=False,
            ),
            Variant(
                when=when(r"[Cc]hat[_ ]template|ChatTemplate"),
                sentence="the model has no chat template, or vLLM cannot read the one that was specified",
                cures=(
                    check("check the path of the template, from inside the container", "ls -l template.jinja", when(r"looks like a file path|not found|does not exist")),
                    cure("specify a chat template", "--chat-template ./template.jinja", when(r"template", lacks=r"looks like a file path")),
                    cure("or use /v1/completions, which needs no chat template", None, when(r"no longer allowed|must provide|is not set|not defined|no chat template")),
                ),
            ),
            Variant(
                when=when(r"untagged enum|data did not match"),
                sentence="the installed tokenizers library cannot read tokenizer.json",
                cures=(check("check that the file is complete, and which versions are installed", "tail -c 100 /path/to/model/tokenizer.json; python -m pip show tokenizers transformers"), cure("if it is complete, use a newer tokenizers (with a Transformers that this vLLM allows)", "python -m pip check", when(r"untagged enum")),),
            ),
            Variant(
                when=when(r"TokenizersBackend.{0,20}has no attribute|all_special_tokens_extended"),
                sentence="this vLLM or the model's own code uses a tokenizer attribute that transformers 5 does not have",
                why="The tokenizer's files are not the cause.",
                cures=(cure("use a vLLM release that runs on transformers 5, or install transformers 4", "pip install 'transformers<5'", when(r"TokenizersBackend|tokens_extended")),),
            ),
            Variant(
                when=when(r"'MistralTokenizer' object has no attribute"),
                sentence="the tokenizer was loaded in Mistral's format, and this code expects a Transformers tokenizer",
                why="Tokenizer, config and weights must use the same mode: vLLM loads a model either in Mistral's format or in Transformers' format.",
                cures=(cure("load all of it in Mistral's format, if the model has consolidated weights and params.json", "--tokenizer-mode mistral --config-format mistral --load-format mistral", when(r"MistralTokenizer")), cure("or load all of it in Transformers' format", "--tokenizer-mode hf --config-format hf", when(r"MistralTokenizer"))),
            ),
            Variant(
                when=when(r"has no attribute"),
                sentence="the code uses an attribute that the tokenizer does not have",
                cures=(_PINNED_TRANSFORMERS,),
            ),
            Variant(
                when=when(r"instantiate the backend tokenizer|Converting from (?:Tiktoken|SentencePiece)"),
                sentence="no fast tokenizer could be created from the model's files",
                cures=(check("check whether tokenizer.json exists and is complete, and whether sentencepiece and tiktoken are installed", "ls -lL /path/to/model; python -m pip show sentencepiece tiktoken"),),
            ),
            Variant(
                when=when(r"okenizer file found|annot (?:find|load)|an't load", frames=r"(?i)mistral"),
                sentence="vLLM loads the tokenizer in Mistral's format, and found no file of that format",
                why="vLLM does so with --tokenizer-mode mistral, or if it detects a model in Mistral's format. The tokenizer's files in another format may all exist.",
                cures=(cure("if the model is not in Mistral's format, let vLLM read the standard files", "--tokenizer-mode hf", when(r"okenizer|load")), cure("if it is, check whether tekken.json or tokenizer.model exists", "ls -lL /path/to/model")),
            ),
            Variant(
                when=when(r"."),
                sentence="the tokenizer could not be loaded, or it does not match the model",
                cures=(
                    check("check whether tokenizer.json (or tokenizer.model, tekken.json) exists and is complete", "ls -lL /path/to/model"),
                    cure("if they are missing, use the tokenizer of a model that has them", "--tokenizer ORG/MODEL", when(r"an't load tokenizer|tokenizer file found|annot (?:find|load)")),
                    cure("if you trust the repository's code, allow it", "--trust-remote-code", when(r"trust_remote_code")),
                ),
            ),
        ),
    ),
    Failure(
        slug=CONFIG,
        sentence="a setting, the model's config.json or its weights do not fit this vLLM or each other",
        why="",
        cures=(check("compare config.json with the files: are they from the same revision?", "ls -lL /path/to/model"),),
        deterministic=True,
        numbers=flags.field,
        variants=(
            flags.NO_FIELD,
            Variant(
                when=when(r"User-specified max_model_len"),
                sentence="--max-model-len is longer than the model's context length",
                cures=(cure("remove --max-model-len, or set it to the length that the message names", None, when(r"max_model_len")), cure("if the model's page documents a longer context (YaRN), set its RoPE scaling as documented", "--hf-overrides '{…}'", when(r"max_model_len"))),
            ),
            Variant(
                when=when(r"max_num_batched_tokens \(\d+\) (?:is smaller|must be)"),
                sentence="--max-num-batched-tokens is too small for the other limits",
                cures=(cure("raise or remove --max-num-batched-tokens, or lower the limit that the message compares it with", None, when(r"max_num_batched_tokens")),),
            ),
            Variant(
                when=when(r"^[^\n]*(?:[Rr]ope|RoPE|'factor'|'type'|mrope|position_embeddings)"),
                sentence="the installed Transformers and vLLM cannot use the RoPE entry of the model's config (config.json, --hf-overrides)",
                why="Its format changed: type became rope_type, and Transformers 5 renamed rope_scaling to rope_parameters.",
                cures=(_PINNED_TRANSFORMERS, check("compare rope_scaling in config.json with the model's page and the versions it requires")),
            ),
            Variant(
                when=when(r"has no attribute|text_config"),
                sentence="the code reads an attribute that the model's config does not have",
                cures=(_PINNED_TRANSFORMERS,),
            ),
            Variant(
                when=when(r"execute the configuration|custom code which must be executed|pass the argument .trust_remote_code"),
                sentence="the model's repository contains custom code, which vLLM runs only if allowed",
                cures=(cure("if you trust the code, allow it", "--trust-remote-code", when(r"trust_remote_code|execute the configuration|custom code")),),
            ),
            Variant(
                when=when(r"No model architectures are specified"),
                sentence="the model's config, as vLLM read it, lists no architectures",
                cures=(check("check its contents", "head -c 300 /path/to/model/config.json"), cure("if it has no architectures entry, set the architecture", "--hf-overrides '{\"architectures\": [\"NAME\"]}'", when(r"No model architectures"))),
            ),
            Variant(
                when=when(r"Value error, Expecting value: line|not a valid JSON|JSONDecodeError"),
                sentence="a JSON text that vLLM read (a model file or a flag's value) is empty or invalid",
                cures=(check("check how the model's JSON files begin: a Git LFS pointer or an HTML page is not JSON", "head -c 100 /path/to/model/*.json"), check("check that the shell preserves the quotes of flags that take JSON")),
            ),
            Variant(
                when=when(r"max_num_(?:scheduled|batched)_tokens\b[^\n]{0,80}(?:\bis set to|\bgot) -\d{2}"),
                sentence="a limit that vLLM computes from other settings became negative",
                why="This value is not set by hand: the other settings reserve more than the limit that contains them.",
                cures=(cure("raise --max-num-batched-tokens, or lower --max-num-seqs or num_speculative_tokens", None, when(r"max_num_(?:scheduled|batched)_tokens")),),
            ),
            Variant(
                when=when(r"can only be (?:set|used) with"),
                sentence="one setting needs another; the message names both",
                cures=(cure("if the command line has the first, add the one that the message requires, or remove the first", None, when(r"can only be")),),
            ),
            flags.NOT_A_NUMBER,
            Variant(
                when=when(r"Value error, |validation error"),
                sentence="vLLM's validation of its settings failed, and the message has the reason",
                cures=(cure("change or remove the setting that the message names, if it comes from the command line, a --config file or a chart; in the model's config.json it describes the checkpoint, so use another checkpoint or release instead", None, when(r"rror")), check("check the values that the flag accepts", flags.HELP, when(r"--[a-z]|argument|Valid options|must be one of"))),
            ),
            Variant(
                when=when(facts=("packed_4_bit",)), sentence="the checkpoint has a layer in 4-bit format (bitsandbytes), and vLLM built this layer without quantization",
                why="The weight has half as many bytes as the parameter has elements: each byte holds two. Download, revision and config.json may all be correct.",
                cures=(check("search vLLM's issues for this model with this quantization, and try another release"), cure("or use a checkpoint that leaves this layer unquantized (often it belongs to the vision part), the original weights with --quantization bitsandbytes, or another quantization", None, when(facts=("packed_4_bit",)))),
            ),
            Variant(
                when=when(r"shape|[Ss]ize|load weight|vocab"),
                sentence="the weights and config.json (or vLLM's implementation) disagree on a shape",
                cures=(check("compare config.json with the weights: are they from the same revision, and of the same quantization?", "ls -lL /path/to/model"), cure("if they are, search vLLM's issues for this model with this quantization and these parallel sizes"), cure("if a tokenizer or adapter added tokens, the weights must include them", None, when(r"vocab"))),
            ),
        ),
    ),
    Failure(
        slug=LORA,
        sentence="the LoRA adapter does not match the server's settings or the model",
        why="",
        cures=(check("check the adapter's target modules", "cat adapter_config.json"),),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"max_lora_rank \(\d+\) must be"), sentence="this vLLM does not accept this value of --max-lora-rank", why="The flag accepts only some values, and the message lists them. vLLM did not read the adapter.",
                cures=(cure("use the smallest value in the list that is at least the adapter's rank", "grep -E '\"r\":' adapter_config.json", when(r"must be")),),
            ),
            Variant(
                when=when(r"max_cpu_loras \(\d+\) must be"), sentence="--max-cpu-loras is smaller than --max-loras",
                cures=(cure("remove --max-cpu-loras, or set it to --max-loras or more (it costs host memory only)", None, when(r"max_cpu_loras")),),
            ),
            Variant(
                when=when(r"DoRA|Adapter bias"), sentence="the adapter uses a PEFT feature that this vLLM does not support (DoRA, biases)",
                cures=(check("check the adapter's settings", "grep -E 'use_dora|\"bias\"|lora_bias' adapter_config.json"), cure("train the adapter without this feature, or merge it into the model's weights (peft: merge_and_unload)", None, when(r"DoRA|bias"))),
            ),
            Variant(
                when=when(r"(?:LoRA rank|Adapter rank) \S+ is greater than|max_lora_rank"),
                sentence="the adapter's rank exceeds the server's limit",
                deterministic=True,
            ),
            Variant(
                when=when(r"is not enabled|not enabled"),
                sentence="LoRA is not enabled in this server, or in the worker that logged this line",
                cures=(check("check whether the command line has --enable-lora"), cure("if it is missing, enable LoRA", "--enable-lora", when(r"not enabled")), cure("if it is set, search vLLM's issues for adapters on this platform", None, when(r"not enabled"))),
            ),
            Variant(
                when=when(r"does not support (?:LoRA|LORA|lora)|not supported for (?:LoRA|LORA)|no support for LORA"),
                sentence="this vLLM does not support LoRA adapters for this model, or not with this backend or setting",
                why="The message names the model's class, or a backend or setting that is incompatible with adapters.",
                cures=(cure("if the message names a backend or a setting, check whether adapters work with another one", None, when(r"support", lacks=r"For(?:Causal|Conditional)\w{0,40} does not support")), cure(_MERGE, None, when(r"support"))),
            ),
            Variant(
                when=when(r"is unsupported LoRA weight|vLLM only supports modules_to_save"),
                sentence="the adapter has weights that vLLM does not accept as LoRA matrices, such as full copies of a module",
                cures=(check("check which modules it saves in full", "grep -A4 -E 'modules_to_save|target_modules' adapter_config.json"), cure("if it saves some, train it without modules_to_save, or merge it into the model's weights (peft: merge_and_unload)", None, when(r"LoRA weight|modules_to_save"))),
            ),
            Variant(
                when=when(r"expected target modules|[Uu]nsupported LoRA weight|modules_to_save|supported LoRA modules|nsupported LoRA"),
                sentence="the names of the adapter's modules do not match those that this vLLM accepts for the model",
                cures=(check("check that the adapter was trained for this base model, and compare target_modules with the names in the message", "grep -A12 -E 'base_model_name_or_path|target_modules' adapter_config.json"), cure("if the base model is right, save it as safetensors, or merge it into the model's weights", None, when(r"module|weight")), check("search vLLM's issues for adapters of this model")),
            ),
            Variant(
                when=when(r"Loading lora (?!.{0,200}No adapter found).{1,200} failed"),
                sentence="an adapter could not be loaded; this line does not give the reason",
                why="The original exception is in the traceback of this error.",
                cures=(check("read that exception; if it names a file, check whether the adapter's files exist, from inside the container", "ls -l /path/to/adapter"),),
            ),
            Variant(
                when=when(r"No adapter found|does not exist|not found|path must be|adapter_config\.json"),
                sentence="vLLM did not find the adapter under the name or path in the message",
                cures=(check("check whether adapter_config.json and the weights exist, from inside the container", "ls -l /path/to/adapter"),),
            ),
            Variant(
                when=when(r"[Nn]o free (?:LoRA|lora) slots|number of GPU LoRA slots"),
                sentence="requests use more adapters at once than the server has slots",
                cures=(cure("allow more at once (each takes GPU memory)", "--max-loras N", when(r"slots")),),
                deterministic=False,
            ),
        ),
        numbers=_rank,
    ),
)  # fmt: skip
