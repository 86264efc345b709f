"""decode and replay as a person calls them: real arguments, real folders, real files."""

import io
import json
import os
import signal
import subprocess
import sys

import pytest

from specviz.__main__ import main
from specviz.commands._terminal import StripPrinter, printable
from specviz.trace import DraftToken, Iteration, TargetToken, read_trace
from tests.decoding.reference import encode, generate
from tests.tiny import tiny_model, tiny_pair

PROMPT = "The cat sat on"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A target and a draft as ordinary model folders."""
    root = tmp_path_factory.mktemp("models")
    for name, loaded in zip(("target", "draft"), tiny_pair("llama"), strict=True):
        loaded.model.save_pretrained(root / name)
        loaded.tokenizer.save_pretrained(root / name)
    return str(root / "target"), str(root / "draft")


def call(capsys, *arguments):
    status = main(list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


def test_a_run_is_shown_checked_and_saved(folders, capsys, tmp_path):
    target, draft = folders
    file = tmp_path / "run.jsonl"
    status, out, err = call(
        capsys, "decode", "--target", target, "--draft", draft, "--method", "dynamic", "--lookahead", "6",
        "--threshold", "0.3", "--prompt", PROMPT, "--max-new-tokens", "30", "--check", "--out", str(file),
    )
    assert status == 0, err
    assert "identical: 30 of 30 tokens" in out and "times the target alone" in out
    assert "dynamic (lookahead 6, threshold 0.3)" in out
    trace = read_trace(file)
    loaded = tiny_model("llama")
    ids = encode(loaded, PROMPT)
    assert trace.header.prompt == PROMPT and list(trace.header.prompt_ids) == ids
    assert list(trace.output_ids) == generate(loaded, ids, 30)
    assert f"{trace.footer.accepted} of {trace.footer.drafted}" in out
    again, replayed, _ = call(capsys, "replay", str(file))
    assert again == 0
    assert replayed.split("\n\nmethod")[0] == out.split("\n\nmethod")[0]


def test_json_is_one_object_for_scripts(folders, capsys):
    target, draft = folders
    status, out, _ = call(capsys, "decode", "--target", target, "--draft", draft, "--prompt", PROMPT,
                          "--max-new-tokens", "12", "--json", "--check")
    row = json.loads(out)
    assert status == 0 and len(row["ids"]) == 12 and row["check"]["identical"] is True
    # Nothing was said about the method: the draft model's generation config decides, here transformers' defaults.
    assert row["method"] == {"name": "dynamic", "lookahead": 20, "threshold": 0.4}
    assert row["metrics"]["tokens"] == 12


def test_the_words_of_transformers_are_understood(folders, capsys):
    target, draft = folders
    common = ("decode", "--target", target, "--draft", draft, "--prompt", PROMPT, "--max-new-tokens", "6", "--json")
    for words, method in (
        (("--num-assistant-tokens", "3", "--num-assistant-tokens-schedule", "heuristic"),
         {"name": "heuristic", "lookahead": 3, "threshold": 0.0}),
        (("--assistant-early-exit", "2", "--num-assistant-tokens", "3"),
         {"name": "early-exit", "lookahead": 3, "exit_layer": 2}),
        (("--assistant-confidence-threshold", "0.7"), {"name": "dynamic", "lookahead": 20, "threshold": 0.7}),
        (("--max-matching-ngram-size", "3"), {"name": "prompt-lookup", "lookahead": 10, "ngram": 3}),
    ):
        _, out, err = call(capsys, *common, *words)
        assert json.loads(out)["method"] == method, err


def test_sampled_runs_repeat_with_their_seed(folders, capsys):
    target, draft = folders
    texts = []
    for seed in ("3", "3", "4"):
        _, out, _ = call(capsys, "decode", "--target", target, "--draft", draft, "--prompt", PROMPT, "--json",
                         "--max-new-tokens", "16", "--temperature", "1.0", "--top-p", "0.9", "--seed", seed)
        texts.append(json.loads(out)["text"])
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(("arguments", "message"), [
    (["--method", "dynamic"], "needs a draft model"),
    (["--method", "early-exit", "--exit-layer", "9"], "this model has 6 layers, choose 1..5"),
    (["--method", "prompt-lookup", "--threshold", "0.5"], "no meaning for the method prompt-lookup"),
    (["--threshold", "7"], "it is a probability"),
    (["--prompt", ""], "prompt"),
    (["--temperature", "-1"], "choose 0 (greedy)"),
    (["--max-new-tokens", "0"], "at least one new token"),
    (["--temperature", "1", "--check"], "leave --temperature out"),
    (["--out", "no/such/folder/run.jsonl"], "choose a file that can be written"),
    (["--prompt-file", "no-such-file"], "choose a text file"),
    (["--pair", "tiny"], "leave --target and --draft out"),
])
def test_errors_are_one_line_that_says_what_to_do(folders, capsys, arguments, message):
    target, _ = folders
    prompt = [] if {"--prompt", "--prompt-file"} & set(arguments) else ["--prompt", PROMPT]
    status, out, err = call(capsys, "decode", "--target", target, *prompt, *arguments)
    assert status == 2
    line = err.strip().splitlines()[-1]
    assert line.startswith("error: ") and message in line and "Traceback" not in err
    if "--pair" not in arguments:
        call_verbose = main(["decode", "-v", "--target", target, *prompt, *arguments])
        assert call_verbose == 2 and "Traceback" in capsys.readouterr().err


def test_a_file_that_is_no_trace_is_refused(capsys, tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text('{"kind":"header"}\n')
    status, _, err = call(capsys, "replay", str(file))
    assert status == 2 and 'line 1: "schema" is missing' in err
    assert call(capsys, "replay", str(tmp_path / "none"))[0] == 2
    assert call(capsys, "replay", str(file), "--speed", "0")[0] == 2


ITERATION = Iteration(
    0, 3, (DraftToken(1, " yes", 0.9), DraftToken(2, " no\n", 0.2)), "length", 1, TargetToken(3, " own", "correction")
)


def shown(colour, *records):
    stream = io.StringIO()
    printer = StripPrinter(stream, colour)
    for record in records:
        printer.show(record)
    return stream.getvalue()


def test_marks_tell_the_same_as_colours():
    assert shown(False, ITERATION) == "[ yes]{- no\u23ce-} own"
    coloured = shown(True, ITERATION)
    assert "\x1b[32m yes\x1b[0m" in coloured and "\x1b[9;31m no" in coloured and "\x1b[1;4;33m own" in coloured


def test_no_color_and_pipes_get_marks(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for stream, no_color, marks in ((Terminal(), "", False), (Terminal(), "1", True), (io.StringIO(), "", True)):
        monkeypatch.setenv("NO_COLOR", no_color)
        StripPrinter(stream).show(ITERATION)
        assert ("[ yes]" in stream.getvalue()) is marks


def test_token_text_cannot_steer_the_terminal():
    assert printable("a\x1b[2Jb\x00\r\u202e\x9b") == "a\u241b[2Jb\u2400\u240d\\u202e\\u009b"
    assert printable("東京\n\t🙂") == "東京\n\t🙂"


def test_an_interrupted_run_keeps_its_log(folders, tmp_path):
    """Ctrl-C in mid-run: the file opens with what it had and says that it is unfinished."""
    target, draft = folders
    file = tmp_path / "run.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "specviz", "decode", "--target", target, "--draft", draft, "--prompt", PROMPT,
         "--max-new-tokens", "480", "--out", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    seen = process.stdout.read(200)  # it is running
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=120)
    assert seen
    if process.returncode == 0:
        pytest.skip("the run was over before the signal came")
    assert process.returncode == 130 and err.strip().endswith("stopped")
    trace = read_trace(file)
    assert trace.iterations and not trace.finished
