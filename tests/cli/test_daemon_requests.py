"""restart, approve, silence, pause and resume, from the command line to a real daemon's guard and back."""

import asyncio
import json
import sys

from tests.restart.station import TOKEN, station


async def run(one, *arguments):
    extra = ["--url", one.url, "--token-file", str(one.token_file)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vllm_watch", *arguments, *extra,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), err.decode()


async def test_a_restart_by_hand(tmp_path):
    async with station(tmp_path) as one:
        status, out, _ = await run(one, "restart", "a", "--reason", "driver update")
        assert status == 0
        assert out.startswith("attempt ")
        assert out.endswith("has begun: every check passed\n")
        status, out, _ = await run(one, "restart", "a", "--json")
        said = json.loads(out)
        assert (status, said["verdict"], said["gate"]) == (1, "refuse", "under_way")
        reasons = [entry.reason for entry in await one.entries("restart")]
        assert reasons == ["driver update", "asked for by hand"]


async def test_a_refusal_says_all_that_is_against_it(tmp_path):
    frozen = {"deny_windows": ["00:00-24:00"], "budget_per_day": 0}
    async with station(tmp_path, **frozen) as one:
        status, out, err = await run(one, "restart", "a")
        lines = err.splitlines()
        assert (status, out) == (1, "")
        assert lines[0].startswith("refused: no restarts in this window, until ")
        assert lines[1].startswith("  freeze: ")
        assert lines[2] == "  budget: 0 of 0 restarts in the last day are spent"
        assert lines[3] == "  → Wait until then, or add --override-freeze REASON"
        status, _, err = await run(one, "restart", "a", "--override-freeze", "it is dead")
        assert err.startswith("refused: 0 of 0 restarts")


async def test_an_incident_is_silenced_and_approved(tmp_path):
    """A silence does not bind the person who says yes."""
    async with station(tmp_path, peers="none") as one:
        incident = one.incident()
        await one.decided()
        status, out, _ = await run(one, "silence", incident, "--minutes", "5", "--reason", "mine")
        assert (status, out.startswith(f"no restart for {incident} until ")) == (0, True)
        status, out, _ = await run(one, "approve", incident)
        assert (status, out.startswith("attempt ")) == (0, True)


async def test_pause_and_resume(tmp_path):
    async with station(tmp_path) as one:
        assert (await run(one, "pause", "--reason", "a move"))[:2] == (
            0, "paused by anna until resumed: a move\n",
        )  # fmt: skip
        status, _, err = await run(one, "restart", "a")
        assert (status, err.splitlines()[0]) == (1, "refused: paused by anna: a move")
        assert (await run(one, "resume"))[:2] == (0, "not paused; every breaker is closed\n")


async def test_whom_it_cannot_ask(tmp_path):
    """A wrong token, nobody there, no vllm-watch: each is said, and none shows the token."""
    async with station(tmp_path) as one:
        one.token_file.write_text("another-token-of-enough-characters")
        file = tmp_path / "other"
        file.write_text("a-wrong-token-of-enough-characters")
        file.chmod(0o600)
        one.token_file = file
        status, _, err = await run(one, "resume")
        assert (status, "This needs a token" in err) == (2, True)
        one.url = "http://127.0.0.1:1"
        status, _, err = await run(one, "resume")
        assert (status, "no answer from http://127.0.0.1:1:" in err) == (2, True)
        assert TOKEN not in err
        one.url = "127.0.0.1"
        assert "is not a URL" in (await run(one, "resume"))[2]
