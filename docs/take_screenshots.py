"""Takes docs/images/status-page.png: the status page of the running demo, in a real browser.

python docs/take_screenshots.py

Nine minutes into the demo, so that its charts are nearly full, and in the middle of one of its
troubles, so that it shows what trouble looks like.
"""

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
CHROMIUM = "/usr/bin/chromium"  # Debian's; playwright's own needs a download
READY_SECONDS_MAX = 30.0
STORY_SECONDS = 480.0
TROUBLE_SECONDS_MAX = 120.0  # the demo is never longer without one
SETTLE_SECONDS = 12.0  # until nobody doubts that it is one
WIDTH, HEIGHT = 1280, 1010


def main() -> None:
    """Run the demo, look at it for a while, take the picture."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "vllm_watch", "demo", "--listen", address]
    with subprocess.Popen(  # noqa: S603 - our own command
        command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as demo:
        try:
            wait_ready(f"http://{address}/-/ready")
            take(f"http://{address}/", IMAGES / "status-page.png")
        finally:
            demo.terminate()


def wait_ready(url: str) -> None:
    """Return once it answers 200; raises OSError when it does not in time."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - our own address
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def take(url: str, file: Path) -> None:
    """Let the page live for a while, and save what it shows."""
    file.parent.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(url)
        page.wait_for_timeout(STORY_SECONDS * 1000)
        page.wait_for_selector('#verdict[data-tone="bad"]', timeout=TROUBLE_SECONDS_MAX * 1000)
        page.wait_for_timeout(SETTLE_SECONDS * 1000)
        page.screenshot(path=file)
        browser.close()


if __name__ == "__main__":
    main()
