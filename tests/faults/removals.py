"""The piece of code that handles each row of the matrix, and what stands there when it is taken out.

`python -m tests.faults.removals [WORDS OF A FAULT]...` (make fault-removals) runs each row's tests without its piece,
and ends with 1 unless one of them fails: removing.py. A piece that is not found exactly once fails there, and in
test_matrix.py: these follow the code.
"""

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """One text, and the text in its place."""

    file: str  # below vllm_watch/
    was: str  # found there exactly once
    now: str


@dataclass(frozen=True)
class Removal:
    """The handling of one fault."""

    piece: str  # in words: what is gone
    cuts: tuple[Cut, ...]


HTTP = "sources/http.py"
CONNECTION = "sources/http_connection.py"
VLLM = "sources/vllm.py"
WORKER = "state/worker.py"
DEVICE = "sources/nvml_device.py"

TARGET = {
    "refuses connections": Removal(
        "the second look: one refused connection is a crash",
        (Cut("detectors/engine_down.py", "refused_looks: int = Field(2,", "refused_looks: int = Field(1,"),),
    ),
    "swallows packets (black hole)": Removal(
        "the connection's own share of a look's time",
        (Cut(HTTP, "connect_s = min(limits.connect_timeout_seconds, CONNECT_SHARE * seconds)", "connect_s = 1e9"),),
    ),
    "accepts connections and never answers": Removal(
        "the time-out of a look",
        (Cut(VLLM, "settings.connect_timeout_seconds, settings.timeout_seconds,", "settings.connect_timeout_seconds, 1e9,"),),
    ),
    "drips a byte a second": Removal(
        "the bound on the whole answer: only silence times out",
        (Cut(CONNECTION, 'self._end(Reply("read_timeout", cause, late_s=late_s))', 'self.begun or self._end(Reply("read_timeout", cause, late_s=late_s))'),),
    ),
    "sends 1 GB": Removal(
        "the bound on a body: 600 MiB of it are kept",
        (Cut(VLLM, "settings.timeout_seconds, settings.body_bytes_max", "settings.timeout_seconds, 600 << 20"),),
    ),
    "sends garbage": Removal(
        "the look at the encoding: what is not UTF-8 raises",
        (Cut(VLLM, "except UnicodeDecodeError as error:", "except ZeroDivisionError as error:"),),
    ),
    "truncates its answers": Removal(
        "the outcome of a broken body",
        (Cut(CONNECTION, 'return Reply("disconnected", "the connection broke off in the', 'return Reply("garbled", "the connection broke off in the'),),
    ),
    "redirects elsewhere": Removal(
        "the rule: a redirect leads anywhere",
        (Cut(HTTP, " and urlsplit(target)[:2] == urlsplit(url)[:2]", ""),),
    ),
    "changes identity between scrapes (two servers behind one address)": Removal(
        "the rule: another server is a new life of the same one",
        (Cut("signals/engine.py", "before is not None and self._is_another_server(before, sample)", "False"),),
    ),
    "breaks TLS (an untrusted certificate)": Removal(
        "the outcome of a failed handshake",
        (Cut(HTTP, 'return Reply("tls", f"the TLS handshake failed: {cause}")', "pass"),),
    ),
    "its DNS name resolves only sometimes": Removal(
        "the three looks and 15 s: one is enough",
        (
            Cut("detectors/engine_down.py", "unreachable_looks: int = Field(3,", "unreachable_looks: int = Field(1,"),
            Cut("detectors/engine_down.py", "unreachable_seconds: float = Field(15.0,", "unreachable_seconds: float = Field(0.001,"),
        ),
    ),
    "serves 10,000 new series at each scrape": Removal(
        "the end of a layout with its last user: all are kept",
        (Cut("sources/exposition.py", "Layout] = WeakValueDictionary()", "Layout] = dict()  # type: ignore"),),
    ),
}  # fmt: skip

WAITS = Removal(
    "what waits: a write that fails is forgotten",
    (
        Cut(WORKER, "self._rows = _bound({**rows, **self._rows}, ROWS_MAX)", "pass"),
        Cut(WORKER, "self._learnt = _bound({**learnt_rows, **self._learnt}, LEARNT_MAX)", "pass"),
        Cut("state/incidents.py", "for event in list(self._open.values()):", "for event in ():"),
    ),
)

HOST = {
    "clock set by an hour, forward or back": Removal(
        "the monotonic clock of an observation: there is Unix time alone",
        (Cut(VLLM, "t=t, monotonic_s=monotonic_s,", "t=t, monotonic_s=None,"),),
    ),
    "suspended for ten minutes (SIGSTOP, or the host sleeps)": Removal(
        "the second try of a time-out that came late",
        (Cut(HTTP, "in range(2 if", "in range(1 if"),),
    ),
    "CPU starved to 5 %": Removal(
        "the lateness: no time-out is ever late",
        (Cut("sources/own_trouble.py", "return late_s >= max(LATE_SECONDS, LATE_SHARE * seconds)", "return False"),),
    ),
    "memory limit reached": Removal(
        "that a look without memory is one look, and threads that are begun without waiting",
        (
            Cut("watch/target_loop.py", "except Exception:  # noqa: BLE001 - such as out of memory", "except ZeroDivisionError:  # noqa: BLE001 - such as out of memory"),
            Cut(VLLM, "except MemoryError as error:\n            return _no_memory(call,", "except ZeroDivisionError as error:\n            return _no_memory(call,"),
            Cut(VLLM, "except MemoryError as error:\n            return _no_memory(answer.call,", "except ZeroDivisionError as error:\n            return _no_memory(answer.call,"),
            Cut("support/threads.py", "import _thread\n", "import threading\n"),
            Cut("support/threads.py", "_thread.start_new_thread(work, ())", "threading.Thread(target=work, daemon=True).start()"),
        ),
    ),
    "no file descriptor left": Removal(
        "the errors of our own host: they are the engine's",
        (Cut("sources/own_trouble.py", "return _ERRNOS.get(number) if number is not None else None", "return None"),),
    ),
    "disk full": WAITS,
    "disk read-only": WAITS,
    "disk fails (EIO)": WAITS,
    "slow fsync": Removal(
        "the queue: rows are written where they are put",
        (Cut(WORKER, "_bound(rows, LEARNT_MAX if waits else ROWS_MAX)\n            self._wake_thread()", "write(self._connected())"),),
    ),
    "state or journal corrupted": Removal(
        "the check of the file as it is opened",
        (Cut("state/file.py", "        _check(connection)\n", ""),),
    ),
    "configuration half-written": Removal(
        "the refusal of an empty file",
        (Cut("cli/run.py", "empty = path.is_file() and not regular_file.read(path, FILE_BYTES_MAX).strip()", "empty = False"),),
    ),
}  # fmt: skip

NVML = {
    "a call hangs": Removal(
        "the deadline of a poll",
        (Cut("sources/nvml.py", "timeout=remaining_s", "timeout=None"),),
    ),
    "a GPU is lost": Removal(
        "the error of one GPU as its own state: it ends the poll of all, and is one like any other",
        (
            Cut("sources/nvml_session.py", "except self._nvml.NVMLError_GpuIsLost:\n                self._lose(gpu)", "finally:\n                pass"),
            Cut("sources/nvml_session.py", "except self._nvml.NVMLError_GpuIsLost:\n                lost_indices", "except ZeroDivisionError:\n                lost_indices"),
        ),
    ),
    "the driver is reloaded": Removal(
        "the new session after void handles: their error is the poll's",
        (Cut("sources/nvml.py", "self.close()  # the driver was reloaded: try once more with a new session", "raise"),),
    ),
    "the library is missing": Removal(
        "the missing library as no error",
        (Cut("sources/nvml.py", "except OSError:\n                return None", "finally:\n                pass"),),
    ),
    "absurd values": Removal(
        "the bounds of each field",
        (
            Cut(DEVICE, "if not 0 < total < COUNT_MAX:", "if memory is None:"),
            Cut(DEVICE, "percent / 100 if percent is not None and 0 <= percent <= _PERCENT_MAX else None", "None if percent is None else percent / 100"),
            Cut(DEVICE, "if celsius in TEMPERATURE_CELSIUS else None", "if celsius is not None else None"),
            Cut(DEVICE, "if bits is None or bits == _ALL_ONES:", "if bits is None:"),
            Cut(DEVICE, "value * factor if value is not None and 0 <= value <= value_max else None", "None if value is None else value * factor"),
            Cut(DEVICE, "return value if value is not None and 0 <= value <= value_max else None", "return value"),
        ),
    ),
}  # fmt: skip

PROCESS = {
    "SIGTERM": Removal(
        "the handler of the signal",
        (Cut("daemon.py", "for number in (signal.SIGTERM, signal.SIGINT):", "for number in (signal.SIGINT,):"),),
    ),
    "SIGKILL": Removal(
        "the write before the word: a hook is called before the disk knows of it",
        (Cut("restart/restart.py", "await self._ledger.write(called)", "pass"),),
    ),
    "storms of SIGHUP": Removal(
        "the signals that one waiting reload answers: each has its own",
        (Cut("daemon.py", "if self._reload_pending:", "if False:"),),
    ),
    "a reload while it starts": Removal(
        "what lets restarts begin once",
        (Cut("restart/restarts.py", "        if self._started:\n            return\n", ""),),
    ),
    "its port is taken": Removal(
        "the error's words: it is raised as it comes",
        (Cut("export/server.py", "        bound.close()\n        raise _cannot(host, port, error) from error", "        bound.close()\n        raise"),),
    ),
    "two instances with one state folder": Removal(
        "the lock on the folder",
        (Cut("state/file.py", "fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass"),),
    ),
}  # fmt: skip

STRANGER = {
    "an engine logs a prompt of 256 KB": Removal(
        "the words of a URL one by one: the expression before took the square of the text's length",
        (Cut("support/redaction.py", "text = _WORD.sub(_safe_word, text)", "text = re.sub(r\"(https?://[^ ?#]*\\?)([^ ]+)\", HIDDEN, text)"),),
    ),
    "sends 2 MB of new series at each scrape": Removal(
        "the parser beside the event loop",
        (Cut(VLLM, "LOOP_BYTES_MAX, LOOP_LINES_MAX = 128 << 10, 4000", "LOOP_BYTES_MAX = LOOP_LINES_MAX = 1 << 40"),),
    ),
    "logs JSON that nests endlessly": Removal(
        "the error of one line",
        (Cut("support/json_text.py", "    except RecursionError:\n", "    except ZeroDivisionError:\n"),),
    ),
    "uses control characters in names": Removal(
        "the escapes",
        (Cut("support/visible.py", "return text.translate(_IN_LINES)", "return text"),),
    ),
    "250 half-sent requests with large heads": Removal(
        "the bound of a head's fields: aiohttp's own is 128 of 8 kB",
        (Cut("export/server.py", "max_headers=HEAD_FIELDS_MAX", "max_headers=128"),),
    ),
    "a 2 MB recording or log that unpacks to gigabytes": Removal(
        "the bound of a recording's targets",
        (Cut("sources/recording.py", "TARGETS_MAX = 1000", "TARGETS_MAX = 1 << 40"),),
    ),
    "numbers of thousands of digits, and infinities": Removal(
        "the bound of a recording's numbers",
        (Cut("sources/trace_line.py", "and not abs(value) < _NUMBER_MAX:", "and False:"),),
    ),
    "a client that is not a probe asks the gate": Removal(
        "the address that a probe comes from",
        (Cut("export/gate.py", "    return request.remote in {address[0] for *_, address in found}", "    return True"),),
    ),
    "a bearer token instead of a password": Removal(
        "that there are tokens",
        (Cut("export/passwords.py", " and guard is not None and guard.auth.exists", " and guard is not None"),),
    ),
    "a password is guessed from the operator's address": Removal(
        "the check before the refusal",
        (Cut("export/passwords.py", "                await asyncio.sleep(PAUSE_SECONDS)", "                raise TooManyError"),),
    ),
}  # fmt: skip

REMOVALS = TARGET | HOST | NVML | PROCESS | STRANGER


if __name__ == "__main__":
    from tests.faults.removing import main

    raise SystemExit(main(sys.argv[1:]))
