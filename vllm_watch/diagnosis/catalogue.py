"""All rules and failure classes, joined from the tables in `families/`, and the lines worth reading for them.

Keywords are grouped by a common substring. A line without the substring is not searched for the group's keywords.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from vllm_watch.diagnosis import lines, phases
from vllm_watch.diagnosis.facts import FACTS, Pattern
from vllm_watch.diagnosis.families import (
    compiling,
    flags,
    hub,
    memory,
    model,
    packages,
    parallel,
    serving,
    software,
    unclassified,
)
from vllm_watch.diagnosis.rule import Failure, Rule

_FAMILIES = (memory, parallel, hub, model, flags, software, compiling, packages, serving)

RULES = tuple(each for family in (*_FAMILIES, unclassified) for each in family.RULES)

FAILURES: dict[str, Failure] = {
    failure.slug: failure for family in _FAMILIES for failure in family.FAILURES
}


USERS_TEXT = ("Received request", "Generated response", "Added request", "prompt: '")
"""Lines with users' text, which are not searched for errors."""

HARMLESS = (
    "Error retrieving file list",
    "Error retrieving safetensors",
    ", retrying ",
    "Retrying with a new port",
    "Cannot use FA version",
    "Error ignored in is_in_the_same_node",
    "Failed to initialize FlashInfer All",
    "destroy_process_group() was not called",
    "Unable to register cu",
    "computation placer already registered",
    "resource_tracker: There appear to be",
    "Address family not supported by protocol",
    "Failed to import from vllm.",
    "Failed to import Triton kernels",
    "Failed to import from amdsmi",
    "Error importing OSS server tool",
    "ras/client_support.cc",
    "nanobind: leaked",
    "No module named 'vllm._version'",
    "ERR99999 UNKNOWN applic",
    "Failed to load NCCL library from",
    "encountered while exporting traces",
    "Failed to export traces to",
    "Failed to export metrics to",
)
"""Messages that vLLM and its libraries log as errors, but survive."""

IGNORED = (
    "Exception ignored in",
    "--- Logging error ---",
    "_report_usage_worker",
    "was found but failed to import",
    "model info cache",
)
"""Messages before an exception that the process survives."""

_COMPLAINTS = ("rror:", "FATAL", "FAILED", "ailed", "annot ", "refused", "not permitted", "format error", "denied", "exceeds ", "must ", "Missing ", "CMake Error", "ould not", "[error]", " received ", " got ", ", but found", "kernel ABI")  # fmt: skip

NOTED = frozenset(
    (
        "nccl_debug",
        "wsl",
        "mixed_gpus",
        "ignored_fields",
        "kv_cache_memory_set",
        "no_offload",
        "shut_down",
    )
)
"""Marks that conditions may require."""

MARKS: dict[str, tuple[str, ...]] = {
    "banner": ("vLLM API server version", "  version "),
    "ready": (
        "Application startup complete",
        "Uvicorn running on",
        "Starting vLLM API server",
        "Starting vLLM server on ",
    ),
    "serving": ("throughput:", '" 200', "Finished request"),
    "request": ('"POST /v1/', '"GET /v1/', '"POST /generate'),
    "sleep": ("to fall asleep", "to wake up"),
    "stop": (
        "shutdown triggered",
        "received signal=SIGTERM",
        "Gracefully stopping http server",
        "SIGTERM received",
        "Received SIGTERM",
        "KeyboardInterrupt",
    ),
    "end": ("to clean up at shutdown", "main process disappeared"),
    "nccl_debug": ("NCCL INFO", "NCCL WARN"),
    "ignored_fields": ("present in the request but ignored",),
    "shut_down": ("Shutdown initiated (timeout",),
    "kv_cache_memory_set": ("specified by kv_cache_memory_bytes config",),
    "no_offload": ("Offloader set to NoopOffloader",),
    "dump": ("Dumping input data for V1",),
    "prompts": ("Processed prompts:", "Adding requests:"),
    "variable": ("VLLM_",),
    "given": ("non-default args:",),
    "mixed_gpus": ("Detected different devices in the system",),
    "wsl": ("WSL is detected", "microsoft-standard-WSL"),
    "warning": ("WARNING", "Warning:"),
    "native": (".cpp:", ".cc:"),
    "error": ("ERROR", "CRITICAL", "[E0", "[E1", "Error", "Exception", "Traceback", "what(): "),
    "complaint": _COMPLAINTS,
    "import": ("ailed to import", "rror importing"),
    "link": ("During handling of the above", "direct cause of the following", *IGNORED),
}


@dataclass(slots=True)
class Interest:
    """Patterns that a line may match."""

    rules: list[Rule] = field(default_factory=list)
    facts: list[Pattern] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)

    def add(self, other: "Interest") -> None:
        self.rules += [each for each in other.rules if each not in self.rules]
        self.facts += [each for each in other.facts if each not in self.facts]
        self.marks += [each for each in other.marks if each not in self.marks]


Groups = tuple[tuple[str, tuple[tuple[str, Interest], ...]], ...]

_PIECES = (
    "rro", "not ", "vali", "weig", "avai", "mem", "supp", "iled", "must", "ille", "ptio", "loop", "step",
    "compil", "_STA", "GPU ", "onne", "nccl", "NCCL", "max", "time", "dtyp", "LLM", "arch", "json", "acto",
    "CUDA", "oRA", "lora", "oken", "rope", "nti", "UDA", "ray", "Ray", "Tim", "cap", "back", "ker", "ill",
)  # fmt: skip

_PIECE_CHARACTERS = 4


def _grouped(table: dict[str, Interest]) -> Groups:
    groups: dict[str, list[tuple[str, Interest]]] = {piece: [] for piece in _PIECES}
    for literal, interest in table.items():
        piece = next((each for each in groups if each in literal), None)
        if piece is None:
            begin = max(0, len(literal) // 2 - _PIECE_CHARACTERS // 2)
            piece = literal[begin : begin + _PIECE_CHARACTERS]
        groups.setdefault(piece, []).append((literal, interest))
    return tuple((piece, tuple(group)) for piece, group in groups.items() if group)


def _table(*, calm: bool) -> Groups:
    table: dict[str, Interest] = {}

    def of(literals: Iterable[str]) -> list[Interest]:
        return [table.setdefault(literal, Interest()) for literal in literals]

    for rule in RULES:
        for interest in of(rule.literals if rule.quiet or not calm else ()):
            interest.rules.append(rule)
    for pattern in FACTS:
        for interest in of(pattern.literals):
            interest.facts.append(pattern)
    for word, literals in MARKS.items():
        for interest in of(literals):
            interest.marks.append(word)
    for interest in of(literal for literal, _ in phases.PROGRESS):
        interest.marks.append("phase")
    for interest in of(phases.HINTS if not calm else ()):
        interest.marks.append("hint")
    return _grouped(table)


_ALL, _CALM = _table(calm=False), _table(calm=True)

_REQUEST = Interest(marks=["request"])

_LEVEL_BYTES = 160
"""Bytes searched for a line's level. Pods, journals and workers add prefixes before the level."""

_READ_BYTES_MAX = 16 << 10


def interest_in(line: bytes) -> Interest | None:
    """Return the patterns that may match this line, or None."""
    text = line[:_READ_BYTES_MAX].decode("latin-1")  # keywords are ASCII
    if "\x1b" in text:
        text = lines.uncoloured(text)
    if any(each in text for each in USERS_TEXT):
        return _REQUEST
    calm = "INFO" in text[:_LEVEL_BYTES] and "rror" not in text and "ERR" not in text
    found: Interest | None = None
    for piece, group in _CALM if calm else _ALL:
        if piece not in text:
            continue
        for literal, interest in group:
            if literal in text:
                if found is None:
                    found = Interest()
                found.add(interest)
    return found
