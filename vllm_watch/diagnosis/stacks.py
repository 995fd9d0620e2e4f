"""Describe the activity of a vLLM process, from the output of `py-spy dump`.

Source: py-spy 0.4 (src/dump.rs); vllm/distributed/device_communicators/shm_broadcast.py, vllm/v1/executor/multiproc_executor.py,
vllm/v1/engine/core.py of vLLM 0.32.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_THREAD = re.compile(r'Thread \S+ \([^)]*\)(?:: "(?P<name>.*)")?$')
_FRAME = re.compile(r" {4}(?P<function>.+) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)$")

NOT_READ = "no stack could be read"
COLLECTIVE = "waits in a collective"

_SHARED_MEMORY = "device_communicators/shm_"
_PLACES = (
    (re.compile(r"\S+ (?:torch/distributed/(?:distributed_c10d|c10d_logger)|vllm/distributed/device_communicators/)"), COLLECTIVE),
    (re.compile(r"(?:\S*\.)?synchronize |(?:\S*\.)?get_output vllm/v1/worker/"), "waits for the GPU"),
    (re.compile(r"\S+ torch/(?:_dynamo/(?:convert_frame|symbolic_convert)|_inductor/compile_fx)\b"), "compiles (torch.compile)"),
    (re.compile(r"\S+ vllm/v1/core/sched/"), "in the scheduler"),
    (re.compile(r"\S+ \S*tokeniz"), "in the tokenizer"),
    (re.compile(r"(?:\S*\.)?_process_input_queue vllm/v1/engine/core"), "idle: waits for requests"),
)  # fmt: skip
_EVENT_LOOP = re.compile(r"(?:asyncio|uvloop)/|selectors\.py")
_STOPPED = ("T", "t")


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack."""

    function: str
    file: str
    line: str  # "" for a native frame

    def __str__(self) -> str:
        return f"{self.function} ({self.file}{self.line and ':' + self.line})"


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread, with the innermost frame first."""

    name: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Stand:
    """The code that one process executes."""

    name: str  # "VLLM::Worker_TP1 (PID 12)"
    words: str
    worker: bool


def begins(line: bytes) -> bool:
    """Return True if py-spy begins a thread with this line."""
    return _THREAD.match(line.decode("utf-8", "replace").rstrip()) is not None


def threads(text: str) -> tuple[Thread, ...]:
    """Return the threads that py-spy printed."""
    found: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        if head := _THREAD.match(line):
            found.append((head["name"] or "", []))
        elif found and (frame := _FRAME.match(line)):
            found[-1][1].append(Frame(frame["function"], frame["file"], frame["line"] or ""))
    return tuple(Thread(name, tuple(frames)) for name, frames in found)


def where(text: str, state: str | None = None) -> str:
    """Describe the main thread of a process. `state` is the state letter in /proc."""
    found = threads(text)
    main = next((each for each in found if each.name == "MainThread"), found[0] if found else None)
    words = _place(main.frames) if main is not None and main.frames else NOT_READ
    return f"stopped (state {state}), {words}" if state in _STOPPED else words


def waited_for(stands: Sequence[Stand]) -> str:
    """Name the worker that the others wait for, or return ""."""
    workers = [each for each in stands if each.worker]
    if len(workers) < 2:  # noqa: PLR2004 - no other worker waits
        return ""
    late = [each for each in workers if each.words.startswith("stopped")] or [
        each for each in workers if not each.words.startswith((COLLECTIVE, NOT_READ))
    ]
    in_collective = any(each.words.startswith(COLLECTIVE) for each in workers)
    if len(late) != 1 or not (in_collective or late[0].words.startswith("stopped")):
        return ""
    return f"The other workers wait for {late[0].name}: {late[0].words}."


def in_a_sentence(stands: Sequence[Stand], engine: str | None) -> str:
    """Describe the worker that the others wait for. Without one, describe the server and the engine core."""
    cores = [each for each in stands if "::EngineCore" in each.name]
    if len(cores) > 1:
        cores = [each for each in cores if f"::EngineCore_DP{engine} " in each.name]
    told = [each for each in stands[:1] if each not in cores] + cores
    where_all = "; ".join(f"{each.name}: {each.words}" for each in told)
    return waited_for(stands) or (where_all and f"{where_all}.")


def _place(frames: Sequence[Frame]) -> str:
    for frame in frames:
        if _SHARED_MEMORY in frame.file:
            return f"waits in shared memory broadcast {_for_whom(frames)}"
        for pattern, words in _PLACES:
            if pattern.match(f"{frame.function} {frame.file}"):
                return f"{words}: {frame}" if words == COLLECTIVE else words
    if _EVENT_LOOP.match(frames[0].file):
        return "idle: its event loop waits"
    ours = next((each for each in frames if each.file.startswith("vllm/")), frames[0])
    return f"in {ours}"


def _for_whom(frames: Sequence[Frame]) -> str:
    functions = " ".join(each.function for each in frames)
    if "acquire_write" in functions:
        return "until a worker takes the message"
    if "worker_busy_loop" in functions:
        return "for the engine core's next step"
    return "for a worker's answer"
