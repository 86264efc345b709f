"""The Dockerfile without a Docker engine: parsed, and its steps carried out in a clean folder.

    python -m tests.hosting.container FOLDER

COPY steps copy what .dockerignore leaves of this repository; RUN steps run in a shell; the folder stands for the image's
root. Steps behind ``USER user`` and the command run as user 1000 where we may choose (as root), with a network that
RUN steps may use. The source tree is read-only for that user. At the end the command runs, the health check passes,
and the process ends in order.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import venv
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
OUTSIDE = ("useradd", "groupadd")  # would change the machine that this runs on


@dataclass
class Step:
    word: str
    rest: str

    @property
    def listed(self) -> list[str] | None:
        """The words of the exec form, ["a", "b"]; None for the shell form."""
        return json.loads(self.rest) if self.rest.startswith("[") else None


def parse(text: str) -> list[Step]:
    """The instructions of a Dockerfile, in order."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [Step(*line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def ignored(path: str, patterns: list[str]) -> bool:
    """Does .dockerignore leave a file out? For the patterns that ours holds."""
    parts = path.split("/")
    places = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    for pattern in patterns:
        any_depth = pattern.startswith("**/")
        for place in places:
            name = place.rsplit("/", 1)[-1] if any_depth or pattern.startswith("*") else place
            if fnmatch.fnmatch(name, pattern.removeprefix("**/")):
                return True
    return False


def context() -> list[str]:
    """The files that a build would be given."""
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line.strip()]
    found = []
    for folder, folders, files in os.walk(ROOT):
        inside = Path(folder).relative_to(ROOT)
        folders[:] = [name for name in folders if not ignored((inside / name).as_posix(), patterns)]
        found += [path for name in files if not ignored(path := (inside / name).as_posix(), patterns)]
    return sorted(found)


@dataclass
class Image:
    """A folder that stands for the root of an image."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: int | None = None
    command: list[str] | None = None
    health: list[str] | None = None
    may_change: bool = True  # can we be the user that the file names, and reach Python as that user?

    def place(self, path: str) -> Path:
        return self.root / os.path.normpath(os.path.join(self.folder, path)).lstrip("/")

    def filled(self, text: str) -> str:
        names = {**self.arguments, **self.environment}
        return re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda found: names.get(found[1] or found[2], ""), text)

    def as_process(self) -> dict:
        """What every process of the image gets: its environment, where paths lie under our folder, and its user."""
        home = str(self.root / "home/user")
        own = {key: str(self.root / value.lstrip("/")) if value.startswith("/home") else value for key, value in self.environment.items()}
        path = f"{self.root}/venv/bin:{os.environ['PATH']}"
        kept = {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_", "REQUESTS_", "https_", "http_", "HTTPS_", "HTTP_"))}
        options: dict = {"cwd": self.place("."), "env": {**kept, **self.arguments, **own, "HOME": home, "PATH": path, "LANG": "C.UTF-8"}}
        if self.user is not None and self.may_change:
            options |= {"user": self.user, "group": self.user, "extra_groups": []}
        return options

    def carry_out(self, step: Step) -> None:
        word, rest = step.word.upper(), step.rest
        if word == "ARG":
            name, _, value = rest.partition("=")
            self.arguments.setdefault(name, value)
        elif word == "ENV":
            self.environment.update(pair.split("=", 1) for pair in shlex.split(rest))
        elif word == "WORKDIR":
            self.folder = rest
            self.place(".").mkdir(parents=True, exist_ok=True)
        elif word == "USER":
            self.user = 1000
        elif word == "COPY":
            self._copy([part for part in rest.split() if not part.startswith("--")], "--chown=user" in rest)
        elif word == "RUN":
            if rest.split()[0] in OUTSIDE:
                (self.root / "home/user").mkdir(parents=True, exist_ok=True)
                self._give(self.root / "home/user")
            else:
                subprocess.run(["sh", "-ec", rest], check=True, **self.as_process())
        elif word == "CMD":
            self.command = step.listed
        elif word == "HEALTHCHECK":
            self.health = json.loads(rest[rest.index("CMD") + 3 :])

    def _copy(self, words: list[str], to_user: bool) -> None:
        *sources, target = words
        folder = target.endswith("/") or target == "." or len(sources) > 1
        for source in sources:
            for path in context():
                if source != "." and path != source and not path.startswith(source.rstrip("/") + "/"):
                    continue
                inside = path if source == "." else os.path.relpath(path, source) if path != source else ""
                place = self.place(target) / (inside or os.path.basename(path) if folder or inside else "")
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, place)
        if to_user:
            self._give(self.place("."))

    def _give(self, folder: Path) -> None:
        if os.getuid() == 0:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, 1000, 1000)


def _reaches(python: Path) -> bool:
    try:
        return subprocess.run([python, "-c", ""], user=1000, group=1000, extra_groups=[], cwd="/").returncode == 0
    except OSError:
        print("user 1000 cannot reach this Python: the steps run as the present user")
        return False


def main(folder: Path, port: int = 7860) -> None:
    """Carry out the Dockerfile; raises where a step fails."""
    image = Image(folder)
    venv.create(folder / "venv", system_site_packages=False, symlinks=True)
    # In place of the base image's empty Python: one where what is installed here is there already.
    own = next((folder / "venv").glob("lib/python*/site-packages"))
    (own / "here.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    image.may_change = os.getuid() == 0 and _reaches(folder / "venv/bin/python")
    for step in parse((ROOT / "Dockerfile").read_text()):
        if step.word != "FROM":
            print(step.word, step.rest[:100], flush=True)
        image.carry_out(step)
    app = image.place(".")
    for path in [app, *app.rglob("*")]:  # a source tree that nobody can write
        path.chmod(path.stat().st_mode & ~0o222)
        if os.getuid() == 0:
            os.chown(path, 0, 0)
    options = image.as_process()
    options["env"] |= {"GRADIO_SERVER_PORT": str(port), "HF_HUB_OFFLINE": "1"}
    began = time.monotonic()
    process = subprocess.Popen(image.command, **options)
    try:
        health = [word.replace("7860", str(port)) for word in image.health]
        while subprocess.run(health, capture_output=True, **options).returncode:
            assert process.poll() is None, "the command ended"
            assert time.monotonic() - began < 600, "the health check never passed"
            time.sleep(1)
        print(f"healthy after {time.monotonic() - began:.1f} s, as user {os.stat(f'/proc/{process.pid}').st_uid}", flush=True)
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
    print(f"ended with status {status}")
    assert status == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
