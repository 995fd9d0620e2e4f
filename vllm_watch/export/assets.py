"""The status page's files and the runbooks, held in memory: a fixed list, so that no path of a request ever meets the disk."""

import hashlib

from aiohttp import web

from vllm_watch.export import page_files
from vllm_watch.export.answers import answer


class Assets:
    """Serves `/`, `/page/NAME` and `/runbooks/NAME`."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, str, str]] = {}  # path → content, type, entity tag
        for folder, found in (
            ("page", page_files.contents()),
            ("runbooks", page_files.runbooks()),
        ):
            for name, content in found.items():
                tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
                kind = page_files.TYPES[name.rpartition(".")[2]]
                self._files[f"{folder}/{name}"] = content, kind, tag

    def routes(self) -> list[web.RouteDef]:
        """Every route of this class."""
        return [
            web.get("/", self.page), web.get("/page/{name}", self.file),
            web.get("/runbooks/{name}", self.runbook),
        ]  # fmt: skip

    async def page(self, request: web.Request) -> web.StreamResponse:
        """The page itself."""
        return await self._send(request, "page/index.html")

    async def file(self, request: web.Request) -> web.StreamResponse:
        """What the page is made of."""
        return await self._send(request, f"page/{request.match_info['name']}")

    async def runbook(self, request: web.Request) -> web.StreamResponse:
        """What to do about a kind of incident, an alert or a restart."""
        return await self._send(request, f"runbooks/{request.match_info['name']}.html")

    async def _send(self, request: web.Request, name: str) -> web.StreamResponse:
        if name not in self._files:
            raise web.HTTPNotFound
        content, kind, tag = self._files[name]
        # Asked for anew each time, answered with 304: an upgraded watcher is never shown by old code.
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag, "Cache-Control": "no-cache"})
        return await answer(request, content, kind, **{"ETag": tag, "Cache-Control": "no-cache"})
