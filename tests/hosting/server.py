"""The real app in a process of its own, and a visitor of its page who is no browser.

    with Server() as server:
        visitor = server.visitor()
        run = visitor.start("decode", {"pair": "tiny", "method": "dynamic", "prompt": "def f():"})
        answer = run.wait()
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
API = "/gradio_api"
PATIENCE = float(os.environ.get("SPECVIZ_TEST_PATIENCE", "180"))  # seconds that a loaded machine may take for anything
ENDED = ("done", "stopped", "failed")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, seconds: float = PATIENCE, pause: float = 0.05):
    """The first true value of a function; AssertionError where there is none in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(pause)
    raise AssertionError(f"waited {seconds:g} s in vain")


class Server:
    """``python app.py`` on a free port. environment: beside what this process has. code: run in place of app.py."""

    def __init__(self, cwd: Path = ROOT, code: str | None = None, python: str = sys.executable, popen=None, **environment):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {
            **os.environ, "GRADIO_SERVER_PORT": str(self.port), "GRADIO_SERVER_NAME": "127.0.0.1",
            "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **environment,
        }  # fmt: skip
        command = [python, "app.py"] if code is None else [python, "-c", code]
        self.process = subprocess.Popen(
            command, cwd=cwd, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            **(popen or {}),
        )  # fmt: skip
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))

    def __enter__(self) -> Server:
        try:
            self.wait()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait(self) -> None:
        """Until the page answers."""

        def answers() -> bool:
            assert self.process.poll() is None, "the app ended: " + "\n".join(self.log[-20:])
            try:
                return httpx.get(self.url + "/config", timeout=10).status_code == 200
            except httpx.TransportError:
                return False

        wait_for(answers, pause=0.2)

    def kill(self, how: int = signal.SIGKILL) -> int:
        """End the process; returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        status = self.process.wait(PATIENCE)
        self._reader.join(5)
        self.process.stderr.close()
        return status

    def visitor(self) -> Visitor:
        return Visitor(self.url)

    def memory(self) -> int:
        """Resident bytes of the process."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def handles(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Visitor:
    """Speaks as the page does: server functions, the work event, and its stream."""

    def __init__(self, url: str, timeout: float = PATIENCE):
        self.url = url
        self.session = secrets.token_hex(6)
        self.http = httpx.Client(base_url=url, timeout=timeout)
        config = self.http.get("/config").json()
        self.component = next(c["id"] for c in config["components"] if c["type"] == "html")
        self.event = next(d["id"] for d in config["dependencies"] if any(t[1] == "work" for t in d["targets"]))

    def close(self) -> None:
        self.http.close()

    def post(self, path: str, body, **options) -> httpx.Response:
        return self.http.post(API + path, json=body, **options)

    def ask(self, name: str, data: dict) -> dict:
        """Call a server function of the page."""
        answer = self.post(
            "/component_server",
            {"data": data, "component_id": self.component, "session_hash": self.session, "fn_name": name},
        )
        assert answer.status_code == 200, (answer.status_code, answer.text)
        return answer.json()

    def start(self, kind: str, request: dict) -> Running:
        """Submit a run and ask for its work, with the stream open as a page has it; AssertionError if it is refused."""
        answer = self.ask("submit", {"kind": kind, "request": request})
        assert "run" in answer, answer
        return self.take(answer["run"])

    def take(self, name: str, begin: bool = True) -> Running:
        """The run of a name; begin: ask for its work."""
        return Running(self, name, begin)


class Running:
    """A run of a visitor. ``leave`` closes the tab; ``stop`` presses the button."""

    def __init__(self, visitor: Visitor, name: str, begin: bool = True):
        self.visitor, self.name, self.cursor = visitor, name, 0
        self.records: list[dict] = []
        self.refused: str | None = None
        self._session = secrets.token_hex(6)  # a tab has one session; here each run has a tab of its own
        self._left = threading.Event()
        self._stream = threading.Thread(target=self._listen, daemon=True)
        if not begin:
            return
        joined = visitor.post(
            "/queue/join",
            {"data": [], "fn_index": visitor.event, "session_hash": self._session, "trigger_id": visitor.component,
             "event_data": {"run": name}},
        )  # fmt: skip
        if joined.status_code != 200:
            self.refused = joined.text
        else:
            self._stream.start()

    def _listen(self) -> None:
        try:
            with (
                httpx.Client(base_url=self.visitor.url, timeout=PATIENCE) as http,
                http.stream("GET", f"{API}/queue/data", params={"session_hash": self._session}) as stream,
            ):
                for line in stream.iter_lines():
                    if self._left.is_set() or '"close_stream"' in line:
                        return
        except httpx.HTTPError:
            pass

    def pull(self) -> dict:
        answer = self.visitor.ask("pull", {"run": self.name, "cursor": self.cursor})
        if "cursor" in answer:
            self.cursor = answer["cursor"]
            self.records += json.loads(answer["records"])
        return answer

    def wait(self, until=lambda answer: answer.get("state") in ENDED, pause: float = 0.1) -> dict:
        """Pull as the page does, until the answer pleases; AssertionError where it never does."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            answer = self.pull()
            if "error" in answer or (until(answer) and not answer["more"]):
                return answer
            time.sleep(pause)
        raise AssertionError("the run never came so far")

    def stop(self) -> None:
        self.visitor.ask("stop", {"run": self.name})

    def leave(self) -> None:
        """Close the tab: the stream ends, and nobody pulls any more."""
        self._left.set()
        if self._stream.ident:
            self._stream.join(PATIENCE)


def text_of(records: list[dict]) -> str:
    """What a run wrote."""
    out = []
    for record in records:
        if record["kind"] == "iteration":
            out += [token["text"] for token in record.get("draft", ())[: record["accepted"]]]
            out += [record["ending"]["text"]] if record.get("ending") else []
        elif record["kind"] == "footer":
            out.append(record.get("tail", ""))
    return "".join(out)
