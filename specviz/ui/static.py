"""What the page loads beside Gradio: our scripts and styles, recorded runs, plotly.js. All from this server.

Every address carries a hash of the content, so that a browser may keep it for ever and never shows an old page.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache

import plotly
from plotly.offline import get_plotlyjs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from specviz.ui.recorded import ASSETS, TRACES

PAGE = ASSETS / "page"
FOR_EVER = "public, max-age=31536000, immutable"


@cache
def version() -> str:
    """A hash over everything that is served from here."""
    seen = hashlib.sha256(plotly.__version__.encode())
    for folder in (PAGE, TRACES):
        for path in sorted(folder.glob("*.*")):
            seen.update(path.name.encode() + path.read_bytes())
    return seen.hexdigest()[:16]


def base() -> str:
    """Where it is served, relative to the page: so that it also works behind a proxy under some path."""
    return f"specviz/{version()}/"


@cache
def _plotly() -> tuple[bytes, bytes]:
    script = get_plotlyjs().encode()
    return script, gzip.compress(script, 6)


def _plotly_response(request: Request) -> Response:
    plain, packed = _plotly()
    headers = {"cache-control": FOR_EVER, "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(packed, media_type="text/javascript", headers={**headers, "content-encoding": "gzip"})
    return Response(plain, media_type="text/javascript", headers=headers)


class _Kept(StaticFiles):
    def file_response(self, *args, **kwargs):
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = FOR_EVER
        return response


def routes() -> list[BaseRoute]:
    """The routes to give to Gradio's application."""
    root = f"/{base()}"
    return [
        Route(f"{root}plotly.js", _plotly_response),
        Mount(f"{root}traces", _Kept(directory=TRACES, check_dir=False)),
        Mount(root.rstrip("/"), _Kept(directory=PAGE)),
    ]
