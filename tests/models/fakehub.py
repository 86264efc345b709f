"""A small server that answers as the Hub's API does, so that its client's real errors can be seen without a network."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse


@dataclass
class Repo:
    """Files of a repository at main and, by number, of its pull requests; or the refusal it answers with."""

    files: dict[str, bytes] = field(default_factory=dict)
    pulls: dict[int, dict] = field(default_factory=dict)  # number -> {"author", "title", "status", "files"}
    status: int = 200
    code: str | None = None  # X-Error-Code
    sizes: dict[str, int] = field(default_factory=dict)  # sizes to claim instead of the true ones

    def at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        trees = {"main": self.files}
        trees.update({f"refs/pr/{number}": pull["files"] for number, pull in self.pulls.items()})
        for name, files in trees.items():
            commit = hashlib.sha1(name.encode()).hexdigest()
            if revision in (name, commit):
                return commit, files
        return None


def folder_files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@contextmanager
def fake_hub(repos: dict[str, Repo]):
    """Serves on a free port of this machine; yields its address and the list of requested paths."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self._answer(body=False)

        def do_GET(self):
            self._answer(body=True)

        def _answer(self, body: bool):
            path = unquote(urlparse(self.path).path)
            seen.append(path)
            owner_name, rest = self._split(path)
            repo = repos.get(owner_name)
            if repo is None:
                return self._send(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}, body)
            if repo.status != 200:
                extra = {"X-Error-Code": repo.code} if repo.code else {}
                return self._send(repo.status, {"error": "refused"}, extra, body)
            kind, _, tail = rest.partition("/")
            if kind == "discussions":
                rows = [
                    {
                        "num": number,
                        "title": pull["title"],
                        "author": {"name": pull["author"]},
                        "createdAt": "2024-01-01T00:00:00.000Z",
                        "status": pull.get("status", "open"),
                        "isPullRequest": True,
                        "repo": {"name": owner_name, "type": "model"},
                    }
                    for number, pull in repo.pulls.items()
                ]
                return self._send(200, {"discussions": rows, "count": len(rows), "start": 0}, {}, body)
            for revision in ["main", *[f"refs/pr/{number}" for number in repo.pulls]]:
                commit, files = repo.at(revision)
                for word in (revision, commit):
                    if tail == word or tail.startswith(word + "/"):
                        return self._file(kind, owner_name, commit, files, tail[len(word) + 1 :], repo, body)
            return self._send(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"}, body)

        def _file(self, kind, name, commit, files, file, repo, body):
            if kind == "revision":
                rows = [{"rfilename": path} for path in files]
                return self._send(200, {"id": name, "sha": commit, "siblings": rows, "private": False}, {}, body)
            if kind == "tree":
                rows = [
                    {
                        "type": "file",
                        "path": path,
                        "size": repo.sizes.get(path, len(data)),
                        "oid": hashlib.sha1(data).hexdigest(),
                    }
                    for path, data in files.items()
                ]
                return self._send(200, rows, {}, body)
            if file not in files:
                return self._send(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"}, body)
            data = files[file]
            headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(data).hexdigest()}"'}
            if body:
                return self._send(200, data, headers, body)
            return self._send(200, data, headers, body, length=repo.sizes.get(file, len(data)))

        @staticmethod
        def _split(path: str) -> tuple[str, str]:
            parts = path.strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                parts = parts[2:]
            return "/".join(parts[:2]), "/".join(parts[2:])

        def _send(self, status, content, headers, body, length=None):
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data) if length is None else length))
            self.end_headers()
            if body:
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
