"""A room full of visitors, who run, stop, leave and replay: ``python -m tests.load.visitors --visitors 40 --minutes 10``.

Half of them use the page's own functions, as a browser does, the others ``gradio_client``. Every prompt carries a word
that nobody else has, and everything that comes back is searched for the words of others. Prints a table and, as its
last line, JSON; the exit status is 1 if anything happened that must not.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError
from contextlib import suppress

import httpx
from gradio_client import Client

from tests.hosting.server import PATIENCE, Server, Visitor, text_of

NONCE = re.compile(r"zq[0-9a-f]{12}qz")
BUSY = re.compile(r"Too many runs are waiting|[Qq]ueue is full")
THINKING = 6.0  # seconds between two deeds of a visitor, on average
SETTLE = 40.0  # seconds after the last one has left
PAIRS = (
    ("tiny", "constant"), ("tiny", "dynamic"), ("tiny", "heuristic"), ("tiny", "prompt-lookup"), ("tiny-exit", "early-exit"),
    ("tiny-exit", "early-exit-dynamic"),
)  # fmt: skip


class Room:
    """What all visitors together saw."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.deeds: Counter[str] = Counter()
        self.faults: list[str] = []
        self.waits: list[float] = []
        self.over = threading.Event()

    def note(self, deed: str) -> None:
        with self.lock:
            self.deeds[deed] += 1

    def fault(self, what: str) -> None:
        with self.lock:
            self.faults.append(what)
            print("FAULT", what[:300], file=sys.stderr, flush=True)


class Person(threading.Thread):
    """One visitor. ``seed`` decides what is done; the words of the prompts are drawn from it too."""

    def __init__(self, room: Room, url: str, seed: int, by_client: bool):
        super().__init__(daemon=True, name=f"visitor-{seed}")
        self.room, self.url, self.rng, self.by_client = room, url, random.Random(seed), by_client
        self.words: set[str] = set()
        self.kept: list[list[dict]] = []  # finished runs, to replay

    def run(self) -> None:
        self.room.over.wait(self.rng.uniform(0, THINKING))
        while not self.room.over.is_set():
            try:
                if self.by_client:
                    self._as_program()
                else:
                    self._as_page()
            except Exception as error:
                if not self.room.over.is_set():
                    self.room.fault(f"{self.name}: {type(error).__name__}: {error}")

    def _as_page(self) -> None:
        self.visitor = Visitor(self.url)
        try:
            for _ in range(self.rng.randint(3, 12)):
                deed = self.rng.choices((self.watch, self.stop, self.leave, self.replay, self.explore), (10, 3, 3, 4, 1))[0]
                deed()
                if self.room.over.wait(self.rng.expovariate(1 / THINKING)):
                    return
        finally:
            self.visitor.close()

    def _as_program(self) -> None:
        client = Client(self.url, verbose=False)
        try:
            for _ in range(self.rng.randint(3, 12)):
                deed = self.rng.choices((self.call, self.cancel), (5, 1))[0]
                deed(client)
                if self.room.over.wait(self.rng.expovariate(1 / THINKING)):
                    return
        finally:
            client.close()

    # --- deeds ---------------------------------------------------------------------------------------------

    def request(self) -> dict:
        pair, method = self.rng.choice(PAIRS)
        word = f"zq{self.rng.getrandbits(48):012x}qz"
        self.words.add(word)
        request = {"pair": pair, "method": method, "prompt": f"def {word}(a, b):\n    ", "limit": self.rng.choice((16, 32, 48))}
        if self.rng.random() < 0.1:
            request |= {"temperature": 0.8, "seed": self.rng.randrange(1000)}
        return request

    def mine(self, said: object, what: str) -> None:
        """Nobody else's word may be in what came back."""
        for word in NONCE.findall(said if isinstance(said, str) else json.dumps(said)):
            if word not in self.words:
                self.room.fault(f"{self.name}: the word of another in {what}")

    def begin(self, kind: str, request: dict):
        answer = self.visitor.ask("submit", {"kind": kind, "request": request})
        if "error" in answer:
            return self._refused(answer["error"]["message"])
        run = self.visitor.take(answer["run"])
        return self._refused(run.refused) if run.refused else run

    def _refused(self, message: str) -> None:
        if BUSY.search(message):
            self.room.note("queue full")
        else:
            self.room.fault(f"{self.name}: refused: {message}")

    def finish(self, run) -> dict:
        began = time.monotonic()
        run.wait(lambda answer: answer["state"] != "waiting")
        self.room.waits.append(time.monotonic() - began)
        return run.wait()

    def watch(self) -> None:
        request = self.request()
        run = self.begin("decode", request)
        if run is None:
            return
        answer = self.finish(run)
        self.mine(run.records, "a run")
        if answer["state"] != "done":
            self.room.fault(f"{self.name}: a run that nobody stopped is {answer['state']}: {answer.get('failure')}")
            return
        wanted = "sampled" if request.get("temperature") else "identical"
        if answer["check"]["kind"] != wanted:
            self.room.fault(f"{self.name}: {answer['check']}")
        if next(iter(NONCE.findall(run.records[0]["prompt"])), "") not in request["prompt"]:
            self.room.fault(f"{self.name}: the prompt of another")
        self.kept = [*self.kept[-2:], run.records]
        run.leave()
        self.room.note("run")

    def stop(self) -> None:
        run = self.begin("decode", self.request() | {"limit": 256})
        if run is None:
            return
        if self.rng.random() < 0.7:
            run.wait(lambda answer: answer["state"] not in ("waiting", "loading"))
        run.stop()
        answer = run.wait()
        self.mine(run.records, "a stopped run")
        if answer["state"] not in ("stopped", "done"):
            self.room.fault(f"{self.name}: stopped, and it is {answer['state']}: {answer.get('failure')}")
        run.leave()
        self.room.note("stopped")

    def leave(self) -> None:
        run = self.begin("decode", self.request() | {"limit": 256})
        if run is None:
            return
        if self.rng.random() < 0.5:
            run.wait(lambda answer: answer["state"] != "waiting")
        self.mine(run.records, "a run that was left")
        run.leave()
        self.room.note("left")

    def replay(self) -> None:
        if not self.kept:
            return
        records = self.rng.choice(self.kept)
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        answer = self.visitor.ask("upload", {"text": text})
        again = self.visitor.take(answer["run"], begin=False)
        again.wait()
        if text_of(again.records) != text_of(records):
            self.room.fault(f"{self.name}: a replay is not the run")
        self.mine(again.records, "a replay")
        self.room.note("replayed")

    def explore(self) -> None:
        run = self.begin("probe", self.request() | {"drafter": "early-exit", "limit": 24})
        if run is None:
            return
        answer = self.finish(run)
        if answer["state"] != "done":
            self.room.fault(f"{self.name}: a probe is {answer['state']}: {answer.get('failure')}")
            return
        for lookahead in (2, 5, 9):
            said = self.visitor.ask("explore", {"run": run.name, "policy": "dynamic", "lookahead": lookahead, "exit_layer": 3})
            self.mine(said, "an exploration")
            if "figures" not in said:
                self.room.fault(f"{self.name}: no figures: {said}")
        run.leave()
        self.room.note("explored")

    def call(self, client: Client) -> None:
        request = self.request()
        began = time.monotonic()
        try:
            said = client.predict(**request, api_name="/decode")
        except Exception as error:
            return self._refused(str(error))
        self.room.waits.append(max(0.0, time.monotonic() - began - self._worked(said)))
        self.mine(said, "an answer")
        wanted = "sampled" if request.get("temperature") else "identical"
        if said["check"]["kind"] != wanted:
            self.room.fault(f"{self.name}: {said['check']}")
        self.room.note("called")

    def cancel(self, client: Client) -> None:
        job = client.submit(**self.request() | {"limit": 256}, api_name="/decode")
        time.sleep(self.rng.uniform(0, 1.0))
        job.cancel()
        with suppress(CancelledError, ValueError, KeyError):  # the client says in one way or another that no data came
            self.mine(job.result(timeout=PATIENCE), "a cancelled answer")
        self.room.note("cancelled")

    @staticmethod
    def _worked(said: dict) -> float:
        """Seconds that an answer took to make, as its records and its check tell."""
        own = next((record["seconds"] for record in said["records"] if record["kind"] == "footer"), 0.0)
        return own + (said["check"].get("plain_seconds") or 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visitors", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    room = Room()
    with Server(HF_HUB_OFFLINE="1") as server:
        warm = server.visitor()
        for request in ({"pair": "tiny", "method": "dynamic"}, {"pair": "tiny-exit", "method": "early-exit"}):
            warm.start("decode", request | {"prompt": "def f(x):", "limit": 16}).wait()
        warm.close()
        moments = [("before", state(server))]
        people = [Person(room, server.url, args.seed * 1000 + n, by_client=n % 2 == 1) for n in range(args.visitors)]
        began = time.monotonic()
        for person in people:
            person.start()
        for minute in range(1, max(1, round(args.minutes)) + 1):
            room.over.wait(max(0.0, began + min(minute, args.minutes) * 60 - time.monotonic()))
            moments.append((f"minute {minute}", state(server)))
            print(moments[-1], dict(room.deeds), file=sys.stderr, flush=True)
        room.over.set()
        for person in people:
            person.join(PATIENCE)
        left = sum(person.is_alive() for person in people)
        time.sleep(SETTLE)
        for _ in range(20):  # idle threads of the server's pool go when the next call comes
            httpx.get(server.url + "/config")
        moments.append(("after", state(server)))
        errors = [line for line in server.log if " ERROR " in line or "Traceback" in line]
        worked = [float(found) for line in server.log if " run " in line for found in re.findall(r" seconds=([\d.]+)", line)]
        status = server.kill(15)
    first = moments[1][1]["memory"]
    found = {
        "visitors": args.visitors, "minutes": args.minutes, "deeds": dict(room.deeds), "faults": len(room.faults),
        "errors in the log": len(errors), "visitors that hang": left,
        "median wait": statistics.median(room.waits) if room.waits else None,
        "longest wait": max(room.waits, default=None),
        "median seconds of a run's work": statistics.median(worked) if worked else None,
        "share of the time that the models worked": sum(worked) / (args.minutes * 60),
        "memory after / after one minute": moments[-1][1]["memory"] / first,
        "moments": dict(moments), "exit status": status,
    }  # fmt: skip
    for name, value in found.items():
        print(f"{name:<34} {value}")
    for what in [*room.faults[:20], *errors[:20]]:
        print("FAULT", what[:300])
    print(json.dumps(found))
    return 1 if room.faults or errors or left else 0


def state(server: Server) -> dict[str, int]:
    return {"memory": server.memory(), "threads": server.threads(), "handles": server.handles()}


if __name__ == "__main__":
    sys.exit(main())
