"""The status page's files, held in memory: a fixed list, so that no path of a request ever meets the disk."""

import hashlib

from aiohttp import web

from vllm_watch.export import page_files
from vllm_watch.export.answers import answer


class Assets:
    """Serves `/` and `/page/NAME`."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, str, str]] = {}  # name → content, type, entity tag
        for name, content in page_files.contents().items():
            tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            self._files[name] = content, page_files.TYPES[name.rpartition(".")[2]], tag

    def routes(self) -> list[web.RouteDef]:
        """Every route of this class."""
        return [web.get("/", self.page), web.get("/page/{name}", self.file)]

    async def page(self, request: web.Request) -> web.StreamResponse:
        """The page itself."""
        return await self._send(request, "index.html")

    async def file(self, request: web.Request) -> web.StreamResponse:
        """What the page is made of."""
        return await self._send(request, request.match_info["name"])

    async def _send(self, request: web.Request, name: str) -> web.StreamResponse:
        if name not in self._files:
            raise web.HTTPNotFound
        content, kind, tag = self._files[name]
        # Asked for anew each time, answered with 304: an upgraded watcher is never shown by old code.
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag, "Cache-Control": "no-cache"})
        return await answer(request, content, kind, **{"ETag": tag, "Cache-Control": "no-cache"})
