"""Requests that no page would send, made from good ones with a fixed seed."""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile

from specviz.ui.static import base

GOOD = {"pair": "tiny", "method": "constant", "prompt": "def add(a, b):", "limit": 8, "lookahead": 4, "threshold": 0.4, "chat": True}
TRACE = (
    '{"kind":"header","schema":1,"method":{"name":"constant"},"target":{"name":"t"},"prompt":"x","prompt_ids":[1],"limit":4}\n'
    '{"kind":"iteration","index":0,"start":1,"draft":[],"stop":"length","accepted":0,"ending":{"id":1,"text":"y","kind":"bonus"}}\n'
    '{"kind":"footer","end":"limit","tokens":1,"iterations":1,"drafted":0,"accepted":0,"seconds":1,"prefill_seconds":0}\n'
)
UNICODE = ("\x00", "\ud800", "\u202e\u2066", "🙂" * 3000, "e" + "\u0301" * 5000, "\ufeff", "ﷺ" * 2000, "\x1b[31m", "${7*7}", "<img src=x onerror=1>")


def deep(levels: int, kind: str = "[") -> str:
    return "[" * levels + "]" * levels if kind == "[" else '{"a":' * levels + "1" + "}" * levels


def values(rng: random.Random):
    """A value that fits nowhere."""
    return rng.choice(
        [
            None, True, -1, 0, 2**53 + 1, 10**300, -(10**300), 1e308, 0.5, "", "5", [], {}, [[[[]]]], {"a": {"b": []}}, [1] * 1000,
            "../../etc/passwd", "/etc/shadow", "file:///etc/passwd", "http://127.0.0.1:1/x", {"path": "/etc/passwd"},
            {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}, *UNICODE,
        ]
    )  # fmt: skip


def bodies(rng: random.Random, component: int, event: int):
    """(path, content type, body) of one malformed request."""
    call = {"data": {"kind": "decode", "request": dict(GOOD)}, "component_id": component, "session_hash": "fuzz", "fn_name": "submit"}
    join = {"data": [], "fn_index": event, "session_hash": "fuzz", "trigger_id": component, "event_data": {"run": "x"}}
    way = rng.randrange(12)
    if way == 0:  # a value of the form
        call["data"]["request"][rng.choice([*GOOD, "temperature", "top_k", "top_p", "seed", "exit_layer", "ngram"])] = values(rng)
        call["data"]["request"]["limit"] = rng.choice([values(rng), 10**9, -5, 1.5])
    elif way == 1:  # another function, with anything
        call["fn_name"] = rng.choice(["pull", "stop", "explore", "layers", "simulated", "typed", "upload"])
        call["data"] = rng.choice([values(rng), {"run": values(rng), "cursor": values(rng), "text": values(rng), "pair": values(rng)}])
    elif way == 2:  # Gradio's own fields
        field = rng.choice(["component_id", "session_hash", "fn_name"])
        wrong = [value for value in (values(rng) for _ in range(9)) if value != component and not (field == "session_hash" and value in ("5", None))]
        call[field] = wrong[0] if field != "fn_name" else rng.choice([wrong[0], "__init__", "launch", "postprocess", "_submit"])
    elif way == 3:
        join[rng.choice(["data", "fn_index", "session_hash", "trigger_id", "event_data"])] = values(rng)
        join["session_hash"] = rng.choice([values(rng), 7, "x" * 5000])
        return "/gradio_api/queue/join", "application/json", dump(join)
    elif way == 4:  # nesting, as text, for json.dumps could not write it
        inside = deep(rng.choice([100, 5000, 200_000]), rng.choice("[{"))
        body = json.dumps(call).replace('"def add(a, b):"', inside)
        return "/gradio_api/component_server", "application/json", body.encode()
    elif way == 5:  # numbers
        number = rng.choice(["NaN", "Infinity", "-Infinity", "1" * 5000, "1e999", "-1e999", "0x10", "01", "1_000"])
        return "/gradio_api/component_server", "application/json", json.dumps(call).replace("8", number, 1).encode()
    elif way == 6:  # bytes
        body = bytearray(dump(call))
        for _ in range(rng.randint(1, 30)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        body[0] = rng.choice(b"[x\x00\xff\"")
        return "/gradio_api/component_server", "application/json", bytes(body)
    elif way == 7:  # a file that is no run
        lines = TRACE.splitlines(keepends=True)
        record = json.loads(lines[1])
        record[rng.choice(list(record))] = rng.choice([None, True, -1, 10**300, "x", [[]], {"a": 1}])
        wrong = rng.choice(
            [
                lines[0] + json.dumps(record) + "\n", lines[1] + lines[0], lines[0] * 2, lines[0].replace('"schema":1', '"schema":99'),
                TRACE.replace('"seconds":1', '"seconds":NaN'), TRACE.replace('"accepted":0', '"accepted":7', 1), "{" * 100_000, deep(50_000),
                TRACE.replace('"limit":4', '"limit":' + "9" * 5000), "x" * 1_000_000, "\x00" * 1000, "[]\n" * 5000,
            ]
        )  # fmt: skip
        call.update(fn_name="upload", data={"text": wrong})
    elif way == 8:  # archives and files where there is no place for them
        path = rng.choice(["/gradio_api/upload", "/gradio_api/component_server", "/gradio_api/process_recording", "/gradio_api/queue/join"])
        return path, rng.choice(["multipart/form-data; boundary=b", "application/zip", "application/gzip"]), bomb(rng)
    elif way == 9:  # an archive as the text of a file
        call.update(fn_name="upload", data={"text": bomb(rng).decode("latin-1")})
    elif way == 10:  # programs' endpoints
        path = rng.choice(["/gradio_api/run/decode", "/gradio_api/api/probe", "/gradio_api/run/predict", "/gradio_api/call/nothing"])
        return path, "application/json", dump({"data": [values(rng) for _ in range(rng.randint(0, 14))], "fn_index": event})
    else:  # too large
        call["data"]["request"]["prompt"] = "x" * 30_000_000
    return "/gradio_api/component_server", "application/json", dump(call)


def dump(data) -> bytes:
    return json.dumps(data).encode()


def bomb(rng: random.Random) -> bytes:
    """Ten megabytes of nothing in ten kilobytes."""
    nothing = bytes(10_000_000)
    if rng.random() < 0.5:
        return gzip.compress(nothing, 9)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../run.jsonl", nothing)
    return out.getvalue()


PATHS = (
    "/gradio_api/file=/etc/passwd", "/gradio_api/file=app.py", "/gradio_api/file=../../etc/passwd", "/gradio_api/file//etc/passwd",
    "/gradio_api/file=%2Fetc%2Fpasswd", "/gradio_api/file=http://127.0.0.1:1/", "/gradio_api/proxy=http://127.0.0.1:1/",
    "/static/../../../../../../etc/passwd", "/assets/..%2f..%2f..%2f..%2fetc%2fpasswd", "/svelte/..%2f..%2f..%2fetc%2fpasswd",
    f"/{base()}../../app.py", f"/{base()}..%2f..%2fapp.py", f"/{base()}%2e%2e/%2e%2e/app.py", f"/{base()}traces/../../models/README.md",
    f"/{base()}traces/..%2f..%2fmodels%2ftiny-plain%2fconfig.json", f"/{base()}/etc/passwd", f"/{base()}traces//etc/passwd",
    "/gradio_api/custom_component/x/server/..%2f..%2fetc/passwd", "/gradio_api/stream/x/y/1/playlist-file", "/gradio_api/deep_link?session_hash=x",
    "/gradio_api/upload_progress?upload_id=x", "/monitoring", "/monitoring/summary", "/gradio_api/dev/reload", "/gradio_api/runs",
)  # fmt: skip


