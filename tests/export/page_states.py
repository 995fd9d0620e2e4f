"""The states in which the page is looked at, each as a board that is in it."""

import time
from dataclasses import replace

from tests.export.demo_board import STORIES as DEMO
from tests.export.demo_board import event, fill, reading, signals, step
from tests.told import made
from vllm_watch.board.board import Board
from vllm_watch.board.health import NotifierHealth, StoreHealth
from vllm_watch.board.restarts import (
    AttemptShown,
    Gate,
    Paused,
    RestartCounts,
    RestartPlan,
    RestartState,
    Waiting,
)
from vllm_watch.samples.target import WATCHER, Target
from vllm_watch.signals.holders.judge import HolderJudge
from vllm_watch.signals.records import Quantiles
from vllm_watch.story.kinds import STORIES

TROUBLES = {
    "collapsed": ("throughput_collapse", "kv_leak", "page"),
    "stalled": ("engine_stalled", "hang", "page"),
    "down": ("engine_down", "crash", "page"),
    "overloaded": ("overload", "demand", "ticket"),
    "unreachable": ("engine_down", "unreachable", "page"),
}
BACK_SECONDS = 300
INTERVAL_SECONDS = 60.0
"""Long, so that no target is stale by the time a busy machine has drawn it."""


def well(count: int = 3) -> Board:
    """Some targets, none of which needs anybody."""
    board = Board()
    now = time.time()
    for n in range(count):
        board.add_target(
            Target(name=f"chat-{n}", url="http://h:8000", group="chat"), INTERVAL_SECONDS
        )
    for t in range(int(now) - BACK_SECONDS, int(now), 5):
        for n in range(count):
            told = signals(f"chat-{n}", "serving", "38 running, 0 waiting", float(t), n)
            board.publish(replace(told, detectors={}, advice=()))
            board.call("metrics", f"chat-{n}", "ok", 0.004, float(t))
            board.call("health", f"chat-{n}", "ok", 0.001, float(t))
    whole = reading(now)
    board.publish_gpus(replace(whole, gpus=(whole.gpus or ())[:1]))
    return board


def ill(state: str) -> Board:
    """One of them is in a bad state, with its incident."""
    board = well()
    now = time.time()
    kind, cause, severity = TROUBLES[state]
    board.publish(
        signals("chat-1", "down" if state == "unreachable" else state, f"It is {state}.", now)
    )
    story = {
        "engine": None if kind == "engine_down" else "0", "kind": kind, "cause": cause, "severity": severity,
        "summary": f"{state.capitalize()} for 90 s.", "restart_advised": state == "collapsed",
        "for": [("steps_per_second", 0.0, "steps_per_second", 31.0, "No step has ended for 90 s.")],
        "against": [("health", "HTTP 200", "", None, "/health still answers.")],
    }  # fmt: skip
    board.tell(made(event("chat-1", story, now - 90)))
    return board


def slow_answers() -> Board:
    """Numbers as large as they get: minutes to the first token, many tokens."""
    board = ill("overloaded")
    (engine,) = board.targets["chat-1"].signals.engines.values()
    large = replace(
        engine, current_generation_tokens_per_second=1_234_567.0, requests_waiting=123_456.0,
        time_to_first_token_seconds=Quantiles(95.0, 101.0, 5000.0), model_name="organisation/a-model-with-a-rather-long-name-72b-instruct-awq",
    )  # fmt: skip
    board.publish(replace(board.targets["chat-1"].signals, t=time.time(), engines={"0": large}))
    return board


def warming_up() -> Board:
    """One of them loads its weights."""
    board = well()
    board.add_target(
        Target(name="deepseek-r1", url="http://h:8000", group="chat"), INTERVAL_SECONDS
    )
    text = "connection refused: nothing listens on its port; VLLM::EngineCore has been loading for 360 s; its longest start so far took 540 s"
    board.publish(signals("deepseek-r1", "starting", text, time.time()))
    return board


def recovering() -> Board:
    """What was wrong is over, and not yet closed."""
    board = ill("stalled")
    now = time.time()
    (one,) = board.targets["chat-1"].incidents.open.values()
    over = {"event": "updated", "t": now - 20, "phase": "recovering", "began": now - 90, "ended": now - 20, "closes": now + 40, "requests_lost": 24}  # fmt: skip
    story = {"engine": "0", "kind": one.kind, "cause": one.cause, "severity": one.severity, "summary": one.summary}  # fmt: skip
    board.tell(made(event("chat-1", story, one.opened_t) | over, opened_t=one.opened_t))
    board.publish(signals("chat-1", "serving", "38 running, 0 waiting", now))
    return board


def past() -> Board:
    """One that is over."""
    board = ill("stalled")
    now = time.time()
    (one,) = board.targets["chat-1"].incidents.open.values()
    story = {"engine": "0", "kind": one.kind, "cause": one.cause, "severity": one.severity, "summary": one.summary}  # fmt: skip
    end = {
        "event": "resolved",
        "t": now,
        "resolution": "superseded",
        "ended": now - 5,
        "requests_lost": 1421,
    }
    board.tell(made(event("chat-1", story, one.opened_t) | end, opened_t=one.opened_t))
    board.publish(signals("chat-1", "serving", "38 running, 0 waiting", now))
    return board


def stale_vram() -> Board:
    """GPUs of which some memory is held by what is dead, and one that is lost."""
    board = well()
    now = reading(time.time())
    judge = HolderJudge()
    for second in (-60.0, 0.0):
        judged = judge.look(now.t + second, now.t + second, now.gpus or ())
    board.publish_gpus(now, judged)
    story = {"engine": "0", "kind": "stale_vram", "cause": "zombie_context", "severity": "ticket", "summary": "A process that has ended holds 9.3 GiB of GPU 1."}  # fmt: skip
    board.tell(made(event("chat-0", story, now.t - 600)))
    return board


def awaiting_approval() -> Board:
    """A restart waits for a person, another for its gates, and some have been."""
    board = ill("collapsed")
    now = time.time()
    (incident,) = board.targets["chat-1"].incidents.open
    past = AttemptShown(
        id="1", state="helped", trigger="manual", reason="slow", actor="anna", hook="h", text="it serves again",
        began_timestamp_seconds=now - 7300, called_timestamp_seconds=now - 7290, ended_timestamp_seconds=now - 7200, payoff_ratio=0.42,
    )  # fmt: skip
    board.restarts = RestartState(people=True)
    wish = Waiting(trigger="incident", reason="", asked_timestamp_seconds=now - 60)
    board.show_restart("chat-1", RestartPlan(
        mode="approve", hook="h", waiting=(replace(wish, incident_id=incident, verdict="approve"),), last=past, past=(past,),
        budget_remaining=1, payoff_ratio=0.42,
    ), RestartCounts())  # fmt: skip
    observed = replace(past, id="3", state="dry_run", trigger="incident", incident_id=incident, ended_timestamp_seconds=now - 10_830, payoff_ratio=None)  # fmt: skip
    board.show_restart("chat-0", RestartPlan(mode="observe", hook="h", past=(observed,)), RestartCounts())  # fmt: skip
    gates = (Gate(gate="window", text="outside the windows for restarts"), Gate(gate="cooldown", text="the last one was 2 h ago", until_timestamp_seconds=now + 600))  # fmt: skip
    board.show_restart("chat-2", RestartPlan(
        mode="auto", hook="h", waiting=(replace(wish, verdict="wait", trigger="schedule", text=gates[0].text, gates=gates),),
        past=(replace(past, id="2", state="did_not_help", payoff_ratio=None),), breaker="the last one did not help", budget_remaining=None,
    ), RestartCounts())  # fmt: skip
    return board


def watcher_ill() -> Board:
    """It cannot write, and most targets fell silent at once: it suspects itself."""
    board = well()
    board.store = StoreHealth("/var/lib/vllm-watch")
    board.store.count("full", "No space left on device", time.time())
    board.restarts = RestartState(journal_trouble="the disk is full", people=False)
    board.notifiers = {
        "oncall": NotifierHealth("webhook"),
        "a-team-with-a-long-name": NotifierHealth("apprise"),
    }
    board.notifiers["oncall"].count("sent", 1, 0, None, time.time())
    board.notifiers["a-team-with-a-long-name"].count(
        "failed", 3, 2, "HTTP status 503 Service Unavailable", time.time()
    )
    story = {"engine": None, "kind": "engine_down", "cause": "unreachable", "severity": "page", "summary": "3 of 3 targets fell silent within 10 s: most likely the network of this watcher."}  # fmt: skip
    board.tell(made(event(WATCHER, story, time.time() - 30)))
    return board


def idle() -> Board:
    """Nothing is asked of them."""
    board = well()
    for n in range(3):
        board.publish(replace(signals(f"chat-{n}", "idle", "No request for 4 min.", time.time(), n), detectors={}, advice=()))  # fmt: skip
    return board


def fresh() -> Board:
    """The watcher has just started: nothing was scraped yet, or once."""
    board = Board()
    for n in range(3):
        board.add_target(
            Target(name=f"chat-{n}", url="http://h:8000", group="chat"), INTERVAL_SECONDS
        )
    board.publish(signals("chat-0", "serving", "38 running, 0 waiting", time.time()))
    return board


def refused() -> Board:
    """A restart is advised, and several gates refuse it."""
    board = ill("collapsed")
    now = time.time()
    (incident,) = board.targets["chat-1"].incidents.open
    gates = (
        Gate(gate="window", text="outside the windows for restarts (Mon–Fri 02:00–05:00 Europe/Berlin)", until_timestamp_seconds=now + 7200),
        Gate(gate="peers", text="only 1 of 3 engines of its group serves"),
        Gate(gate="budget", text="1 of 1 restarts in the last hour are spent", until_timestamp_seconds=now + 600),
    )  # fmt: skip
    asked = Waiting(trigger="incident", reason="", incident_id=incident, verdict="wait", text=gates[0].text, gates=gates, asked_timestamp_seconds=now - 60)  # fmt: skip
    board.restarts = RestartState(people=True)
    board.show_restart("chat-1", RestartPlan(mode="auto", hook="h", waiting=(asked,), budget_remaining=0), RestartCounts())  # fmt: skip
    return board


def restarted(state: str, text: str) -> Board:
    """A restart is under way, or has ended without effect."""
    board = ill("collapsed")
    now = time.time()
    (incident,) = board.targets["chat-1"].incidents.open
    attempt = AttemptShown(
        id="9", state=state, trigger="incident", reason="", actor="vllm-watch", hook="h", text=text, incident_id=incident,
        began_timestamp_seconds=now - 50, called_timestamp_seconds=now - 45, ended_timestamp_seconds=None if state == "verifying" else now - 5,
    )  # fmt: skip
    plan = RestartPlan(mode="auto", hook="h", budget_remaining=0)
    if attempt.ended_timestamp_seconds is None:
        plan = replace(plan, under_way=attempt, draining=True)
    else:
        plan = replace(plan, last=attempt, past=(attempt,), breaker="the last one did not help")
    board.restarts = RestartState(people=True)
    board.show_restart("chat-1", plan, RestartCounts())
    return board


def paused() -> Board:
    """Restarts are paused for all of them."""
    board = ill("collapsed")
    pause = Paused(actor="anna", reason="we move the rack, OPS-4711", until_timestamp_seconds=time.time() + 3000)  # fmt: skip
    board.restarts = RestartState(people=True, paused=pause)
    for name in board.targets:
        board.show_restart(name, RestartPlan(mode="auto", hook="h", paused=pause, budget_remaining=1), RestartCounts())  # fmt: skip
    return board


def recurring() -> Board:
    """It was stalled before, three times, and lost requests."""
    board = ill("stalled")
    now = time.time()
    for ago in (7000, 4000, 1500):
        begun = event("chat-1", {"engine": "0", "kind": "engine_stalled", "cause": "hang", "severity": "page", "summary": "No step for 60 s."}, now - ago)  # fmt: skip
        end = {"event": "resolved", "t": now - ago + 120, "resolution": "superseded", "ended": now - ago + 100, "requests_lost": 1421}  # fmt: skip
        board.tell(made(begun, begun | end))
    return board


def stale() -> Board:
    """Nothing has come for two minutes, while the watcher answers."""
    board = Board()
    now = time.time()
    for n in range(3):
        board.add_target(Target(name=f"chat-{n}", url="http://h:8000", group="chat"), 5.0)
        board.publish(signals(f"chat-{n}", "serving", "38 running, 0 waiting", now - 120, n))
    return board


def storm() -> Board:
    """Many crash at once."""
    board = well(30)
    down = {"engine": None, "kind": "engine_down", "cause": "crash", "severity": "page", "summary": "its port refuses connections"}  # fmt: skip
    for n in range(25):
        board.tell(made(event(f"chat-{n}", down, time.time() - 40)))
    return board


def each_cause() -> Board:
    """Each kind and cause, in each severity in turn."""
    told = [(kind, cause) for kind, story in STORIES.items() for cause in story.causes or ("unknown",)]  # fmt: skip
    board = well(len(told))
    for n, (kind, cause) in enumerate(told):
        severities = STORIES[kind].severities
        about = {"engine": "0", "kind": kind, "cause": cause, "severity": severities[n % len(severities)], "summary": "No scheduler step for 30 s with 4 requests running, 17 waiting; no earlier pause known"}  # fmt: skip
        board.tell(made(event(f"chat-{n}", about, time.time() - n)))
    return board


def gpu_fault() -> Board:
    """A GPU is lost, and an engine on the host is down."""
    board = stale_vram()
    now = time.time()
    fault = {"engine": None, "kind": "gpu_fault", "cause": "gpu_lost", "severity": "page", "summary": "GPU 3 (GPU-7f3a9c13-4b1e-9d0c-52aa-8c0de1f0a9b3): the driver has lost it (Xid 79)"}  # fmt: skip
    board.tell(made(event(board.host.target.name, fault, now - 300)))
    down = {"engine": None, "kind": "engine_down", "cause": "engine_dead", "severity": "page", "summary": "the API server answers, but its engine core is dead: /health failed 9 times in a row"}  # fmt: skip
    board.publish(signals("chat-1", "down", "Its engine core is dead.", now))
    board.tell(made(event("chat-1", down, now - 290)))
    return board


def long_names() -> Board:
    """Names and texts as long as they get, without a space to break at."""
    name = (
        "inference-cluster-eu-west-1-node-0123456789-meta-llama-3-3-70b-instruct-awq-int4-replica-0"
    )
    board = well()
    now = time.time()
    board.add_target(Target(name=name, url=f"http://{name}.svc.cluster.local:8000", group=f"group-{name}", node=name), INTERVAL_SECONDS)  # fmt: skip
    board.publish(signals(name, "stalled", f"No step for 94 s ({name}).", now))
    story = {"engine": "0", "kind": "engine_stalled", "cause": "hang", "severity": "page", "summary": f"Engine hung: no scheduler step for 94 s; {name * 2}", "restart_advised": True}  # fmt: skip
    board.tell(made(event(name, story, now - 94)))
    return board


def everything() -> Board:
    """Every story of the demo at once."""
    board = Board()
    fill(board, extra=0, now=time.time())
    return board


def many(count: int = 500) -> Board:
    """A fleet in which some are ill."""
    board = Board()
    fill(board, extra=count - len(DEMO), now=time.time(), back_seconds=10)
    return board


def renew(board: Board) -> None:
    """One more look at everything."""
    stories = {
        name: (entry.signals.state, entry.signals.state_text)
        for name, entry in board.targets.items()
        if entry.signals
    }
    step(board, stories, time.time())


STATES = {
    "nothing": Board,
    "healthy": well,
    "idle": idle,
    "fresh": fresh,
    "refused": refused,
    "restart under way": lambda: restarted("verifying", "the new process loads its weights"),
    "restart did not help": lambda: restarted("did_not_help", "the new process hangs again"),
    "paused": paused,
    "recurring": recurring,
    "stale": stale,
    "storm": storm,
    "gpu fault": gpu_fault,
    "long names": long_names,
    "one": lambda: well(1),
    **{state: lambda state=state: ill(state) for state in TROUBLES},
    "slow answers": slow_answers,
    "warming up": warming_up,
    "recovering": recovering,
    "past": past,
    "stale vram": stale_vram,
    "awaiting approval": awaiting_approval,
    "the watcher is ill": watcher_ill,
    "everything": everything,
    "500 targets": many,
}
