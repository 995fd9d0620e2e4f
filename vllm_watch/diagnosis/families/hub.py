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
_DAMAGED = r"HeaderTooLarge|HeaderTooSmall|MetadataIncompleteBuffer|InvalidHeaderDeserialization|deserializing header|PytorchStreamReader|Consistency check failed"
_WHOAMI = check("check whether this process has a token, and which account it belongs to", "hf auth whoami   (older: huggingface-cli whoami)")  # fmt: skip
_IF_ADAPTER = r"(?<![a-z_])config\.json|any model weights"

FAILURES = (
    Failure(
        slug=GATED,
        sentence="a model or file cannot be read from Hugging Face (or its mirror) with this token, or without one",
        why="",
        cures=(
            _WHOAMI,
            cure("accept the licence on the model's page, with the token's account", None, when(r"gated|restricted|authorized list|licen[cs]e", lacks=r"Invalid (?:user token|username|credentials)")),
            cure("log in, or set the token (in a container: pass it with -e HF_TOKEN)", "export HF_TOKEN=hf_…", when(r"401|oken|gated|restricted|password|redentials")),
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
                when=when(r"Invalid user token|Invalid credentials in Authorization"), sentence="Hugging Face rejected the token as invalid",
                why="Hugging Face rejects a wrong token even for public models.", cures=(_WHOAMI, cure("set a valid token (in a container: -e HF_TOKEN)", "export HF_TOKEN=hf_…", when(r"Invalid")), cure("or, if the model is public, start without a token", "env -u HF_TOKEN -u HUGGING_FACE_HUB_TOKEN vllm serve …", when(r"Invalid"))),
            ),
        ),
    ),
    Failure(
        slug=ABSENT,
        sentence="a file or repository that vLLM needs could not be found or read",
        why="vLLM takes a path that does not exist for the name of a repository.",
        cures=(
            check("check whether the folder exists, from inside the container", "ls -l /path/to/model"),
            cure("if it exists on the host but not in the container, mount it", "docker run -v /models:/models …", when(r"['\"` ]/\w\S*|Repo id must|FileNotFoundError|No such file")),
            check("check the repository's name and revision on huggingface.co", None, when(r"not a (?:local folder|valid model)|RepositoryNotFound|RevisionNotFound|Repository Not Found|Revision Not Found|404")),
            cure("if the repository is private or gated, use a token with read access", "export HF_TOKEN=hf_…", when(r"\b401\b|private or gated|private repository")),
        ),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"has no revision"), sentence="the model's repository has no revision of this name",
                why="The main branch is called master on ModelScope and main on Hugging Face.",
                cures=(check("check the branch name on the model's page"), cure("set the branch by name", "--revision master", when(r"(?i)modelscope.{0,300}no revision: main"))),
            ),
            Variant(
                when=when(r"Repo id must [^\n]{0,300}: '(?:s3|gs|az)://"), sentence="the address of an object store was used as the name of a model on Hugging Face",
                cures=(check("check that the loader is installed and selected", "python -m pip show runai-model-streamer; vllm serve s3://… --load-format runai_streamer"), check("search vLLM's issues for the loader and this release")),
            ),
            Variant(
                when=when(r"Repo id must [^\n]{0,300}: '(?![./~])\w"), sentence="the name in the message is not a valid name of a repository on Hugging Face",
                why="A valid name is MODEL or ORG/MODEL, with letters, digits, '-', '_' and '.'; a URL or a tag after a colon is not part of it (newer vLLM releases accept ORG/NAME:QUANT for GGUF).",
                cures=(check("check the spelling of the name"), cure("if it is a folder, use its absolute path, as seen from inside the container", "ls -l /path/to/model", when(r"Repo id"))),
            ),
            Variant(
                when=when(r"No such file or directory: '[^'\n]{0,400}/snapshots/"), sentence="a file is missing from the Hub cache",
                cures=(check("check for broken symlinks", "ls -lL /path/of/the/snapshot"), cure("if the repository has the file, download it into the same HF_HOME", "hf download ORG/MODEL", when(r"snapshots"))),
            ),
            Variant(
                when=when(r"an't load (?:image processor|feature extractor|video processor|processor) for"), sentence="a processor of the model (for images, video or audio) could not be loaded",
                cures=(check("check whether its file exists (preprocessor_config.json or processor_config.json)", "ls -lL /path/to/model"), cure("if it is missing, copy it from the model that this one is based on", None, when(r"an't load"))),
            ),
            Variant(
                when=when(r"does not contain tensor"), sentence="a weight file lacks a tensor that its index or the loader names",
                cures=(check("compare the file with model.safetensors.index.json: are both from the same revision?", "ls -lL /path/to/model"),),
            ),
            Variant(
                when=when(r"No supported config format found in ['\"`]?[\w.-]{2,80}/[\w.-]{2,120}['\"`]?\s*(?:\n|$)"),
                sentence="vLLM could not read a config of this model, from the Hub or from a folder of this name",
                cures=(
                    check("check the access of the server's token", "hf auth whoami; curl -sI -H \"Authorization: Bearer $HF_TOKEN\" https://huggingface.co/ORG/MODEL/resolve/main/config.json | head -1"),
                    cure("for a gated model, accept its licence on its page, and set the token", "HF_TOKEN=…", when(r"No supported config format")),
                    cure("if it should be a folder, check that it has config.json, from inside the container", "ls -l /path/to/model"),
                ),
            ),
            Variant(
                when=when(r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"),
                sentence="the TLS certificate of the Hub, or of a proxy in front of it, could not be verified",
                cures=(check("check the certificate's issuer", "openssl s_client -connect huggingface.co:443 </dev/null 2>/dev/null | grep -E 'issuer|Verify'"), cure("if a proxy signs it, set a CA bundle that has the proxy's CA and the usual ones", "REQUESTS_CA_BUNDLE=/path/ca.pem SSL_CERT_FILE=/path/ca.pem", when(r"certificate verify failed|CERTIFICATE_VERIFY"))),
            ),
            Variant(
                when=when(r"429 (?:Client|Too)|Status\(429\)|error \(429|[Ee]rror:? .{0,20}\b429\b|Too Many Requests|rate limit"),
                sentence="the Hub temporarily refused a request: too many requests (429)",
                why="The limit applies per account or IP address and expires on its own.",
                cures=(
                    cure("wait a few minutes and start again; download once into a shared cache instead of once per replica", "hf download ORG/MODEL"),
                    cure("log in: limits are higher with a token", "export HF_TOKEN=hf_…", when(r"huggingface|hf\.co|Hugging Face")),
                    cure("if the files are already in the cache, do not contact the Hub", "HF_HUB_OFFLINE=1", when(r"api/models|/resolve/")),
                    cure("download without Xet storage", "HF_HUB_DISABLE_XET=1", when(r"[Xx]et|CAS service")),
                ),
                deterministic=False,
            ),
            Variant(
                when=when(r"^[^\n]*(?:CAS service error|[Xx]et)"),
                sentence="the download from Hugging Face's Xet storage failed",
                why="Its servers have other host names than huggingface.co.",
                cures=(check("check whether this host (this container) can reach it", "curl -sI https://cas-server.xethub.hf.co"), cure("download again, without Xet storage if necessary", "HF_HUB_DISABLE_XET=1", when(r"CAS service|[Xx]et"))),
                deterministic=False,
            ),
            Variant(
                when=when(_DAMAGED),
                sentence="a file of weights is incomplete, damaged or of another format",
                cures=(check("compare its size with the size in the repository (a Git LFS pointer has about 130 bytes)", "ls -lL /path/to/model"), cure("if the disk has free space, download that file again", "df -h; hf download ORG/MODEL FILE --force-download", when(_DAMAGED))),
            ),
            Variant(
                when=when(r"OfflineModeIsEnabled|outgoing traffic"),
                sentence="this process is offline (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE or local_files_only), and needed a file or an answer of the Hub that is not in the cache",
                cures=(check("list the cache and the variables that are set", "hf cache ls; env | grep -E 'HF_|OFFLINE'"), cure("download with the same revision and HF_HOME first, or unset the variable", None, when(r"ffline|outgoing traffic"))),
            ),
            Variant(when=when(r"Read timed out|ReadTimeout"), sentence="Hugging Face (or its mirror) did not answer in time", why="Downloaded files stay in the cache.", deterministic=False,
                cures=(check("check how fast this host (this container) reaches the Hub", "curl -so /dev/null -w '%{time_total}\\n' https://huggingface.co"), cure("start again, with longer timeouts if the Hub is slow", "HF_HUB_DOWNLOAD_TIMEOUT=60 HF_HUB_ETAG_TIMEOUT=60", when(r"[Tt]ime")))),
            Variant(
                when=when(_NETWORK), sentence="a request to Hugging Face (or its mirror) failed",
                cures=(
                    check("check whether this host (this container) can reach the Hub", "curl -sI https://huggingface.co"),
                    check("check which proxy and mirror this process uses", "env | grep -i -E 'proxy|HF_ENDPOINT'"),
                    cure("without network access, download on a host that has it, and mount the folder", "hf download ORG/MODEL", when(_NETWORK)),
                ),
                deterministic=False,
            ),
            Variant(
                when=when(r"does not appear to have (?:a file|files?) named|Error no file named|annot find any model weights with"),
                sentence="the folder or repository in the message lacks a file that vLLM looked for",
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
                sentence="vLLM could not read a model of this name from the Hub",
                cures=(
                    check("check the token that was sent: Hugging Face rejects it, even for public models", "hf auth whoami", when(r"Invalid credentials")),
                    check("check the repository's name on huggingface.co, and whether it exists and has config.json and weights", "curl -sI https://huggingface.co/ORG/NAME/resolve/main/config.json"),
                    cure("if it is private, use a token with read access", "export HF_TOKEN=hf_…", when(_ON_THE_HUB)),
                    cure("if it has adapter_config.json instead, serve its base model with this adapter", "vllm serve BASE --enable-lora --lora-modules NAME=ORG/NAME", when(_ON_THE_HUB)),
                    cure("if the name should be a local folder, use its absolute path", None, when(_ON_THE_HUB)),
                ),
            ),
            Variant(
                when=when(r"5\d\d Server Error"), sentence="the Hub returned a server error",
                cures=(cure("wait and start again", "curl -sI https://huggingface.co"),),
                deterministic=False,
            ),
        ),
    ),
)  # fmt: skip
