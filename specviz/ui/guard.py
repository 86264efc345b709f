"""What stands before Gradio's own routes: requests that go round the page are refused here, in a sentence.

Gradio brings routes for features that this page does not use: uploads to the disk, files, proxies, recordings. They are
closed. What is left takes JSON of a limited size and depth, checked before Gradio reads it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

PREFIX = "/gradio_api"

# Routes of Gradio that this page has no use for, by how their path begins.
CLOSED = tuple(
    PREFIX + path
    for path in (
        "/upload", "/file", "/proxy=", "/stream/", "/process_recording", "/deep_link", "/custom_component/", "/dev/",
        "/run/", "/api/", "/runs", "/run-history", "/vibe-", "/undo-vibe-", "/profiling/", "/token", "/app_id",
    )
) + ("/monitoring", "/pwa_icon")  # fmt: skip

# Of a request's JSON, beside what stands in strings.
MOST_STRUCTURE = 200_000  # characters
MOST_DEPTH = 40
MOST_DIGITS = 400

_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_DIGITS = re.compile(rb"\d{%d}" % (MOST_DIGITS + 1))
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # perhaps one half of a character without the other
_SESSION = re.compile(r"[\w-]{1,64}", re.ASCII)

log = logging.getLogger("specviz")


class Unfit(Exception):
    """A request that is not passed on: status and one sentence."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Guard:
    """ASGI middleware. most: bytes that the body of a request may have. component: the one that has server functions."""

    def __init__(self, app, most: int, component: int, server_functions: frozenset[str]):
        self.app = app
        self.most = most
        self.component = component
        self.server_functions = server_functions

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = False

        async def noted(message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            path = scope["path"]
            if any(path.startswith(start) for start in CLOSED):
                raise Unfit(404, "this page does not offer that")
            if scope["method"] in ("POST", "PUT", "PATCH", "DELETE"):
                receive = await self._checked(scope, receive)
            await self.app(scope, receive, noted)
        except Unfit as why:
            if not began:
                await _answer(send, why.status, str(why))
        except Exception as error:  # of Gradio, which believes what it is told
            if began:
                raise
            log.warning("not understood: %s %s: %s", scope["method"], ascii(scope["path"][:80]), type(error).__name__)
            log.debug("", exc_info=error)
            await _answer(send, 400, "this request is not understood")

    async def _checked(self, scope, receive) -> Callable[[], Awaitable[dict]]:
        """The body, read and found fit; returns a `receive` that hands it on."""
        headers = {name.lower(): value for name, value in scope["headers"]}
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind not in (b"application/json", b"text/plain", b""):  # browsers send beacons as plain text
            raise Unfit(415, "send JSON: this page takes nothing else")
        announced = headers.get(b"content-length", b"0")
        if not announced.isdigit() or int(announced) > self.most:
            raise Unfit(413, f"the request is larger than {self.most:,} bytes")
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Unfit(400, "the request was broken off")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.most:
                raise Unfit(413, f"the request is larger than {self.most:,} bytes")
            if not message.get("more_body"):
                break
        body = b"".join(parts)
        data = check_json(body) if body else None
        self._check_shape(scope["path"].rstrip("/"), data)
        if _HALF.search(body):  # no reply could carry it
            whole = json.dumps(data, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            body = whole.encode()
        sent = False

        async def again() -> dict:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        return again

    def _check_shape(self, path: str, data: Any) -> None:
        """Gradio looks into these without a look at their types first."""
        if not path.startswith(PREFIX):
            return
        if not isinstance(data, dict):
            raise Unfit(400, "send a JSON object")
        session = data.get("session_hash")
        if session is not None and not (isinstance(session, str) and _SESSION.fullmatch(session)):
            raise Unfit(400, "session_hash: give letters and digits")
        if path == PREFIX + "/component_server":
            name = data.get("fn_name")
            if session is None or not isinstance(name, str) or name not in self.server_functions:
                raise Unfit(400, "component_server: give fn_name, component_id, session_hash and data")
            if type(data.get("component_id")) is not int or data["component_id"] != self.component or "data" not in data:
                raise Unfit(400, "component_server: give fn_name, component_id, session_hash and data")
        for name in ("fn_index", "trigger_id"):
            if data.get(name) is not None and type(data[name]) is not int:
                raise Unfit(400, f"{name}: give a whole number")


def check_json(body: bytes) -> Any:
    """Parse a body; Unfit for what is no strict JSON, too deep, or full of numbers and brackets."""
    if b"\x00" in body:
        raise Unfit(400, "the request is not JSON")
    structure = _STRINGS.sub(b"", body)
    if len(structure) > MOST_STRUCTURE:
        raise Unfit(413, "the request holds too many values")
    depth = 0
    for bracket in _BRACKETS.findall(structure):
        depth += 1 if bracket in b"[{" else -1
        if depth > MOST_DEPTH:
            raise Unfit(400, f"the request is nested more than {MOST_DEPTH} levels deep")
    if _DIGITS.search(structure):
        raise Unfit(400, f"the request holds a number of more than {MOST_DIGITS} digits")
    try:
        return json.loads(body, parse_constant=_no_constant)
    except Unfit:
        raise
    except (ValueError, RecursionError):
        raise Unfit(400, "the request is not JSON") from None


def _no_constant(word: str) -> None:
    raise Unfit(400, f"{word} is not JSON")


async def _answer(send, status: int, message: str) -> None:
    body = json.dumps({"detail": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
