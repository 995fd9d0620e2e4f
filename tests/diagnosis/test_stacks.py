"""Where a process stands, by texts in the form that py-spy 0.4.3 prints of Python 3.11."""

import pytest

from vllm_watch.diagnosis.stacks import Frame, Stand, in_a_sentence, threads, waited_for, where

HEAD = """Process 11397: /opt/venv/bin/python3 /opt/venv/bin/vllm serve m
Python v3.11.7 (/usr/local/bin/python3.11)

Thread 11397 (idle): "MainThread"
"""
IN_SHARED_MEMORY = """\
    MessageQueue.acquire_read (vllm/distributed/device_communicators/shm_broadcast.py:861)
    _GeneratorContextManager.__enter__ (contextlib.py:137)
    MessageQueue.dequeue (vllm/distributed/device_communicators/shm_broadcast.py:974)
"""
CORE = """\
    EngineCoreProc.run_busy_loop (vllm/v1/engine/core.py:1555)
    <module> (<string>:1)
"""
OTHERS = """\
Thread 11400 (active): "Thread-1 (_monitor)"
    Scheduler.schedule (vllm/v1/core/sched/scheduler.py:4)
    Thread._bootstrap (threading.py:1002)
"""
PLACES = {
    "waits in shared memory broadcast for a worker's answer": IN_SHARED_MEMORY + """\
    MultiprocExecutor.collective_rpc.<locals>.get_response (vllm/v1/executor/multiproc_executor.py:440)
    MultiprocExecutor.collective_rpc (vllm/v1/executor/multiproc_executor.py:451)
""" + CORE,
    "waits in shared memory broadcast for the engine core's next step": IN_SHARED_MEMORY + """\
    WorkerProc.worker_busy_loop (vllm/v1/executor/multiproc_executor.py:1041)
""",
    "waits in shared memory broadcast until a worker takes the message": """\
    SpinCondition.wait (vllm/distributed/device_communicators/shm_broadcast.py:201)
    MessageQueue.acquire_write (vllm/distributed/device_communicators/shm_broadcast.py:744)
""" + CORE,
    "waits in a collective: all_reduce (torch/distributed/distributed_c10d.py:2810)": """\
    all_reduce (torch/distributed/distributed_c10d.py:2810)
    wrapper (torch/distributed/c10d_logger.py:81)
    GroupCoordinator.all_reduce (vllm/distributed/parallel_state.py:500)
    WorkerProc.worker_busy_loop (vllm/v1/executor/multiproc_executor.py:1041)
""",
    "waits in a collective: PyNcclCommunicator.all_reduce (vllm/distributed/device_communicators/pynccl.py:170)": """\
    PyNcclCommunicator.all_reduce (vllm/distributed/device_communicators/pynccl.py:170)
""",
    "waits for the GPU": """\
    AsyncGPUModelRunnerOutput.get_output (vllm/v1/worker/gpu_model_runner.py:240)
    WorkerProc.worker_busy_loop (vllm/v1/executor/multiproc_executor.py:1041)
""",
    "compiles (torch.compile)": """\
    AotAutograd.__call__ (torch/_dynamo/backends/common.py:123)
    compile_fx (torch/_inductor/compile_fx.py:2782)
    ConvertFrame.__call__ (torch/_dynamo/convert_frame.py:2319)
    _TorchDynamoContext.__call__.<locals>.compile_wrapper (torch/_dynamo/eval_frame.py:1166)
    VocabParallelEmbedding.forward (vllm/model_executor/layers/vocab_parallel_embedding.py:542)
""",
    "in VocabParallelEmbedding.forward (vllm/model_executor/layers/vocab_parallel_embedding.py:542)": """\
    _TorchDynamoContext.__call__.<locals>.compile_wrapper (torch/_dynamo/eval_frame.py:1166)
    VocabParallelEmbedding.forward (vllm/model_executor/layers/vocab_parallel_embedding.py:542)
""",
    "in the scheduler": """\
    Scheduler.schedule (vllm/v1/core/sched/scheduler.py:410)
    EngineCore.step (vllm/v1/engine/core.py:512)
""" + CORE,
    "in the tokenizer": """\
    PreTrainedTokenizerFast._batch_encode_plus (transformers/tokenization_utils_fast.py:539)
    BaseEventLoop._run_once (asyncio/base_events.py:1919)
    run (asyncio/runners.py:190)
""",
    "idle: waits for requests": """\
    Condition.wait (threading.py:327)
    Queue.get (queue.py:171)
    EngineCoreProc._process_input_queue (vllm/v1/engine/core.py:1588)
""" + CORE,
    "idle: its event loop waits": """\
    EpollSelector.select (selectors.py:468)
    BaseEventLoop._run_once (asyncio/base_events.py:1884)
    Runner.run (asyncio/runners.py:118)
    run_server (vllm/entrypoints/openai/api_server.py:900)
""",
    "in parse (vllm/tool_parsers/hermes.py:80)": """\
    match (re.py:166)
    parse (vllm/tool_parsers/hermes.py:80)
    BaseEventLoop._run_once (asyncio/base_events.py:1919)
""",
    "in clock_nanosleep (libc.so.6)": "    clock_nanosleep (libc.so.6)\n",
    "no stack could be read": "",
}  # fmt: skip


@pytest.mark.parametrize(("words", "frames"), PLACES.items(), ids=PLACES)
def test_where_a_process_stands(words, frames):
    """By the main thread's innermost known place, whatever other threads do."""
    assert where(HEAD + frames + OTHERS) == words


def test_a_process_that_is_stopped():
    """It still has a stack."""
    assert where(HEAD + PLACES["in the scheduler"], "T") == "stopped (state T), in the scheduler"
    assert where(HEAD + PLACES["in the scheduler"], "S") == "in the scheduler"


@pytest.mark.parametrize(
    "text",
    ["", "Error: Permission Denied: Try running again with elevated permissions by going 'sudo env'",
     "Can't get native stack traces with the --nonblocking option.", "Thread 1 (idle): ", "\x00" * 99],
)  # fmt: skip
def test_what_is_no_stack_says_so(text):
    """An error of py-spy is no place."""
    assert where(text) == "no stack could be read"


def test_threads_have_their_names_and_frames():
    """Also one without a name, as older versions print it."""
    first, second = threads(
        'Thread 0x7F2A (active+gil)\n    f (a b.py:1)\nThread 2 (idle): "x"\n    g (c.so)\n'
    )
    assert (first.name, first.frames) == ("", (Frame("f", "a b.py", "1"),))
    assert (second.name, second.frames) == ("x", (Frame("g", "c.so", ""),))


COLLECTIVE, NEXT = "waits in a collective: all_reduce (x.py:1)", "waits in shared memory broadcast for the engine core's next step"  # fmt: skip


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([COLLECTIVE, "stopped (state T), in f (x.py:1)"], 1),
        (["waits for the GPU", "stopped (state T), in f (x.py:1)"], 1),
        (["in f (x.py:1)", COLLECTIVE, COLLECTIVE], 0),
        ([COLLECTIVE, COLLECTIVE], None),
        ([NEXT, NEXT], None),
        ([COLLECTIVE, NEXT, NEXT], None),
        ([COLLECTIVE, "no stack could be read"], None),
        (["stopped (state T), in f (x.py:1)"], None),
    ],
)
def test_the_worker_that_the_others_wait_for(words, named):
    """Only where there is exactly one; the core is none."""
    stands = [Stand("core", "stopped (state T)", worker=False)]
    stands += [Stand(f"worker {n}", each, worker=True) for n, each in enumerate(words)]
    said = waited_for(stands)
    assert said == (
        "" if named is None else f"The other workers wait for worker {named}: {words[named]}."
    )


CORES = [
    Stand("API server (PID 1)", "idle: its event loop waits", worker=False),
    *(Stand(f"VLLM::EngineCore_DP{n} (PID {n + 2})", f"in the scheduler {n}", worker=False) for n in (0, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("stands", "sentence"), [
    (CORES, "API server (PID 1): idle: its event loop waits; VLLM::EngineCore_DP1 (PID 3): in the scheduler 1."),
    (CORES[:2], "API server (PID 1): idle: its event loop waits; VLLM::EngineCore_DP0 (PID 2): in the scheduler 0."),
    (CORES[:1], "API server (PID 1): idle: its event loop waits."),
    ([], ""),
])  # fmt: skip
def test_nobody_is_waited_for(stands, sentence):
    """Then the server and the engine's own core are told."""
    assert in_a_sentence(stands, "1") == sentence


def test_who_is_waited_for_is_the_sentence():
    """It is what a person has to know."""
    workers = [
        Stand("VLLM::Worker_TP0 (PID 8)", "waits in a collective: x", worker=True),
        Stand("VLLM::Worker_TP1 (PID 9)", "stopped (state T), in y", worker=True),
    ]
    said = "The other workers wait for VLLM::Worker_TP1 (PID 9): stopped (state T), in y."
    assert in_a_sentence([*CORES, *workers], "1") == said
