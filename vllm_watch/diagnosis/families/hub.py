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
_WHOAMI = check("check whether this process has a token, and of which account", "hf auth whoami   (older: huggingface-cli whoami)")  # fmt: skip
_IF_ADAPTER = r"(?<![a-z_])config\.json|any model weights"

FAILURES = (
    Failure(
        slug=GATED,
        sentence="Hugging Face refuses the model: the token has no access, or is missing",
        why="The repository is gated or private, or the token is wrong: the account of the token needs access, and the token must reach vLLM.",
        cures=(
            _WHOAMI,
            cure("accept the licence on the model's page, with the account of the token", None, when(r"gated|restricted|authorized list|licen[cs]e", lacks=r"Invalid (?:user token|username|credentials)")),
            cure("log in, or set the token (in a container: pass it on with -e HF_TOKEN)", "export HF_TOKEN=hf_…", when(r"401|403|oken|gated|restricted|password|redentials")),
        ),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"awaiting a review|(?:has been|was) rejected by"), sentence="the authors of this gated model have not approved the request of the token's account",
                why="Hugging Face knows the account; another token of it has the same access.", cures=(check("check the state of the request on the model's page, and wait for its approval, or use a token of an account that has it", "hf auth whoami", when(r"review|rejected")),),
            ),
            Variant(
                when=when(r"fine-grained token|enable access to public gated"), sentence="the token is a fine-grained one without permission for gated repositories",
                why="The licence may be accepted; the token's own permissions are too narrow.", cures=(cure("in the token's settings on huggingface.co, allow it to read public gated repositories, or use a token of type Read", None, when(r"oken")), cure("if the error stays, accept the licence on the model's page with the same account", None, when(r"gated"))),
            ),
            Variant(
                when=when(r"Invalid user token|Invalid credentials in Authorization"), sentence="Hugging Face does not accept the token that was sent: it is wrong, revoked or not copied whole",
                why="A wrong token is refused for public models, too.", cures=(_WHOAMI, cure("set a valid token (in a container: -e HF_TOKEN)", "export HF_TOKEN=hf_…", when(r"Invalid")), cure("or, if the model is public, start without a token", "env -u HF_TOKEN -u HUGGING_FACE_HUB_TOKEN vllm serve …", when(r"Invalid"))),
            ),
        ),
    ),
    Failure(
        slug=ABSENT,
        sentence="the model's files are not in the place that vLLM reads",
        why="The name is neither a folder that exists here (in this container) with the needed files nor a repository that can be reached; a path that does not exist is taken for a repository's name.",
        cures=(
            check("check whether the folder is there, seen from inside the container", "ls -l /path/to/model"),
            cure("in a container, mount it", "docker run -v /models:/models …", when(r"['\"` ]/\w\S*|Repo id must|FileNotFoundError|No such file")),
            check("check the repository's name and revision on huggingface.co", None, when(r"not a (?:local folder|valid model)|RepositoryNotFound|RevisionNotFound|Repository Not Found|Revision Not Found|404")),
            cure("if the repository is private or gated, pass a token that may read it", "export HF_TOKEN=hf_…", when(r"\b401\b|private or gated|private repository")),
        ),
        deterministic=True,
        variants=(
            Variant(
                when=when(r"has no revision"), sentence="the model's repository has no revision of this name",
                why="The main branch is called master on ModelScope, and main on Hugging Face; parts of the model may be asked for by the other name.",
                cures=(check("check the name of the branch on the model's page"), cure("give it by its name", "--revision master", when(r"(?i)modelscope.{0,300}no revision: main"))),
            ),
            Variant(
                when=when(r"Repo id must [^\n]{0,300}: '(?![./~])\w"), sentence="the name of the model is not valid on Hugging Face, and no folder of this name exists here",
                why="Such a name is ORG/MODEL, of letters, digits, '-', '_' and '.'; a web address or a tag after a colon is not part of it (newer releases of vLLM take ORG/NAME:QUANT for GGUF).",
                cures=(check("check the spelling of the name"), cure("if it is a folder, use its absolute path, seen from inside the container", "ls -l /path/to/model", when(r"Repo id"))),
            ),
            Variant(
                when=when(r"No such file or directory: '[^'\n]{0,400}/snapshots/"), sentence="a file is missing in the Hub's cache: its download did not finish, or it was removed",
                cures=(check("check for links that lead nowhere", "ls -lL /path/of/the/snapshot"), cure("download the rest, into the same HF_HOME", "hf download ORG/MODEL", when(r"snapshots"))),
            ),
            Variant(
                when=when(r"an't load (?:image processor|feature extractor|video processor|processor) for"), sentence="the model's processor for images or audio could not be loaded",
                why="Most often its file (preprocessor_config.json or processor_config.json) is missing: copies and fine-tunes of a model may lack it.",
                cures=(check("check whether the file is there", "ls -lL /path/to/model"), cure("if it is missing, copy it from the model that this one was made from", None, when(r"an't load"))),
            ),
            Variant(
                when=when(r"does not contain tensor"), sentence="a weight file does not have a tensor that its index or the loader names",
                cures=(check("compare the file with model.safetensors.index.json: are both of one revision?", "ls -lL /path/to/model"),),
            ),
            Variant(
                when=when(r"No supported config format found in ['\"`]?[\w.-]{2,80}/[\w.-]{2,120}['\"`]?\s*(?:\n|$)"),
                sentence="no config of this model could be read, from the hub or from a folder of this name",
                why="For a repository of the hub, most often the token is missing, the licence of a gated model is not accepted, or there is no network.",
                cures=(
                    check("check the access with the token that the server has", "hf auth whoami; curl -sI -H \"Authorization: Bearer $HF_TOKEN\" https://huggingface.co/ORG/MODEL/resolve/main/config.json | head -1"),
                    cure("for a gated model, accept its licence on its page, and give the token", "HF_TOKEN=…", when(r"No supported config format")),
                    cure("if it is meant to be a folder, check that it has config.json, seen from inside the container", "ls -l /path/to/model"),
                ),
            ),
            Variant(
                when=when(r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"),
                sentence="the hub answers, but its TLS certificate could not be verified",
                why="Most often a proxy of this network signs with a CA that this Python (or container) does not know, or the list of CAs is missing or old.",
                cures=(check("check who signs the certificate", "openssl s_client -connect huggingface.co:443 </dev/null 2>/dev/null | grep -E 'issuer|Verify'"), cure("name a file with the proxy's CA and the usual ones", "REQUESTS_CA_BUNDLE=/path/ca.pem SSL_CERT_FILE=/path/ca.pem", when(r"certificate verify failed|CERTIFICATE_VERIFY"))),
            ),
            Variant(
                when=when(r"\b429\b|rate limit"),
                sentence="Hugging Face refused the download for now: too many requests (429)",
                why="The limit is per account or address and passes by itself; many replicas that start at once reach it.",
                cures=(
                    cure("wait some minutes and start again; download once into a shared cache instead of per replica", "hf download ORG/MODEL"),
                    cure("log in: limits are higher with a token", "export HF_TOKEN=hf_…", when(r"\b429\b")),
                    cure("if the files are already in the cache, do not ask the hub", "HF_HUB_OFFLINE=1", when(r"api/models|/resolve/")),
                    cure("download without the Xet store", "HF_HUB_DISABLE_XET=1", when(r"[Xx]et|CAS service")),
                ),
                deterministic=False,
            ),
            Variant(
                when=when(r"CAS service error|[Xx]et"),
                sentence="the download from Hugging Face's Xet store failed",
                why="Its servers have other names than huggingface.co; a firewall or proxy may allow only one of the two.",
                cures=(check("check whether this host (this container) reaches it", "curl -sI https://cas-server.xethub.hf.co"), cure("download again, without the Xet store if need be", "HF_HUB_DISABLE_XET=1", when(r"CAS service|[Xx]et"))),
                deterministic=False,
            ),
            Variant(
                when=when(_DAMAGED),
                sentence="a weight file is damaged or was not downloaded whole",
                why="Git LFS pointers in place of the files, an interrupted download or a full disk leave such files.",
                cures=(check("compare its size with the repository's (a Git LFS pointer has about 130 bytes)", "ls -lL /path/to/model"), cure("if the disk has room, download that file again", "df -h; hf download ORG/MODEL FILE --force-download", when(_DAMAGED))),
            ),
            Variant(
                when=when(r"OfflineModeIsEnabled|outgoing traffic"),
                sentence="a file is not in the cache, and this process may not download (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set)",
                cures=(check("list the cache, and the variables that are set", "hf cache ls; env | grep -E 'HF_|OFFLINE'"), cure("download with the same revision and HF_HOME first, or unset the variable", None, when(r"ffline|outgoing traffic"))),
            ),
            Variant(when=when(r"Read timed out|ReadTimeout"), sentence="Hugging Face (or its mirror) did not answer in time", why="The network is slow or cut, or the hub is overloaded. Files that were downloaded stay in the cache.", deterministic=False,
                cures=(check("check how fast this host (this container) reaches the hub", "curl -so /dev/null -w '%{time_total}\\n' https://huggingface.co"), cure("start again, with longer timeouts if it is slow", "HF_HUB_DOWNLOAD_TIMEOUT=60 HF_HUB_ETAG_TIMEOUT=60", when(r"[Tt]ime")))),
            Variant(
                when=when(_NETWORK), sentence="Hugging Face (or its mirror) cannot be reached, and the files are not in the cache",
                cures=(
                    check("check whether this host (this container) reaches the hub", "curl -sI https://huggingface.co"),
                    check("check which proxy and which mirror this process uses", "env | grep -i -E 'proxy|HF_ENDPOINT'"),
                    cure("without network, download on a host that has it, and mount the folder", "hf download ORG/MODEL", when(_NETWORK)),
                ),
                deterministic=False,
            ),
            Variant(
                when=when(r"does not appear to have (?:a file|files?) named|Error no file named|annot find any model weights with"),
                sentence="the folder or repository of the model lacks a file that vLLM needs",
                why="The folder or repository was found. An interrupted download, a mount of a wrong (empty) folder, a repository of another format or a copy without all files are the usual causes.",
                cures=(
                    check("list its files, seen from inside the container (for a repository: on its page)", "ls -lL /path/to/model"),
                    cure("name a GGUF file itself, with the tokenizer and the config of the original model", "vllm serve ./FILE.gguf --tokenizer ORG/MODEL --hf-config-path ORG/MODEL", when(r"(?i)gguf")),
                    cure("if it has adapter_config.json instead, serve its base model with the adapter", "vllm serve BASE --enable-lora --lora-modules NAME=ORG/NAME", when(_IF_ADAPTER)),
                    cure("if it has params.json and consolidated weights instead, read it in Mistral's format", "--tokenizer-mode mistral --config-format mistral --load-format mistral", when(_IF_ADAPTER)),
                    cure("else download the missing file, or copy it from the model that this one was made from", "hf download ORG/MODEL", when(r"file|weights")),
                ),
            ),
            Variant(
                when=when(_ON_THE_HUB),
                sentence="no model of this name could be read from Hugging Face",
                why="The repository does not exist, is private, or has no config.json, for example because it contains only an adapter (LoRA).",
                cures=(
                    check("check the token that was sent: Hugging Face refuses it, for public models, too", "hf auth whoami", when(r"Invalid credentials")),
                    check("check the repository's name on huggingface.co, and whether it exists and has config.json and weights", "curl -sI https://huggingface.co/ORG/NAME/resolve/main/config.json"),
                    cure("if it is private, use a token that may read it", "export HF_TOKEN=hf_…", when(_ON_THE_HUB)),
                    cure("if it has adapter_config.json instead, serve its base model with the adapter", "vllm serve BASE --enable-lora --lora-modules NAME=ORG/NAME", when(_ON_THE_HUB)),
                    cure("if the name should be a local folder, use its absolute path", None, when(_ON_THE_HUB)),
                ),
            ),
            Variant(
                when=when(r"5\d\d Server Error"), sentence="Hugging Face answered with an error of its own",
                cures=(cure("wait and start again", "curl -sI https://huggingface.co"),),
                deterministic=False,
            ),
        ),
    ),
)  # fmt: skip
