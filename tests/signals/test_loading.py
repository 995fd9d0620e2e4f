"""What a server's starts take is learnt from starts, and only from starts."""

import pytest

from tests.detectors.looks import T, gpu, seen, silent
from vllm_watch.samples.gpu import ProcessSample
from vllm_watch.samples.observation import ProcessState
from vllm_watch.signals.loading import Loading
from vllm_watch.watch.watch import Watch

OLD, NEW = T - 86400, T + 60.0


def told(*looks):
    loading = Loading()
    for each in looks:
        loading.look(each.t - T, each)
    return loading


def up(second, start=OLD):
    return seen(second, process_start_time=start)


def refused(*seconds, **fields):
    return [silent(second, **fields) for second in seconds]


def process(start=NEW, *, alive=True, pid=9):
    return ProcessState(pid=pid, start_time=start, alive=alive)


LEARNT = {
    "another process, refused from its start on": ([up(0), *refused(60, 120), up(160, NEW)], [100]),
    "it was away for an hour before": ([up(0), *refused(5, 3600), up(3660, T + 3600)], [60]),
    "no start is told: the silence, at most": ([up(0, None), *refused(60, 120), up(160, None)], [100]),
    "... and not where it was long": ([up(0, None), *refused(60, 7200), up(7300, None)], []),
    "the same process: the way there was broken": ([up(0), *refused(60, 120), up(160)], []),
    "it was silent and never refused": ([up(0), *refused(60, 120, outcome="read_timeout"), up(160, NEW)], []),
    "never seen before": ([*refused(0, 60), up(100, T - 200)], [300]),
}  # fmt: skip


@pytest.mark.parametrize(("looks", "starts"), LEARNT.values(), ids=LEARNT)
def test_what_is_learnt(looks, starts):
    """From the start of the process to its first answer."""
    assert list(told(*looks).starts_s) == starts


def test_the_process_that_answered_is_known_though_its_last_answer_did_not_name_it():
    """It is no start of another one that lives on behind the closed port."""
    loading = told(up(0), up(5, None), *refused(10, process=process(OLD)))
    assert loading.is_ending(process(OLD))
    assert loading.attempts == 0


def state(*looks):
    watch = Watch("x")
    for each in looks:
        watch.observe(each)
    return watch.signals.state


def new_on_gpu(**fields):
    return (gpu(processes=(ProcessSample(pid=7, name="VLLM::EngineCor", **fields),)),)


STATES = {
    "never answered": (refused(0, 60), "starting"),
    "never answered, and its process is gone": (refused(0, 60, process=process(alive=False)), "down"),
    "gone, and nothing is known of a process": ([up(0), *refused(60, 65)], "down"),
    "gone, and another process loads": ([up(0), *refused(65, 70, process=process())], "starting"),
    "gone, and its own process ends": ([up(0), *refused(60, 65, process=process(OLD))], "down"),
    "gone, and a new vLLM is on the GPU": ([up(0), *refused(65, 70, gpus=new_on_gpu(create_time=NEW))], "starting"),
    "gone, and its old engine core is on the GPU": (
        [up(0), *refused(65, 70, gpus=new_on_gpu(create_time=T - 100.0))], "down",
    ),
    "it loads for longer than ever": (
        [up(0), *refused(65, 100, process=process()), up(120, NEW),
         *refused(200, 500, process=process(T + 200.0, pid=10))], "down",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("looks", "expected"), STATES.values(), ids=STATES)
def test_the_state_that_is_shown(looks, expected):
    """Starting is said of what is known to load, for as long as its starts take."""
    assert state(*looks) == expected
