"""Failures to get the model's files, from Hugging Face or a folder.

Sources: huggingface_hub's errors; huggingface_hub #3158 (429 of the Xet store); modelscope's NotExistError; safetensors' errors.
"""

from vllm_watch.diagnosis.rule import Failure, Rank, Variant, check, cure, rule, when

GATED = "hf_gated_or_auth"
ABSENT = "hf_not_found_or_offline"

RULES = (
    rule(GATED, "GatedRepoError", "annot access gated repo", "access a gated repo", "Invalid user token", "LocalTokenNotFoundError", "Token is required (", "Invalid username or password", "Invalid credentials in Authorization header", "is restricted. You must"),
    rule(GATED, "Access to model", "is restricted and you are not in the authorized list", pattern=r"Access to model \S+ is restricted|is restricted and you are not in the authorized list"),
    rule(GATED, "Client Error", pattern=r"(?:401|403) Client Error.{0,40}(?:for url:? \S{0,400}(?:huggingface|hf\.co|hf-mirror)|$)|(?:401|403) Client Error:? (?:Unauthorized|Forbidden)(?! for url)", rank=Rank.GENERAL),
    rule(ABSENT, "HFValidationError", "RepositoryNotFoundError", "RevisionNotFoundError", "LocalEntryNotFoundError", "EntryNotFoundError", "OfflineModeIsEnabled", "Repository Not Found for url", "Revision Not Found for url", "outgoing traffic has been disabled", "is not a valid model identifier listed on", "Invalid repository ID or local directory specified", "annot find any model weights with", "No supported config format found", "Invalid repository ID", "HfUriError", "NotExistError", "Incorrect path_or_model_id", "Consistency check failed: file should be", "is not a local folder and is not a valid model"),
    rule(GATED, "HfHubHTTPError", pattern=r"HfHubHTTPError: .{0,20}\b40[13]\b"),
    rule(ABSENT, "HfHubHTTPError", pattern=r"HfHubHTTPError\b(?!: .{0,20}\b40[13]\b)", deterministic=False),
    rule(ABSENT, "Too Many Requests", "Status(429)", "429 Client Error", "rate limit", pattern=r"429 Client Error|Status\(429\)|(?:Error|error)\b.{0,80}429 Too Many Requests|client error \(429|(?:huggingface|hf\.co|[Hh]ub).{0,200}rate limit", deterministic=False),
    rule(ABSENT, "CAS service error", "xet", "Xet", pattern=r"CAS service error(?!.{0,200}\bos error \d)|(?:hf_xet|xethub|xet_get|XetError|[Xx]et storage).{0,200}(?:[Ee]rror|[Ff]ail|[Tt]ime)", deterministic=False),
    rule(ABSENT, "Client Error", "Server Error", pattern=r"(?:404 Client|5\d\d Server) Error.{0,300}(?:huggingface|hf\.co|modelscope)", deterministic=False, rank=Rank.GENERAL),
    rule(ABSENT, "Repo id must", "does not appear to have", "Error no file named", "is not the path to a directory", "an't load ", "annot find the requested files", pattern=r"Repo id must (?:be|use)|does not appear to have (?:a file named|files? named|any)|Error no file named|is not the path to a directory containing|[Cc]an't load the configuration of|[Cc]annot find the requested files|[Cc]an't load (?:image processor|feature extractor|video processor|processor|the model) for '"),
    rule(ABSENT, "ouldn't connect to", "annot reach", "huggingface.co", "hf-mirror", "modelscope", pattern=r"(?:[Cc]ouldn't connect to|[Cc]annot reach) '?https?://\S*(?:huggingface|hf\.co|hf-mirror|modelscope)|HTTPSConnectionPool\(host='?(?:[\w.-]{0,80}(?:huggingface|hf|modelscope))|(?:ConnectionError|ConnectTimeout|SSLError|ReadTimeout|NameResolutionError|MaxRetryError|ProxyError)\b.{0,800}(?:huggingface|modelscope|hf-mirror)", deterministic=False),
    rule(ABSENT, "SafetensorError", "HeaderTooLarge", "HeaderTooSmall", "MetadataIncompleteBuffer", "InvalidHeaderDeserialization", "PytorchStreamReader failed", rank=Rank.GENERAL),
    rule(ABSENT, "config.json", "safetensors", "No such file", pattern=r"FileNotFoundError: .{0,800}(?:config\.json|safetensors|\.gguf|\.bin|params\.json|tokenizer)|No such file or directory: '\S{0,400}(?:config\.json|safetensors|\.gguf|/models?/\S{0,400}|/snapshots/\S{0,400})'", rank=Rank.GENERAL),
)  # fmt: skip

_NETWORK = r"(?:HTTPS?ConnectionPool|ConnectionError|ConnectTimeout|ReadTimeout|SSLError|ProxyError|NameResolutionError|MaxRetryError|ouldn't connect to|annot reach|LocalEntryNotFound)"
_ON_THE_HUB = r"(?:Invalid repository ID or local directory specified: |is not a valid model identifier|[Cc]an't load the configuration of |Incorrect path_or_model_id: |any model weights with .)'(?![./~])[\w.-]{1,96}/[\w.-]{1,96}'|[ :](?![./~])[\w.-]{1,96}/[\w.-]{1,96} is not a local folder|Repository Not Found for url"
_DAMAGED = r"SafetensorError|HeaderTooLarge|HeaderTooSmall|MetadataIncompleteBuffer|InvalidHeaderDeserialization|PytorchStreamReader|Consistency check failed"
_WHOAMI = check("check whether this process has a token, and which account it belongs to", "hf auth whoami   (older: huggingface-cli whoami)")  # fmt: skip
_IF_ADAPTER = r"(?<![a-z_])config\.json|any model weights"

FAILURES = (
    Failure(
        slug=GATED,
        sentence="Hugging Face denies access to the model: the token lacks access, or is missing",
        why="The repository is gated or private, or the token is wrong: the token's account needs access, and vLLM must get the token.",
        cures=(
            _WHOAMI,
            cure("accept the licence on the model's page, with the token's account", None, when(r"gated|restricted|authorized list|licen[cs]e", lacks=r"Invalid (?:user token|username|credentials)")),
            cure("log in, or set the token (in a container: pass it with -e HF_TOKEN)", "export HF_TOKEN=hf_…", when(r"401|403|oken|gated|restricted|password|redentials")),
        ),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"awaiting a review|(?:has been|was) rejected by"), sentence="the authors of this gated model have not approved the access request of the token's account",
                why="Hugging Face recognizes the account; another token of the same account has the same access.", cures=(check("check the request's status on the model's page, and wait for approval, or use a token of an account that has access", "hf auth whoami", when(r"review|rejected")),),
            ),
            Variant(
                when=when(r"fine-grained token|enable access to public gated"), sentence="the token is fine-grained and lacks permission for gated repositories",
                why="The licence may be accepted; the token's own permissions are too narrow.", cures=(cure("in the token's settings on huggingface.co, allow read access to public gated repositories, or use a token of type Read", None, when(r"oken")), cure("if the error remains, accept the licence on the model's page with the same account", None, when(r"gated"))),
            ),
            Variant(
                when=when(r"Invalid user token|Invalid credentials in Authorization"), sentence="Hugging Face rejected the token: it is wrong, revoked or not copied completely",
                why="Hugging Face rejects a wrong token even for public models.", cures=(_WHOAMI, cure("set a valid token (in a container: -e HF_TOKEN)", "export HF_TOKEN=hf_…", when(r"Invalid")), cure("or, if the model is public, start without a token", "env -u HF_TOKEN -u HUGGING_FACE_HUB_TOKEN vllm serve …", when(r"Invalid"))),
            ),
        ),
    ),
    Failure(
        slug=ABSENT,
        sentence="the model's files are not in the place that vLLM reads",
        why="The name is neither a folder that exists here (in this container) with the required files nor a reachable repository; vLLM takes a path that does not exist for a repository name.",
        cures=(
            check("check whether the folder exists, from inside the container", "ls -l /path/to/model"),
            cure("in a container, mount the folder", "docker run -v /models:/models …", when(r"['\"` ]/\w\S*|Repo id must|FileNotFoundError|No such file")),
            check("check the repository's name and revision on huggingface.co", None, when(r"not a (?:local folder|valid model)|RepositoryNotFound|RevisionNotFound|Repository Not Found|Revision Not Found|404")),
            cure("if the repository is private or gated, use a token with read access", "export HF_TOKEN=hf_…", when(r"\b401\b|private or gated|private repository")),
        ),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"has no revision"), sentence="the model's repository has no revision of this name",
                why="The main branch is called master on ModelScope and main on Hugging Face; a request for a part of the model may use the other name.",
                cures=(check("check the branch name on the model's page"), cure("set the branch by name", "--revision master", when(r"(?i)modelscope.{0,300}no revision: main"))),
            ),
            Variant(
                when=when(r"Repo id must [^\n]{0,300}: '(?:s3|gs|az)://"), sentence="the address of an object store was used as the name of a model on Hugging Face",
                why="vLLM reads such addresses with the loader for them. Some releases pass them to Hugging Face all the same, which is a bug.",
                cures=(check("check that the loader is installed and selected", "python -m pip show runai-model-streamer; vllm serve s3://… --load-format runai_streamer"), check("search vLLM's issues for the loader and this release")),
            ),
            Variant(
                when=when(r"Repo id must [^\n]{0,300}: '(?![./~])\w"), sentence="the model name is not valid on Hugging Face, and no folder of this name exists here",
                why="A valid name is ORG/MODEL, with letters, digits, '-', '_' and '.'; a URL or a tag after a colon is not part of it (newer vLLM releases accept ORG/NAME:QUANT for GGUF).",
                cures=(check("check the spelling of the name"), cure("if it is a folder, use its absolute path, as seen from inside the container", "ls -l /path/to/model", when(r"Repo id"))),
            ),
            Variant(
                when=when(r"No such file or directory: '[^'\n]{0,400}/snapshots/"), sentence="a file is missing from the Hub cache: its download did not finish, or it was removed",
                cures=(check("check for broken symlinks", "ls -lL /path/of/the/snapshot"), cure("download the missing files into the same HF_HOME", "hf download ORG/MODEL", when(r"snapshots"))),
            ),
            Variant(
                when=when(r"an't load (?:image processor|feature extractor|video processor|processor) for"), sentence="the model's image or audio processor could not be loaded",
                why="Most often its file (preprocessor_config.json or processor_config.json) is missing: copies and fine-tunes of a model may lack it.",
                cures=(check("check whether the file exists", "ls -lL /path/to/model"), cure("if it is missing, copy it from the model that this one is based on", None, when(r"an't load"))),
            ),
            Variant(
                when=when(r"does not contain tensor"), sentence="a weight file lacks a tensor that its index or the loader names",
                cures=(check("compare the file with model.safetensors.index.json: are both from the same revision?", "ls -lL /path/to/model"),),
            ),
            Variant(
                when=when(r"No supported config format found in ['\"`]?[\w.-]{2,80}/[\w.-]{2,120}['\"`]?\s*(?:\n|$)"),
                sentence="vLLM could not read a config of this model, from the Hub or from a folder of this name",
                why="For a repository on the Hub, most often the token is missing, the licence of a gated model is not accepted, or there is no network.",
                cures=(
                    check("check the access of the server's token", "hf auth whoami; curl -sI -H \"Authorization: Bearer $HF_TOKEN\" https://huggingface.co/ORG/MODEL/resolve/main/config.json | head -1"),
                    cure("for a gated model, accept its licence on its page, and set the token", "HF_TOKEN=…", when(r"No supported config format")),
                    cure("if it should be a folder, check that it has config.json, from inside the container", "ls -l /path/to/model"),
                ),
            ),
            Variant(
                when=when(r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"),
                sentence="the Hub responds, but its TLS certificate could not be verified",
                why="Most often a proxy in this network signs with a CA that this Python (or container) does not trust, or the CA bundle is missing or outdated.",
                cures=(check("check the certificate's issuer", "openssl s_client -connect huggingface.co:443 </dev/null 2>/dev/null | grep -E 'issuer|Verify'"), cure("set a CA bundle that has the proxy's CA and the usual ones", "REQUESTS_CA_BUNDLE=/path/ca.pem SSL_CERT_FILE=/path/ca.pem", when(r"certificate verify failed|CERTIFICATE_VERIFY"))),
            ),
            Variant(
                when=when(r"\b429\b|rate limit"),
                sentence="Hugging Face temporarily refused the download: too many requests (429)",
                why="The limit applies per account or IP address and expires on its own; many replicas that start at once reach it.",
                cures=(
                    cure("wait a few minutes and start again; download once into a shared cache instead of once per replica", "hf download ORG/MODEL"),
                    cure("log in: limits are higher with a token", "export HF_TOKEN=hf_…", when(r"\b429\b")),
                    cure("if the files are already in the cache, do not contact the Hub", "HF_HUB_OFFLINE=1", when(r"api/models|/resolve/")),
                    cure("download without Xet storage", "HF_HUB_DISABLE_XET=1", when(r"[Xx]et|CAS service")),
                ),
                deterministic=False,
            ),
            Variant(
                when=when(r"CAS service error|[Xx]et"),
                sentence="the download from Hugging Face's Xet storage failed",
                why="Its servers have other host names than huggingface.co; a firewall or proxy may allow only one of the two.",
                cures=(check("check whether this host (this container) can reach it", "curl -sI https://cas-server.xethub.hf.co"), cure("download again, without Xet storage if necessary", "HF_HUB_DISABLE_XET=1", when(r"CAS service|[Xx]et"))),
                deterministic=False,
            ),
            Variant(
                when=when(_DAMAGED),
                sentence="a weight file is damaged or incompletely downloaded",
                why="Git LFS pointers in place of the files, an interrupted download or a full disk cause this.",
                cures=(check("compare its size with the size in the repository (a Git LFS pointer has about 130 bytes)", "ls -lL /path/to/model"), cure("if the disk has free space, download that file again", "df -h; hf download ORG/MODEL FILE --force-download", when(_DAMAGED))),
            ),
            Variant(
                when=when(r"OfflineModeIsEnabled|outgoing traffic"),
                sentence="a file is not in the cache, and this process is offline (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set)",
                cures=(check("list the cache and the variables that are set", "hf cache ls; env | grep -E 'HF_|OFFLINE'"), cure("download with the same revision and HF_HOME first, or unset the variable", None, when(r"ffline|outgoing traffic"))),
            ),
            Variant(when=when(r"Read timed out|ReadTimeout"), sentence="Hugging Face (or its mirror) did not answer in time", why="The network is slow or down, or the Hub is overloaded. Downloaded files stay in the cache.", deterministic=False,
                cures=(check("check how fast this host (this container) reaches the Hub", "curl -so /dev/null -w '%{time_total}\\n' https://huggingface.co"), cure("start again, with longer timeouts if the Hub is slow", "HF_HUB_DOWNLOAD_TIMEOUT=60 HF_HUB_ETAG_TIMEOUT=60", when(r"[Tt]ime")))),
            Variant(
                when=when(_NETWORK), sentence="Hugging Face (or its mirror) is unreachable, and the files are not in the cache",
                cures=(
                    check("check whether this host (this container) can reach the Hub", "curl -sI https://huggingface.co"),
                    check("check which proxy and mirror this process uses", "env | grep -i -E 'proxy|HF_ENDPOINT'"),
                    cure("without network access, download on a host that has it, and mount the folder", "hf download ORG/MODEL", when(_NETWORK)),
                ),
                deterministic=False,
            ),
            Variant(
                when=when(r"does not appear to have (?:a file|files?) named|Error no file named|annot find any model weights with"),
                sentence="the model's folder or repository lacks a file that vLLM needs",
                why="vLLM found the folder or repository. The usual causes are an interrupted download, a mount of the wrong (empty) folder, a repository in another format, or an incomplete copy.",
                cures=(
                    check("list its files, from inside the container (for a repository: on its page)", "ls -lL /path/to/model"),
                    cure("pass the GGUF file itself, with the tokenizer and config of the original model", "vllm serve ./FILE.gguf --tokenizer ORG/MODEL --hf-config-path ORG/MODEL", when(r"(?i)gguf")),
                    cure("if it has adapter_config.json instead, serve its base model with this adapter", "vllm serve BASE --enable-lora --lora-modules NAME=ORG/NAME", when(_IF_ADAPTER)),
                    cure("if it has params.json and consolidated weights instead, load it in Mistral's format", "--tokenizer-mode mistral --config-format mistral --load-format mistral", when(_IF_ADAPTER)),
                    cure("otherwise download the missing file, or copy it from the model that this one is based on", "hf download ORG/MODEL", when(r"file|weights")),
                ),
            ),
            Variant(
                when=when(_ON_THE_HUB),
                sentence="vLLM could not read a model of this name from Hugging Face",
                why="The repository does not exist, is private, or has no config.json, for example because it contains only an adapter (LoRA).",
                cures=(
                    check("check the token that was sent: Hugging Face rejects it, even for public models", "hf auth whoami", when(r"Invalid credentials")),
                    check("check the repository's name on huggingface.co, and whether it exists and has config.json and weights", "curl -sI https://huggingface.co/ORG/NAME/resolve/main/config.json"),
                    cure("if it is private, use a token with read access", "export HF_TOKEN=hf_…", when(_ON_THE_HUB)),
                    cure("if it has adapter_config.json instead, serve its base model with this adapter", "vllm serve BASE --enable-lora --lora-modules NAME=ORG/NAME", when(_ON_THE_HUB)),
                    cure("if the name should be a local folder, use its absolute path", None, when(_ON_THE_HUB)),
                ),
            ),
            Variant(
                when=when(r"5\d\d Server Error"), sentence="Hugging Face returned a server error",
                cures=(cure("wait and start again", "curl -sI https://huggingface.co"),),
                deterministic=False,
            ),
        ),
    ),
)  # fmt: skip
