"""The model: not found, not allowed, of an unknown kind, or at odds with its configuration, tokenizer or adapter."""

from vllm_watch.diagnosis.report import Fix
from vllm_watch.diagnosis.rule import Failure, Rank, rule

GATED = "hf_gated_or_auth"
ABSENT = "hf_not_found_or_offline"
ARCHITECTURE = "unsupported_architecture"
TOKENIZER = "tokenizer_mismatch_or_missing_chat_template"
LORA = "lora_mismatch"
CONFIG = "rope_or_config_mismatch"

RULES = (
    rule(GATED, "GatedRepoError", "annot access gated repo", "access a gated repo", "Invalid user token", "LocalTokenNotFoundError", "Token is required (", "Invalid username or password", "Invalid credentials in Authorization header", "is restricted. You must"),
    rule(GATED, "Access to model", "is restricted and you are not in the authorized list", pattern=r"Access to model \S+ is restricted|is restricted and you are not in the authorized list"),
    rule(GATED, "Client Error", pattern=r"(?:401|403) Client Error.{0,40}(?:for url:? \S{0,400}huggingface|$)|(?:401|403) Client Error:? (?:Unauthorized|Forbidden)", rank=Rank.GENERAL),
    rule(ABSENT, "HFValidationError", "RepositoryNotFoundError", "RevisionNotFoundError", "LocalEntryNotFoundError", "EntryNotFoundError", "OfflineModeIsEnabled", "Repository Not Found for url", "Revision Not Found for url", "HfHubHTTPError", "outgoing traffic has been disabled", "is not a valid model identifier listed on", "Invalid repository ID or local directory specified", "annot find any model weights with", "No supported config format found", "Invalid repository ID", "HfUriError", "Incorrect path_or_model_id", "Consistency check failed: file should be"),
    rule(ABSENT, "Repo id must", "does not appear to have", "Error no file named", "is not the path to a directory", "an't load the configuration of", "annot find the requested files", pattern=r"Repo id must (?:be|use)|does not appear to have (?:a file named|files? named|any)|Error no file named|is not the path to a directory containing|[Cc]an't load the configuration of|[Cc]annot find the requested files"),
    rule(ABSENT, "ouldn't connect to", "annot reach", "huggingface.co", "hf-mirror", "modelscope", pattern=r"[Cc]ouldn't connect to '?https?://\S*|[Cc]annot reach https?://|HTTPSConnectionPool\(host='?(?:[\w.-]{0,80}(?:huggingface|hf|modelscope))|(?:ConnectionError|ConnectTimeout|SSLError|ReadTimeout|NameResolutionError|MaxRetryError|ProxyError)\b.{0,800}(?:huggingface|modelscope|hf-mirror)", deterministic=False),
    rule(ABSENT, "SafetensorError", "HeaderTooLarge", "HeaderTooSmall", "MetadataIncompleteBuffer", "InvalidHeaderDeserialization", "PytorchStreamReader failed", rank=Rank.GENERAL),
    rule(ABSENT, "config.json", "safetensors", "No such file", pattern=r"FileNotFoundError: .{0,800}(?:config\.json|safetensors|\.gguf|\.bin|params\.json|tokenizer)|No such file or directory: '\S{0,400}(?:config\.json|safetensors|\.gguf|/models?/\S{0,400}|/snapshots/\S{0,400})'", rank=Rank.GENERAL),
    rule(ARCHITECTURE, "odel architectures", pattern=r"[Mm]odel architectures? .{0,300}(?:not supported|failed to be inspected)"),
    rule(ARCHITECTURE, "does not recognize this architecture", "has no vLLM implementation", "has no vLLM or Transformers implementation", "Unrecognized configuration class", "Unrecognized model in", "Cannot find model module", "model type should be one of", "Unsupported model type", "not supported by the Transformers backend", "not compatible with vLLM", "does not support `--runner", "This model does not support the", "Unsupported architecture", "GGUF model with architecture"),
    rule(ARCHITECTURE, "but Transformers does not recognize", "Pipeline parallelism is not supported for this model", "The Transformers implementation of"),
    rule(ARCHITECTURE, "not supported", "was not supported", pattern=r"[Mm]odel (?:class |type |arch\w* )?\S{1,80} (?:is|are|was) not supported(?! for Lo)|(?:ForCausalLM|ForConditionalGeneration|Model)\S{0,3} (?:is|are|has been) not supported(?! for Lo)|architectures? \S+ (?:is|are) not supported", rank=Rank.GENERAL),
    rule(ARCHITECTURE, "KeyError: '", "configuration_auto", pattern=r"CONFIG_MAPPING\[|configuration_auto\.py.{0,800}KeyError", rank=Rank.GENERAL),
    rule(ARCHITECTURE, "There is no module or parameter named", "Following weights were not initialized from checkpoint", "Some weights are not initialized from checkpoints", rank=Rank.GENERAL),
    rule(ARCHITECTURE, "KeyError: '", pattern=r"KeyError: '(?:model\.|layers\.|transformer\.|visual\.|language_model\.|lm_head|block_sparse|[\w.]*\.layers?\.\d+\.)", rank=Rank.GENERAL),
    rule(TOKENIZER, "chat template", "chat_template", pattern=r"default chat template is no longer allowed|must provide a chat template|chat_template is not set|chat template.{0,60}(?:not defined|does not exist|not found|failed|looks like a file path)|no chat template|ChatTemplateResolutionError|[Ff]ound a chat template.{0,800}failed|apply_chat_template.{0,800}chat_template"),
    rule(TOKENIZER, "onversation roles must alternate", "ystem role not supported", "fter the optional system message", "jinja2.exceptions.", "TemplateSyntaxError", "TemplateError:", "Only user and assistant roles"),
    rule(TOKENIZER, "okenizer", pattern=r"Tokenizer class \S+ does not exist or is not currently imported|[Cc]an't load tokenizer for|[Cc]ouldn't instantiate the backend tokenizer|[Nn]o tokenizer file found|[Cc]annot (?:find|load) (?:the )?tokenizer|Unrecognized tokenizer|[Tt]okenizer.{0,60}(?:does not match|mismatch)|[Uu]nable to load (?:vocabulary|tokenizer)"),
    rule(TOKENIZER, "data did not match any variant of untagged enum", "expected value at line 1 column 1", "Error while initializing BPE", "Error parsing line b'", "piece id is out of range", "is out of vocabulary", "Non-consecutive added token", "tekken.json", "Converting from Tiktoken failed", "Converting from SentencePiece"),
    rule(TOKENIZER, "Tokenizer", pattern=r"AttributeError: (?:'?\w{0,80}Tokenizer\w{0,80}'? (?:object )?has no attribute|.{0,800}tokenizer.{0,800}has no attribute)|TypeError: not a string.{0,800}|sentencepiece.{0,800}(?:RuntimeError|TypeError)", rank=Rank.GENERAL),
    rule(TOKENIZER, "ailed to load the tokenizer", rank=Rank.GENERAL),
    rule(LORA, "LoRA rank", "lora_rank", pattern=r"LoRA rank \S+ is greater than max_lora_rank|max_lora_rank \(\d+\) must be"),
    rule(LORA, "LoRA", "Lora", "lora", "LORA", pattern=r"does not support (?:LoRA|LORA|lora)|not supported for (?:LoRA|LORA)|LoRA (?:is|was) not (?:enabled|supported)|LoRA is not enabled|no support for LORA|is unsupported LoRA weight|[Uu]nsupported LoRA weight|Loading lora \S+ failed|No adapter found for|LoRA added vocab size|lora_extra_vocab_size|[Nn]o free (?:LoRA|lora) slots|greater than the number of GPU LoRA slots|Adapter bias cannot be used|LoRA adapter .{0,80}(?:not found|does not exist|contains)|The lora adapter .{0,80}(?:does not exist|not found)|When using LoRA, vocab|max_cpu_loras \(\d+\) must be|[Pp]unica LoRA kernels|Long LoRA scaling factor|supported LoRA modules found|LoRA path must be"),
    rule(LORA, "expected target modules in", "adapter_config.json", "vLLM only supports modules_to_save", "vLLM does not yet support DoRA", "Adapter rank", pattern=r"expected target modules in|adapter_config\.json|vLLM only supports modules_to_save|vLLM does not yet support DoRA"),
    rule(CONFIG, "User-specified max_model_len", pattern=r"User-specified max_model_len \(\d+\) is greater"),
    rule(CONFIG, "rope", "Rope", "RoPE", "ROPE", "longrope", "mrope", pattern=r"(?:Error|error|assert|must|Unrecognized|Unknown|missing|invalid)\b.{0,200}\b(?:rope_(?:scaling|type|parameters|theta)|RoPE scaling|mrope_section|RoPE type)|\brope_(?:scaling|parameters)`?(?:'s)? .{0,60}(?:must|should|Missing|field|dictionary)|KeyError: '(?:rope_\w+|original_max_position_embeddings|short_factor|long_factor|mrope_section)'|'rope_scaling'"),
    rule(CONFIG, "KeyError: 'type'", "KeyError: 'factor'", "KeyError: \"type\"", rank=Rank.GENERAL),
    rule(CONFIG, "max_num_batched_tokens", pattern=r"max_num_batched_tokens \(\d+\) (?:is smaller than|must be greater)"),
    rule(CONFIG, "Tried to load weights of size", "Attempted to load weight", "loaded_weight.shape", "shapes cannot be multiplied", "must match the size of tensor", "must match the existing size", "invalid for input of size", "size mismatch for", "vocab_size", pattern=r"assert .{0,80}vocab_sizes?\b|Tried to load weights of size|Attempted to load weight|assert .{0,800}loaded_weight\.shape|shapes cannot be multiplied|must match the (?:existing )?size|is invalid for input of size|size mismatch for", rank=Rank.GENERAL),
    rule(CONFIG, "onfig", pattern=r"AttributeError: '?\w*Config'? object has no attribute|text_config extracted from the model config does not have|config\.json.{0,40}(?:JSONDecodeError|is not a valid JSON)", rank=Rank.GENERAL),
    rule(CONFIG, "validation error", pattern=r"(?<!\d)\d{1,6} validation errors? for (?:\w{0,80}Config|\w{0,80}Args)\b", rank=Rank.SYMPTOM),
    rule(CONFIG, "unrecognized arguments:", "invalid choice:", "mutually exclusive", pattern=r"error: (?:unrecognized arguments|argument .{0,80}: (?:invalid|expected))|are mutually exclusive", rank=Rank.GENERAL),
)  # fmt: skip

_TOKEN = Fix("pass the token into the container too", "docker run -e HF_TOKEN=$HF_TOKEN …")

FAILURES = (
    Failure(
        slug=GATED,
        sentence="Hugging Face does not let this token (or no token) have the model",
        why="The repository is gated or private: its licence must be accepted by the account, and its token must reach vLLM.",
        fixes=(Fix("accept the licence on the model's page, with the account of the token"), Fix("log in, or set the token", "export HF_TOKEN=hf_…"), _TOKEN),
        deterministic=True,
    ),
    Failure(
        slug=ABSENT,
        sentence="the model's files are not where vLLM looks for them",
        why="The name is neither a folder that exists here (in this container) with the needed files nor a repository that can be reached; a path that does not exist is taken for a repository's name.",
        fixes=(
            Fix("see whether the folder is there, seen from inside the container", "ls -l /path/to/model"),
            Fix("mount it, or check the repository's name", "docker run -v /models:/models …"),
            Fix("without network, download first", "hf download ORG/MODEL"),
        ),
        deterministic=True,
    ),
    Failure(
        slug=ARCHITECTURE,
        sentence="this vLLM (with its Transformers) does not know this kind of model",
        why="The architecture named in config.json has no implementation in this release, or what implements it does not fit the checkpoint.",
        fixes=(Fix("take a newer vLLM: most models need at least the release after theirs", "pip install -U vllm"), Fix("if the model type is what Transformers does not know", "pip install -U transformers"), Fix("look the architecture up in vLLM's list of supported models")),
        deterministic=True,
    ),
    Failure(
        slug=TOKENIZER,
        sentence="the tokenizer or its chat template is missing or does not fit",
        why="A base model has no chat template, a template refuses the order of roles, or tokenizer files are missing, damaged or newer than the installed libraries.",
        fixes=(Fix("give a template", "--chat-template ./template.jinja"), Fix("or ask /v1/completions, which needs none"), Fix("for a tokenizer that cannot be loaded, name a complete one", "--tokenizer ORG/MODEL"), Fix("and renew the libraries", "pip install -U transformers tokenizers")),
        deterministic=True,
    ),
    Failure(
        slug=LORA,
        sentence="the LoRA adapter does not fit the server's settings or the model",
        why="Rank, target modules, vocabulary or number of adapters go beyond what the engine was started with, or this model takes no LoRA.",
        fixes=(Fix("allow its rank", "--enable-lora --max-lora-rank 64"), Fix("see what the adapter targets", "cat adapter_config.json"), Fix("or merge it into the model before serving")),
        deterministic=True,
    ),
    Failure(
        slug=CONFIG,
        sentence="settings, the model's config.json and its weights contradict each other",
        why="A length, RoPE entry, shape or flag is not what the others imply; often the files are of another revision, or of another library version.",
        fixes=(Fix("take the length that the model was made for: leave the flag out", "--max-model-len auto"), Fix("download config and weights again, from one revision"), Fix("renew the library that reads them", "pip install -U vllm transformers")),
        deterministic=True,
    ),
)  # fmt: skip
