"""Takes the pictures of docs/images: the status page over simulated fleets, in a real browser.

python docs/take_screenshots.py [NAME]...    (some ten minutes for all; NAME is a file without .png)

Every stage of screenshot_stages.py runs at once, each as the whole daemon over its own engines. Minutes into it, so
that the charts are nearly full, its trouble begins; when the page says so, and a little later, the picture is taken.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]
IMAGES = Path(__file__).parent / "images"
CHROMIUM = "/usr/bin/chromium"  # Debian's; playwright's own needs a download
STOP_SECONDS = 60.0
PORT_FIRST = 21_000
READY_SECONDS_MAX = 180.0  # these are many processes
STORY_SECONDS = 480.0  # of the ten minutes that charts show
TROUBLE_SECONDS_MAX = 400.0
SETTLE_SECONDS = 15.0  # until nobody doubts it
LAPTOP, PHONE = (1280, 1010), (390, 844)


@dataclass(frozen=True)
class Picture:
    """One file: which stage, what must be on the page before, and how it is looked at."""

    stage: str
    sign: str
    size: tuple[int, int] = LAPTOP
    scheme: str = "light"
    settle_seconds: float = SETTLE_SECONDS
    scroll_to: str = ""


def card(title: str) -> str:
    """A card on the page with this title."""
    return f'.incident h3:has-text("{title}")'


PICTURES = {
    "status-page": Picture("stalled", card("Stalled")),
    "status-page-healthy": Picture("healthy", '#verdict[data-tone="good"]'),
    "status-page-collapsed": Picture("collapsed", card("Collapsed: KV cache leak"), scheme="dark"),
    "status-page-down": Picture("down", card("Down")),
    "status-page-stale-vram": Picture(
        "stale-vram", card("Stale GPU memory"), size=(1280, 760), scroll_to="#gpus"
    ),
    "status-page-approval": Picture("approval", "button:has-text('Approve the restart')"),
    "status-page-500-targets": Picture("500-targets", ".storm", settle_seconds=60.0),
    "status-page-phone": Picture("stalled", card("Stalled"), PHONE),
    "status-page-phone-dark": Picture("stalled", card("Stalled"), PHONE, "dark"),
}


def main() -> None:
    """Run the stages that are needed, wait for their trouble, take the pictures."""
    wanted = {name: PICTURES[name] for name in sys.argv[1:] or PICTURES}
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with stages({picture.stage for picture in wanted.values()}) as addresses:
            time.sleep(STORY_SECONDS)
            for name, picture in wanted.items():
                take(browser, addresses[picture.stage], picture, IMAGES / f"{name}.png")
                sys.stdout.write(f"{name}.png\n")
        browser.close()


@contextmanager
def stages(names: set[str]) -> Iterator[dict[str, str]]:
    """Run them, each on a port of its own; return their addresses."""
    running = []
    addresses: dict[str, str] = {}
    try:
        for name in sorted(names):
            address = free_address({url[len("http://") : -1] for url in addresses.values()})
            command = [sys.executable, str(ROOT / "docs" / "screenshot_stages.py"), name, address]
            running.append(
                subprocess.Popen(  # noqa: S603 - our own command
                    [*command, str(STORY_SECONDS)], stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(ROOT)},
                )
            )  # fmt: skip
            addresses[name] = f"http://{address}/"
        for address in addresses.values():
            wait_ready(f"{address}-/ready")
        yield addresses
    finally:
        for process in running:
            process.terminate()
        for process in running:
            end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Wait until it has ended; kill it where that takes long."""
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_address(taken: Collection[str]) -> str:
    """A free port of the loopback interface, below those that Linux gives to whoever asks for any.

    The stages' hundreds of simulated engines ask for any while others have yet to bind theirs.
    """
    for port in range(PORT_FIRST, PORT_FIRST + 1000):
        address = f"127.0.0.1:{port}"
        with socket.socket() as probe:
            if address not in taken and probe.connect_ex(("127.0.0.1", port)):
                return address
    raise OSError(f"no port is free from {PORT_FIRST} on")


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
            time.sleep(0.5)


def take(browser: Browser, url: str, picture: Picture, file: Path) -> None:
    """Wait for what the picture is of, let it settle, and save it."""
    width, height = picture.size
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if picture.scheme == "dark" else "light",
    )
    page.goto(url, timeout=READY_SECONDS_MAX * 1000)
    page.wait_for_selector(picture.sign, timeout=TROUBLE_SECONDS_MAX * 1000)
    page.wait_for_timeout(picture.settle_seconds * 1000)
    show(page, picture.scroll_to)
    page.screenshot(path=file)
    page.close()


def show(page: Page, selector: str) -> None:
    """Bring a part of the page to the top."""
    if selector:
        page.eval_on_selector(selector, "(element) => element.scrollIntoView()")
        page.wait_for_timeout(500)


if __name__ == "__main__":
    main()
