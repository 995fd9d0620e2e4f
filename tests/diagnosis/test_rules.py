"""Each message that a rule knows is found, each rule knows one, and no rule takes the message of another class."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.diagnosis.counter_examples import COUNTER_EXAMPLES
from tests.diagnosis.examples import EXAMPLES
from tests.diagnosis.whole_log import diagnose
from tests.for_each import for_each
from vllm_watch.diagnosis.catalogue import FAILURES, RULES
from vllm_watch.diagnosis.families import memory
from vllm_watch.diagnosis.report import UNKNOWN
from vllm_watch.diagnosis.rule import Rank, Rule

LINES = [(failure, line) for failure, lines in EXAMPLES.items() for line in lines]

WITHOUT_A_LINE = {"engine_hang"}
"""Found by what is missing: tests/diagnosis/test_stillness.py."""

NO_CLASS = ["[rank3]:[W111 00:54:10.9 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=9, addr=[::ffff:10.0.0.2]:38760, remote=[::ffff:10.0.0.1]:42643): Failed to recv, got 0 bytes", "podman: error running createContainer hook #1: exit status 2", '{"error": {"message": "There is no such file.", "type": "NotFoundError", "code": 404}}', "libnrt: failed to open /dev/neuron0: Device or resource busy", "CUDA error (/build/hopper/flash_fwd_launch_template.h:166): invalid argument", "JIT error: No device found", "docker: Error response from daemon: unknown or invalid runtime name: nvidia.", "RESOURCE_EXHAUSTED: Error loading program 'jit_step': Attempting to reserve 3.02G at the bottom of memory. That was not possible.", "(EngineCore pid=168) ERROR 06-23 15:08:34 [core.py:1138] CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.", "TimeoutError: Orchestrator did not become ready within 600s", "RuntimeError: Worker failed with error 'Expected a size', please check the stack trace above for the root cause", '(APIServer pid=1) INFO:     10.0.0.1:5555 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error', "(APIServer pid=1) ERROR 09-01 10:10:10 [serving_chat.py:257] openai_harmony.HarmonyError: Unexpected token 200002 while expecting start token 200006", "(APIServer pid=1) ERROR 09-01 10:10:10 [hermes_tool_parser.py:120] Error in extracting tool call from response.", "socket.gaierror: [Errno -2] Name or service not known", "Warning  FailedScheduling  2m  default-scheduler  0/5 nodes are available: 5 Insufficient nvidia.com/gpu.", "ERROR 03-18 09:02:03 [serving_chat.py:133] Error with model object='error' message='The model `QwQ` does not exist.' type='NotFoundError' param=None code=404", "subprocess.CalledProcessError: Command '['/usr/bin/python3', '-m', 'vllm.model_executor.models.registry']' returned non-zero exit status 1.", 'ERROR 05-05 [serving_chat.py:9] Error in preprocessing: "auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', "(raylet) file_system_monitor.cc:111: /tmp/ray is over 95% full, available space: 40 GB; capacity: 900 GB. Object creation will fail if spilling is required.", "nvidia 0000:81:00.0: Unable to change power state from D3cold to D0, device inaccessible", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (5x4096 and 2048x4096)", 'Error response from daemon: OCI runtime create failed: exec: "vllm": executable file not found in $PATH: unknown', "CUDA Error: invalid argument at /workspace/csrc/cumem_allocator.cpp:119", "Capturing CUDA graphs (decode, FULL):  88%|########8 | 45/51CUDA error: device kernel image is invalid", "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x25:0xffff:1589)", "n2:311:405 [0] transport/net_ib.cc:199 NCCL WARN NET/IB : mlx5_2:1 Got async error event: port error", "DEBUG 03-03 10:00:00 [__init__.py:90] ROCm platform is not available because: AMDSMI_STATUS_NOT_INIT", "x.py:9: UserWarning: CUDA initialization: Found no NVIDIA driver on your system.", "  Assertion failed, block sizes differ [type=assertion_error]", "[aiter] waiting for baton release at /tmp/aiter_configs/x.csv.lock", "[12.000001] {1}[Hardware Error]: event severity: fatal", "[<0>] uvm_spin_loop+0xb4/0x100 [nvidia_uvm]", "  error: subprocess-exited-with-error", '(Worker pid=9) ERROR 02-13 00:28:06 [multiproc_executor.py:863]     TVM_FFI_ICHECK(args->n_group != 0) << "n_group should not be zero for DeepSeekV3 routing";']  # fmt: skip
"""Errors whose line is known, and no class: production-stack #454, ms-swift #9613, vLLM's recipes #551."""

OVERLAPS = {
    ("hf_gated_or_auth", "401 Client Error. (Request ID"),  # GENERAL beside a CAUSE in the line
    (
        "unsupported_architecture",
        "KeyError: 'layers.",
    ),  # a CAUSE of the quantization's entry beside it
    ("quantization_unsupported", "GGUF model with architecture"),
    ("dtype_unsupported", "is not valid for this configuration. Reason"),
}
"""Rules that fit a line of another class, too, and lose it to that class's rule."""


def names(rules: tuple[Rule, ...]) -> Iterator[tuple[str, Rule]]:
    """Each rule by class and first literal; `#2` where that names two."""
    seen: Counter[str] = Counter()
    for each in rules:
        name = f"{each.failure}/{each.literals[0]}"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}#{seen[name]}", each


def takes(rule: Rule, line: str) -> bool:
    """Return True if the scanner would find this rule in the line."""
    return any(literal in line for literal in rule.literals) and rule.fits(line) is not None


@pytest.mark.parametrize(("failure", "line"), LINES, ids=[line[:60] for _, line in LINES])
def test_a_message_alone_names_its_class(failure, line):
    """Between lines that say nothing class and line are right, and pasted without them the class is."""
    found = diagnose(f"python -m vllm serve\n{line}\nbye\n".encode())
    assert (found.failure, found.root_cause_line, found.line_number) == (failure, line.strip(), 2)
    assert diagnose(line.encode()).failure == failure, "nothing else is needed"


def test_every_class_has_examples():
    """No class can be named that no test knows."""
    assert set(EXAMPLES) == set(FAILURES) - WITHOUT_A_LINE


def test_every_rule_has_an_example():
    """A rule that none of the lines fits is a rule nobody has seen work."""
    lines = [line for _, line in LINES] + NO_CLASS
    idle = [name for name, each in names(RULES) if not any(takes(each, line) for line in lines)]
    assert idle == []


def test_every_rule_has_a_counter_example():
    """A line that looks like its message and is not it."""
    rules = dict(names(RULES))
    assert set(COUNTER_EXAMPLES) == set(rules)
    assert [name for name, line in COUNTER_EXAMPLES.items() if takes(rules[name], line)] == []


def test_no_rule_takes_the_message_of_another_class():
    """Every rule against every example: what fits besides is known, or explains less."""
    wrong = []
    for failure, line in LINES:
        best = min(
            each.rank
            for each in RULES
            if each.failure in {failure, memory.OOM} and takes(each, line)
        )
        for each in RULES:
            if each.failure in {failure, memory.OOM, UNKNOWN} or not takes(each, line):
                continue
            known = any(each.failure == other and part in line for other, part in OVERLAPS)
            if not known and each.rank <= best:
                wrong.append((each.failure, each.literals[0], failure, line))
    assert wrong == []


def test_every_rule_belongs_to_a_class():
    """Out-of-memory errors are sorted later, by their phase."""
    assert {each.failure for each in RULES} <= {*FAILURES, UNKNOWN}


def test_an_error_of_no_class_is_shown():
    """The line, and no guess."""
    found = diagnose(NO_CLASS[0].encode())
    assert (found.failure, found.root_cause_line) == (UNKNOWN, NO_CLASS[0])


def test_what_would_fail_again_is_known_of_each_class():
    """A start is refused only where it cannot succeed; what may pass by itself, or be another's doing, is not."""
    again = {slug for slug, failure in FAILURES.items() if failure.deterministic}
    assert again == {
        "swap_space_too_large", "tp_exceeds_gpus", "tp_not_dividing_heads", "ptrace_denied",
        "hf_gated_or_auth", "hf_not_found_or_offline", "unsupported_architecture",
        "tokenizer_mismatch_or_missing_chat_template", "lora_mismatch", "rope_or_config_mismatch",
        "unknown_flag", "wrong_flag_value", "folder_not_writable",
        "quantization_unsupported", "dtype_unsupported", "attention_backend_unavailable",
        "driver_cuda_mismatch", "missing_dependency_or_import_error", "compile_failure",
    }  # fmt: skip


@for_each(FAILURES)
def test_every_class_says_what_it_is(failure):
    """One sentence without a full stop; a reason, where there is one, ends with it."""
    for each in (failure, *failure.variants):
        assert each.sentence
        assert not each.sentence.endswith(".")
        assert not each.why or each.why.endswith(".")


def test_only_deaths_follow_from_others():
    """What only tells of a death must never be taken for a cause."""
    assert {each.failure for each in RULES if each.rank is Rank.DEATH} == {
        "engine_dead",
        "ray_failure",
    }
