"""A message found in a log, the root among several, and the part of the software that raised it."""

import re
from dataclasses import dataclass, field
from itertools import takewhile

from vllm_watch.diagnosis.report import UNKNOWN, Check, Fix
from vllm_watch.diagnosis.rule import Rank, Rule

TAIL_LINES = 8
"""Lines kept after a message, because terminals wrap long ones."""

HINT_LINES_BEFORE, HINT_LINES_AFTER = 80, 40
"""Lines searched for hints before and after a message. A traceback of vLLM has 30 to 60 lines."""

OUTPUT_LINES = 60
"""Maximum lines between an error and its explanation, such as a compiler's message."""

RAISED_LINES = 6

QUOTED = 300
"""Characters of a message that an explanation quotes."""

_NEW = re.compile(r"\(|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|Traceback \(|\[rank|\[?\d{4}-\d\d-\d\d")  # fmt: skip
_OPENS = re.compile(rf"{_NEW.pattern}|[\w.]{{0,100}}(?:Error|Exception)\b")
_BARE = re.compile(r"(?:Error|Exception):?$")
_PREFIX = re.compile(r"^.{0,160}(?:\[?[\w/.]+:\d+\]|\bpid=\d+\)) ?")
_PLACE = re.compile(r"\.(?:cpp|cuh?|hpp|cc|h):\d+,$")
_INDENTED = re.compile(
    r"^\s{2,}+(?!File \"|at |(?:raise|return|await|yield|assert) |self\.|(?:Warning|Normal) |[\^~])\S"
)
_NO_CODE = re.compile(r"\s*(?:File \"|Traceback|[\^~]|$)|(?!assert )\S")

_RAISED = re.compile(r"\braise [\w.]+\(")
_SUMMARIES = (
    (re.compile(r"unhandled \w{1,20} error|\bncclInternalError\b"), re.compile(r"NCCL WARN "), 100_000),
    (re.compile(r"\bNIXL_ERR_\w+\W*$"), re.compile(r"^E\d{4} "), OUTPUT_LINES),
    (re.compile(r"\bFailed to load\b(?! model)"), re.compile(r"\.so\S{0,40}: cannot open"), OUTPUT_LINES),
    (re.compile(r"\b(?:EOFError|BrokenPipeError|ConnectionResetError)\b"), re.compile(r"[Ee]xit ?[Cc]ode:?\s*\(?(?:-\d|137|139)\b"), OUTPUT_LINES),
)  # fmt: skip
"""Errors that sum up an earlier one: pattern of the summary and the reason, and lines between them."""
UNLOADED = r"cannot open shared object|undefined symbol"
"""The loader of a shared library failed."""

_OF_SYSTEM = re.compile(rf"{UNLOADED}|\[Errno \d+\]")

_MISSING = re.compile(r"'_OpNamespace' '(\w+)'|\bname '(\w+)' is not defined|No module named '([\w.]+)'")  # fmt: skip
_NOT_IMPORTED = re.compile(r"(?:ailed to import|rror importing) (?:from )?['\"]?([\w.]{1,120})")
_NAMES = re.compile(r"[^\W_]+")
_OBJECT = re.compile(r"'([^']{1,400})'")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]{3,60}\b")
_ADVICE = re.compile(r"(?:^|[.;:!] |\] ?|\n)((?!Run 'docker|Set the environment variable HYDRA)(?:You (?:may|might|can|could|should|need|must)|If you|[Pp]lease|To (?:fix|avoid|bypass|disable|enable)|Try|Consider|Make sure|Increase|Reduce|Set|Use|Run|Install|Pass|Call(?! Stack))\b(?! (?:of|out|to)\b)(?= \S+ \S)(?:e\.g\. |[^.\n]|\.(?=\S)){5,300})")  # fmt: skip

_HINT = re.compile(r"[ \t]{0,20}hint: (.{5,300})")

_TIERS = {Rank.CAUSE: 0, Rank.GENERAL: 0}


@dataclass(slots=True)
class Finding:
    """A rule's match."""

    rule: Rule
    line: str
    number: int  # 1-based
    phase: int  # progress of the start
    at: int = 0  # offset in the line
    chain: int = 0  # equal for chained exceptions
    process: str = ""  # prefix such as "(Worker pid=12", or ""
    before: str = ""  # earlier lines, to recognise a failed assertion
    frames: tuple[str, ...] = ()  # "file function", innermost first
    tail: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join((self.line, *self.tail))

    @property
    def source(self) -> str:
        """The source line that raised an exception without a message."""
        if not _BARE.search(self.line):
            return ""
        own = (each for each in self.before.split("\n") if self.process in each)
        above = (_PREFIX.sub("", each) for each in own)
        codes = [each for each in above if not _NO_CODE.match(each)]
        return codes[-1].strip() if codes else ""

    @property
    def joined(self) -> str:
        """The line, joined with the next ones if a terminal wrapped it or its message begins there."""
        if self.message_below:
            return f"{self.line} {self.message_below}"
        if self.line[:1] != "(":
            return self.line
        end = next((at for at, each in enumerate(self.tail) if _NEW.match(each)), None)
        return "".join((self.line, *self.tail[:end]))

    @property
    def message_below(self) -> str:
        """The message below its first line."""
        own = _PREFIX.match(self.line)
        mark = own[0].rstrip() if own else ""
        if self.tail and self.tail[0].startswith("  "):
            mark = ""
        same = [each[len(mark) :] for each in takewhile(lambda each: each.startswith(mark), self.tail)]  # fmt: skip
        if (self.line[-1:] == ":" and _BARE.search(self.line)) or _PLACE.search(self.line):
            record = list(takewhile(lambda each: mark or not _NEW.match(each), same))
            end = next((at for at, each in enumerate(record) if at and not each.strip()), None)
            return " ".join(each.strip() for each in record[:end]).strip()
        below = (each.strip() for each in takewhile(_INDENTED.match, same))
        return " ".join(each for each in below if "errors.pydantic.dev" not in each)

    @property
    def advice(self) -> str:
        """The remedy that the message names, or ""."""
        own = takewhile(lambda each: not _NEW.match(each), self.tail[:2])
        message = "\n".join((_PREFIX.sub("", self.line), *own, self.message_below))
        found = (each.strip() for each in _ADVICE.findall(message))
        said = list(dict.fromkeys(each for each in found if not each.endswith((" or", " and"))))[:2]
        if said:
            return f"The message itself advises: {'. '.join(said)}."
        flags = _FLAG.findall(message)  # a command line has several
        return f"The message names the option {flags[0]}." if len(flags) == 1 else ""

    @property
    def hint(self) -> str:
        """A sentence with the hint that a tool (uv, git) prints below its error, or ""."""
        found = next((found for each in self.tail if (found := _HINT.match(each))), None)
        return f"The tool's own hint: {found[1][:QUOTED].rstrip('.')}." if found else ""

    @property
    def order(self) -> tuple[float, int, int]:
        """Sort key: rank, then position in the log. A report of waiting comes after one of a failed operation."""
        waits = 0.5 if self.rule.rank is Rank.SYMPTOM and self.rule.quiet and self.rule.heals else 0
        return _TIERS.get(self.rule.rank, self.rule.rank) + waits, self.number, self.at

    def says_more_than(self, first: "Finding") -> bool:
        """Return True if this finding explains the error of `first` in more detail."""
        bare = first.rule.failure == UNKNOWN and first.line[-1:] == ":" and _BARE.search(first.line)
        wrapped = first.rule.failure == UNKNOWN and self.number - first.number == 1 and not _OPENS.match(self.line)  # fmt: skip
        after = self.number - first.number if self.process == first.process else 0
        heads = first.rule.failure == UNKNOWN and first.line[-1:] == ":" and first.tail and "Traceback (most" in first.tail[0]  # fmt: skip
        if heads and 0 < after <= OUTPUT_LINES:
            return self.rule.rank <= Rank.IMPORT
        near = 0 < after <= TAIL_LINES
        if near and (bare or wrapped):
            return self.rule.failure != UNKNOWN and self.rule.rank <= Rank.IMPORT
        linked = self.chain == first.chain or (
            first.rule.header
            and first.process in ("", self.process)
            and 0 <= self.number - first.number <= OUTPUT_LINES
        )
        return linked and self.rule.rank < first.rule.rank


def message_of(line: str) -> str:
    """Return the line without its prefix, up to QUOTED characters."""
    return _PREFIX.sub("", line).strip()[:QUOTED]


def root(findings: list[Finding]) -> Finding | None:
    """Return the first error, or the finding that explains it best."""
    first = min(findings, key=lambda each: each.order, default=None)
    if first is None:
        return None
    deaths = [each for each in findings if each.rule.rank is Rank.DEATH and 0 < first.number - each.number <= OUTPUT_LINES]  # fmt: skip
    if deaths and first.rule.failure == UNKNOWN and first.process == deaths[0].process and "APIServer" in first.process and "what(): " not in first.line:  # fmt: skip
        return deaths[0]  # the API server met the death first, and its later errors follow
    same = [each for each in findings if each.says_more_than(first)]
    best = min(same, key=lambda each: (each.rule.rank, each.number, each.at), default=first)
    if best.rule.quiet and best.rule.rank is Rank.SYMPTOM:  # the final error explains more
        return next((each for each in findings if each.rule.failure == best.rule.failure and each.rule.rank is Rank.SYMPTOM and not each.rule.quiet and not each.rule.heals), best)  # fmt: skip
    if best.line.endswith("AssertionError"):  # without a text, so an earlier error explains more
        same = [each for each in findings if each.rule.rank is Rank.REQUEST and not each.rule.quiet and 0 < best.number - each.number <= OUTPUT_LINES]  # fmt: skip
        return same[0] if same else best
    if best.rule.rank is Rank.MESSAGE:  # e.g. "Error in preprocessing"; the reason follows
        reasons = (each for each in findings if each.rule.rank is Rank.REQUEST and each.process == best.process and -RAISED_LINES <= each.number - best.number <= OUTPUT_LINES)  # fmt: skip
        return next(reasons, best)
    if _RAISED.search(best.line):
        after = (each for each in findings if each.rule is best.rule and 0 < each.number - best.number <= RAISED_LINES)  # fmt: skip
        best = next(after, best)
    return _reason(best, findings) or _last(best, findings) or best


def not_imported(of: Finding, imports: list[Finding]) -> Finding | None:
    """Return the failed import that explains an error."""
    names = _MISSING.search(of.line)
    missing = set(_NAMES.findall("".join(filter(None, names.groups())))) if names else set()
    before = ((each, _NOT_IMPORTED.search(each.line)) for each in imports if each.number < of.number)  # fmt: skip
    return next((each for each, name in before if missing and name and missing <= set(_NAMES.findall(name[1]))), None)  # fmt: skip


def _last(of: Finding, findings: list[Finding]) -> Finding | None:
    """Return the last error before its process ended, if each names another object."""
    later = [each for each in findings if each.process == of.process and each.number > of.number]
    death = min((each.number for each in later if each.rule.rank is Rank.DEATH), default=0)
    same = [each for each in later if each.rule is of.rule and each.chain != of.chain and death - RAISED_LINES <= each.number < death]  # fmt: skip
    other = [each for each in same if _OBJECT.findall(each.line) != _OBJECT.findall(of.line) != []]
    return other[-1] if other and of.process else None


def _reason(of: Finding, findings: list[Finding]) -> Finding | None:
    for summary, reason, most in _SUMMARIES:
        if summary.search(of.line):
            before = [each for each in findings if 0 < of.number - each.number <= most and reason.search(each.line)]  # fmt: skip
            return min(before, key=lambda each: each.number, default=None)
    if of.rule.failure != UNKNOWN:
        return None
    linked = (each for each in findings if each.chain == of.chain and each.number < of.number and _OF_SYSTEM.search(each.line))  # fmt: skip
    return min(linked, key=lambda each: each.number, default=None)


AREAS = tuple((re.compile(pattern), words) for pattern, words in (
    (r"(?<!setup\.py)(?<!>) <module>$", "the import of this module"),
    (r"nixl|mooncake|lmcache|kv_transfer|kv_connector|/kv_offload", "KV transfer or offload (a KV connector)"),
    (r"/vllm/(?:multimodal|transformers_utils/processors)|mm_processor|preprocessor", "image, video or audio processing"),
    (r"structured_output|xgrammar|llguidance|outlines", "structured output"),
    (r"spec_decode|eagle|medusa|draft_model|/mtp", "speculative decoding"),
    (r"/lora/|punica", "LoRA"),
    (r"/eplb", "expert load balancing (EPLB)"),
    (r"tool_parser|reasoning_parser|/reasoning/", "the tool call or reasoning parser"),
    (r"layers/quantization|compressed_tensors", "quantization"),
    (r"fused_moe|deep_ep|all2all", "mixture of experts (MoE)"),
    (r"/sample/|flashinfer/sampling", "sampling of the next token"),
    (r"/attention/|flash_attn|backends/flashinfer|flashinfer/(?:attention|decode|prefill|mla|cascade)", "attention"),
    (r"/vllm/compilation|torch/_(?:inductor|dynamo)", "torch.compile"),
    (r"model_loader|weight_utils", "weight loading"),
    (r"model_executor/models", "this model's implementation"),
    (r"transformers_utils|/transformers/|/vllm/config", "parsing of the model's config or of settings"),
    (r"/core/sched|kv_cache_manager|kv_cache_utils|block_pool", "the scheduler or the KV cache"),
    (r"/vllm/distributed|torch/distributed|parallel_state", "communication between workers"),
    (r"/vllm/platforms", "platform-specific code"),
    (r"/entrypoints/|serving_\w{1,60}\.py|api_server", "the API server"),
    (r"model_runner|gpu_worker|/v1/worker", "a model step or its preparation"),
))  # fmt: skip
_ROOT = re.compile(
    r"^(?:.*(?:site|dist)-packages/(?:[^/]{1,80}\.egg/)?|.*?/(\w{1,60})/(?=(?i:\1)/)|.*/(?=vllm/)|\.{3}/)"
)
"""A folder of packages, a checkout or an abbreviated path; a package follows."""
_STANDARD = re.compile(r"/python3[\d.]{0,4}/(?!(?:site|dist)-packages/)|^<")
_RELAY = re.compile(
    r"(?:multiproc|ray\w{0,20})_executor(?:_v2)?\.py (?:get_response|wait_for_\w+|collective_rpc)|/core_client\.py"
)
"""Frames that raise the error of another process again."""
_LOGGER = re.compile(r"\[([\w/]{1,80}\.py):\d+\]")
_INSTALLED = {"flashinfer": "flashinfer-python", "PIL": "Pillow"}  # names of packages by folder
OF_INTERFACE = re.compile(r"\b(?:Import|ModuleNotFound|Attribute|Type)Error\b")
_BELOW = frozenset(("python", "torch", "vllm", "asyncio", "uvloop", "pydantic", "numpy"))


def raised_in(frames: tuple[str, ...], line: str, source: str) -> tuple[str, tuple[Fix, ...]]:
    """Return a sentence about the code that raised an error, and fixes."""
    frames = () if frames and _RELAY.search(frames[0]) else frames
    logger = _LOGGER.search(line)
    found = next((each for each in map(_split, frames) if each[0] not in _BELOW - {"vllm"}), None)
    places = (*frames[:1], " ".join(found[1:])) if found else (*frames[:1], *([logger[1]] if logger else ()))  # fmt: skip
    area = next((words for place in places for pattern, words in AREAS if pattern.search(place)), None)  # fmt: skip
    said, fixes = [], []
    if found is not None:
        package, path, function = found
        at = f", at `{source}`" if source else ""
        said.append(f"{function} ({path}{at})" if function else f"{path}{at}")
        package = _INSTALLED.get(package, package)
        innermost = package not in _BELOW | {""} and found == _split(frames[0])
        if innermost and OF_INTERFACE.search(line):
            fixes.append(Check(f"check whether the {package} version is compatible with this vLLM, and search its issues for this message", f"python -m pip show {package} vllm"))  # fmt: skip
        elif innermost:
            fixes.append(Check(f"search the issues of {package} and vLLM for this message and the releases"))  # fmt: skip
    if area is not None:
        said.append(area)
    if not fixes and (found is not None or area is not None):
        fixes.append(Check("search vLLM's issues for this message and the release"))
    return f"It comes from {': '.join(said)}." if said else "", tuple(fixes)


def of_library(frames: tuple[str, ...]) -> bool:
    """Return True if the innermost frame is of another package than vLLM, PyTorch and their base."""
    return bool(frames) and _split(frames[0])[0] not in _BELOW | {""}


def _split(frame: str) -> tuple[str, str, str]:
    """Return package ("" if unknown), short path and function."""
    path, _, function = frame.replace("\\", "/").rpartition(" ")
    root = _ROOT.match(path)
    if root is None:
        return "python" if _STANDARD.search(path) else "", path, function
    return path[root.end() :].split("/")[0], path[root.end() :], function
