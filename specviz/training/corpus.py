"""Python source to train on: the standard library of this interpreter, and any folders the caller adds.

Left out are tests and test data, generated files and tables, licence headers, and all of a docstring but its summary:
models of this size learn code from it sooner than they would learn prose. The split is by file, from a hash of the file's
name, so it is the same on every machine and no part of a held-out file is ever trained on.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specviz.errors import UsageError
from specviz.training.files import write_atomically
from specviz.training.tokenizer import END, load_tokenizer, train_tokenizer

FORMAT = 1  # part of the cache key: raise it when the cleaning changes
HELD_OUT_PERCENT = 3
SKIPPED_FOLDERS = {
    "test", "tests", "testing", "_testing", "idle_test", "site-packages", "dist-packages", "__pycache__", "_vendor",
    "vendored", "externals", "_bundled", "pydoc_data", "turtledemo", "encodings", "node_modules", "templates",
}  # fmt: skip
GENERATED = re.compile(r"auto-?(matically )?generated|generated (by|from|automatically)|do not edit|code generator", re.I)
TOKENIZER_CHARS = 12_000_000  # merges of 2,048 tokens do not change with more text, learning them takes longer


@dataclass(frozen=True)
class SourceFile:
    """One cleaned file; ``name`` is its package and the path inside it, with slashes."""

    name: str
    text: str

    @property
    def held_out(self) -> bool:
        digest = hashlib.sha256(self.name.encode()).digest()
        return int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT


@dataclass(frozen=True)
class Corpus:
    """Token ids of both halves, uint16, files one after the other, each ended by the end token."""

    tokenizer: object
    train: np.ndarray
    held_out: np.ndarray
    train_files: tuple[str, ...]
    held_out_files: tuple[str, ...]
    held_out_starts: tuple[int, ...]  # where in ``held_out`` each file begins

    @property
    def packages(self) -> tuple[str, ...]:
        """The names of what was read, ``stdlib`` first."""
        names = {name.split("/")[0] for name in self.train_files}
        return tuple(sorted(names, key=lambda name: (name != "stdlib", name)))


def standard_library() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


def clean(text: str) -> str | None:
    """The text as it is trained on, or None where the file is not worth it (does not parse, tables, generated)."""
    if GENERATED.search(text[:2000]) or not text.isascii() and sum(sign > "\x7f" for sign in text) > len(text) / 200:
        return None
    text = "\n".join(line.rstrip() for line in text.expandtabs(8).replace("\r\n", "\n").split("\n"))
    lines = _without_header(text.split("\n"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lines = _short_docstrings(lines, ast.parse("\n".join(lines)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    text = re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip("\n") + "\n"
    dense = [sign for sign in text if not sign.isspace()]
    if not 300 <= len(text) <= 300_000:
        return None
    if sum(sign.isdigit() for sign in dense) > 0.12 * len(dense):
        return None
    if sum(len(line) > 120 for line in lines) > 0.05 * len(lines):
        return None
    return text


def _without_header(lines: list[str]) -> list[str]:
    """Drop the comment lines and blank lines a file begins with: interpreter line, encoding, licence."""
    begin = 0
    while begin < len(lines) and (not lines[begin] or lines[begin].startswith("#")):
        begin += 1
    return lines[begin:]


def _short_docstrings(lines: list[str], tree: ast.Module) -> list[str]:
    """Cut docstrings of more than three lines to their first one."""
    scopes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if not isinstance(node, scopes) or not node.body or ast.get_docstring(node, clean=False) is None:
            continue
        first = node.body[0]
        begin, end = first.lineno - 1, first.end_lineno
        if end - begin <= 3 or lines[begin] is None:
            continue
        indent = " " * first.col_offset
        summary = next((line.strip() for line in ast.get_docstring(node).split("\n") if line.strip()), "")
        tail = lines[end - 1].rstrip()
        if not tail.endswith(('"""', "'''")) or '"' in summary or "\\" in summary:
            replacement = [f"{indent}pass"] if len(node.body) == 1 else []
        else:
            replacement = [f'{indent}"""{summary}"""']
        lines[begin:end] = replacement + [None] * (end - begin - len(replacement))
    return [line for line in lines if line is not None]


def read_folder(name: str, root: Path) -> Iterator[SourceFile]:
    """Every Python file below ``root`` that is worth training on, in the order of their names."""
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if SKIPPED_FOLDERS & set(relative.parts[:-1]) or relative.name.startswith(("test_", "_test", "conftest")):
            continue
        try:
            raw = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if len(raw) <= 600_000 and (text := clean(raw)):
            yield SourceFile(f"{name}/{relative.as_posix()}", text)


def read_sources(folders: Sequence[Path] = (), stdlib: bool = True) -> list[SourceFile]:
    """The files of the standard library and of ``folders``, without copies of the same text.

    Raises UsageError for a folder that does not exist or when nothing remains to train on.
    """
    roots = [("stdlib", standard_library())] if stdlib else []
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--corpus {folder}: no such folder")
        roots.append((folder.resolve().name, folder))
    seen: set[str] = set()
    files = []
    for name, root in roots:
        for file in read_folder(name, root):
            digest = hashlib.sha256(file.text.encode()).hexdigest()
            if digest not in seen:
                seen.add(digest)
                files.append(file)
    if not files:
        raise UsageError("the corpus is empty: no Python source to train on, name a folder with --corpus DIR")
    return files


def prepare(
    folders: Sequence[Path], vocabulary: int, cache: Path, tokenizer=None, stdlib: bool = True
) -> Corpus:
    """Read, clean, split and encode; learn a tokenizer unless one is given. Kept below ``cache`` for the next run.

    Raises UsageError for an empty corpus (either half), and for a full disk.
    """
    files = read_sources(folders, stdlib)
    train = [file for file in files if not file.held_out]
    held_out = [file for file in files if file.held_out]
    if not train or not held_out:
        raise UsageError(
            f"the corpus is too small: {len(files)} files leave {len(held_out)} held out, add more with --corpus DIR"
        )
    digest = hashlib.sha256(f"{FORMAT} {vocabulary}".encode())
    for file in files:
        digest.update(file.name.encode() + hashlib.sha256(file.text.encode()).digest())
    if tokenizer is not None:
        digest.update(tokenizer.backend_tokenizer.to_str().encode())
    folder = cache / digest.hexdigest()[:16]
    names = {"train": [file.name for file in train], "held_out": [file.name for file in held_out]}
    if not (folder / "files.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = tokenizer or train_tokenizer(_sample(train), vocabulary)
        tokenizer.save_pretrained(folder)
        for half, part in (("train", train), ("held_out", held_out)):
            ids, starts = encode_files(tokenizer, part)
            write_atomically(folder / f"{half}.npy", lambda stream, ids=ids: np.save(stream, ids))
            names[f"{half}_starts"] = starts
        # Written last: its presence says that the rest is complete.
        write_atomically(folder / "files.json", lambda stream: stream.write(json.dumps(names).encode()))
    names = json.loads((folder / "files.json").read_text())
    return Corpus(
        tokenizer=load_tokenizer(folder),
        train=np.load(folder / "train.npy", mmap_mode="r"),
        held_out=np.load(folder / "held_out.npy", mmap_mode="r"),
        train_files=tuple(names["train"]),
        held_out_files=tuple(names["held_out"]),
        held_out_starts=tuple(names["held_out_starts"]),
    )


def _sample(files: Sequence[SourceFile]) -> Iterator[str]:
    """Texts spread evenly over the corpus, up to TOKENIZER_CHARS."""
    total = sum(len(file.text) for file in files)
    step = max(1, -(-total // TOKENIZER_CHARS))
    return (file.text for file in files[::step])


def encode_files(tokenizer, files: Sequence[SourceFile]) -> tuple[np.ndarray, list[int]]:
    """All files as one array of ids (uint16), each ended by the end token, and where each begins."""
    end = tokenizer.convert_tokens_to_ids(END)
    parts, starts, position = [], [], 0
    for begin in range(0, len(files), 256):
        texts = [file.text for file in files[begin : begin + 256]]
        for encoding in tokenizer.backend_tokenizer.encode_batch(texts):
            parts.append(np.array([*encoding.ids, end], dtype=np.uint16))
            starts.append(position)
            position += len(parts[-1])
    return np.concatenate(parts), starts
