"""State folders that were cut, flipped, emptied or lost a file: none loses history in silence."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.state.test_journal import ATTEMPT
from vllm_watch.errors import JournalError
from vllm_watch.state import file, seal
from vllm_watch.state.journal import Journal
from vllm_watch.state.worker import Worker

ROOT = Path(__file__).parents[2]
SEED, FOLDERS = int(os.environ.get("VLLM_WATCH_TEST_SEED", "18")), 200

WRITER = """
import asyncio, sys, time
from dataclasses import replace
from pathlib import Path
from tests.state.test_journal import ATTEMPT, ENTRY
from vllm_watch.state.journal import Journal
from vllm_watch.state.worker import Worker

async def run(folder, names):
    worker = Worker(folder, lambda *_: None)
    journal = Journal(worker)
    await journal.probe()
    for name in names:
        await journal.write(replace(ATTEMPT, id=name, state="did_not_help", called_t=ATTEMPT.began_t))
        await journal.note(replace(ENTRY, reason=f"about {name} " * 40))
        await journal.set(f"silence {name}", {"until_t": 2e9, "actor": "ana", "reason": "x"})
    return worker

async def main(folder):
    worker = await run(folder, [f"first{n}" for n in range(8)])
    await worker.close()  # these are in the file itself, the next ones beside it
    await run(folder, [f"second{n}" for n in range(8)])
    print("written", flush=True)
    time.sleep(600)

asyncio.run(main(Path(sys.argv[1])))
"""


def flip(data, at):
    return data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


DAMAGES = {
    "removed": None,
    "emptied": lambda data, at: b"",
    "cut": lambda data, at: data[:at],
    "flipped": flip,
    "zeroed": lambda data, at: data[:at] + bytes(min(512, len(data) - at)) + data[at + 512 :],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of a watcher that was killed."""
    made = tmp_path_factory.mktemp("state")
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(made)], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return made


def found(folder):
    """(all that the journal knows, what it says of a loss): as the next watcher finds it."""

    async def read():
        worker = Worker(folder, lambda *_: None)
        journal = Journal(worker)
        try:
            await journal.probe()
            held = {k: v for k, v in (await journal.standing()).items() if k.startswith("silence")}
            known = await journal.attempts(), await journal.entries(), held
            grouped = await journal.attempts("chat")
            return (*known, grouped), await journal.loss() or journal.trouble
        except JournalError as error:
            return None, error.cause
        finally:
            await worker.close()

    return asyncio.run(read())


def cases():
    chance = random.Random(SEED)
    names = (file.NAME, f"{file.NAME}-wal", seal.NAME, f"{file.NAME}-shm")
    once = [(name, how) for name in names for how in ("removed", "emptied")]
    often = [(name, how) for name in names[:3] for how in ("cut", "flipped", "zeroed")]
    often += [(file.NAME, "flipped"), (f"{file.NAME}-wal", "cut"), (f"{file.NAME}-wal", "flipped")]
    return [(*each, 0.0) for each in once] + [
        (*often[n % len(often)], chance.random()) for n in range(FOLDERS - len(once))
    ]


def damaged(folder, place, name, how, share):
    """A copy of the folder, of which a file was damaged in this way, so far into it."""
    path, damage = shutil.copytree(folder, place) / name, DAMAGES[how]
    if damage is None:
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(damage(data, int(share * len(data))))
    return place


def test_no_damage_loses_history_in_silence(folder, tmp_path):
    """What is found is all that was written, or it is said that it is not; and said again until it is accepted."""
    whole, lost = found(shutil.copytree(folder, tmp_path / "whole"))
    assert lost is None
    assert [len(each) for each in whole] == [16, 16, 16, 16]
    silent, said = [], 0
    for number, (name, how, share) in enumerate(cases()):
        place = damaged(folder, tmp_path / str(number), name, how, share)
        known, lost = found(place)
        if lost is None and known != whole:
            silent.append((name, how, share))
        if lost is not None:
            said += 1
            assert found(place)[1] is not None, (name, how, share)
        shutil.rmtree(place)
    assert silent == []
    assert said > FOLDERS / 4


async def test_what_is_deleted_under_a_running_watcher(tmp_path):
    """The next write notices; what stood in a -wal that was removed is saved."""
    for name, lost in ((f"{file.NAME}-wal", False), (file.NAME, True), (seal.NAME, False)):
        folder = tmp_path / name
        worker = Worker(folder, lambda *_: None)
        journal = Journal(worker)
        await journal.write(ATTEMPT)
        (folder / name).unlink()
        await journal.probe()
        assert (await journal.loss() is not None) == lost, name
        assert (await journal.attempts() == ()) == lost
        await worker.close()
        known, said = await asyncio.to_thread(found, folder)
        assert (said is not None) == lost
        assert (known[0] == ()) == lost


async def test_a_loss_is_accepted_by_a_person(tmp_path):
    """From then on nothing is said of it, and who accepted it stands in the journal."""
    worker = Worker(tmp_path, lambda *_: None)
    journal = Journal(worker)
    await journal.write(ATTEMPT)
    await worker.close()
    (tmp_path / file.NAME).write_bytes(b"")
    assert "emptied" in (await asyncio.to_thread(found, tmp_path))[1]
    command = [sys.executable, "-m", "vllm_watch", "journal", "--state-dir", tmp_path]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (
        "a part of the history is lost: the state file was removed, emptied or replaced"
        in told.stderr
    )
    done = subprocess.run(
        [*command, "accept-loss", "--reason", "a new disk"], cwd=ROOT, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stdout.startswith("accepted: ")
    known, said = await asyncio.to_thread(found, tmp_path)
    assert said is None
    assert [(each.action, each.reason) for each in known[1]] == [("accept_loss", "a new disk")]
