"""A test message by the daemon: it goes to a real receiver, and what came of it is said."""

import pytest
from aiohttp import web

from vllm_watch.errors import WatchError
from vllm_watch.notify.kinds import trial
from vllm_watch.settings.notifications import NotificationsSettings


async def receiver(status, got):
    """A webhook receiver that answers with this status."""

    async def take(request):
        got.append(await request.json())
        return web.Response(status=status)

    app = web.Application()
    app.router.add_post("/hook", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/hook"


@pytest.mark.parametrize(("status", "answer"), [(200, 200), (400, 409)])
async def test_a_test_message_is_sent_and_its_outcome_said(status, answer):
    """Once; what was refused says so, with what to do."""
    got = []
    runner, url = await receiver(status, got)
    try:
        settings = NotificationsSettings.model_validate(
            {"webhook": [{"name": "oncall", "url": url}]}
        )
        found, said = await trial(settings, "oncall")
    finally:
        await runner.cleanup()
    assert (found, len(got)) == (answer, 1)
    assert "oncall" in (said["text"] if status == 200 else said["error"])
    assert "test of the notifier oncall" in str(got)


async def test_a_notifier_that_is_not_there_is_named():
    """With those that are."""
    settings = NotificationsSettings.model_validate(
        {"webhook": [{"name": "oncall", "url": "http://h/"}]}
    )
    with pytest.raises(WatchError) as error:
        await trial(settings, "oncal")
    assert "oncall" in error.value.remedy
