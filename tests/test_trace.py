"""The log's file format: what is written is read back, and what is broken is named."""

import json
import math

import pytest

from specviz.trace import (
    SCHEMA,
    Alternative,
    DraftToken,
    Footer,
    Header,
    Iteration,
    TargetToken,
    Trace,
    TraceError,
    TraceWriter,
    parse_trace,
    read_trace,
    to_json,
    write_trace,
)

HEADER = Header(
    method={"name": "dynamic", "lookahead": 20, "threshold": 0.4}, target={"name": "t"}, draft=None,
    prompt="${7*7} <img onerror=alert(1)> 東京 🙂\u202e\x00\u2028", prompt_ids=(1, 2, 3), limit=8, seed=5,
    prompt_pieces=("a", "", "東"), versions={"torch": "2.13"},
)
ITERATION = Iteration(
    index=0, start=3,
    draft=(
        DraftToken(7, " a", 0.75, 1.25, (Alternative(7, " a", 0.75), Alternative(8, "b", 0.125)), 0.5),
        DraftToken(8, "\n", 0.3),
    ),
    stop="confidence", accepted=1, ending=TargetToken(9, "🙂", "correction", 0.5), policy={"lookahead": 20},
    draft_seconds=0.5, verify_seconds=0.25,
)
FOOTER = Footer("limit", 2, 1, 2, 1, 0.75, 0.125, tail="\ufffd", setup={"oracle_seconds": 1.0})


def lines(*records):
    return [to_json(record) + "\n" for record in records]


def test_what_is_written_is_read_back(tmp_path):
    trace = Trace(HEADER, [ITERATION], FOOTER)
    write_trace(tmp_path / "run.jsonl", trace)
    assert read_trace(tmp_path / "run.jsonl") == trace
    assert trace.output_ids == (7, 9) and trace.text == " a🙂\ufffd" and trace.finished
    assert not list(tmp_path.glob("*.part"))


def test_each_record_is_one_line_of_strict_json(tmp_path):
    write_trace(tmp_path / "run.jsonl", Trace(HEADER, [ITERATION], FOOTER))
    raw = (tmp_path / "run.jsonl").read_bytes()
    rows = [json.loads(line) for line in raw.split(b"\n") if line]
    assert [row["kind"] for row in rows] == ["header", "iteration", "footer"]
    assert rows[0]["schema"] == SCHEMA
    odd = Iteration(0, 3, (), "length", 0, None, draft_seconds=math.nan)
    assert json.loads(to_json(odd))["draft_seconds"] is None


def test_lone_surrogates_do_not_stop_a_log(tmp_path):
    header = Header(method={}, target={}, draft=None, prompt="half \ud83d", prompt_ids=(1,), limit=1)
    write_trace(tmp_path / "run.jsonl", Trace(header, [], None))
    assert read_trace(tmp_path / "run.jsonl").header.prompt.startswith("half ")


def test_unknown_keys_and_kinds_are_ignored():
    row = json.loads(to_json(HEADER)) | {"mood": "good"}
    trace = parse_trace([json.dumps(row) + "\n", '{"kind":"note","text":"later"}\n', *lines(ITERATION, FOOTER)])
    assert trace.header == HEADER and trace.iterations == [ITERATION]


def test_an_unfinished_file_opens_and_says_so(tmp_path):
    trace = parse_trace(lines(HEADER, ITERATION))
    assert not trace.finished and trace.problems == ["the run is unfinished: it has no footer"]
    cut = "".join(lines(HEADER, ITERATION, ITERATION))[:-40]
    (tmp_path / "cut.jsonl").write_text(cut, encoding="utf-8")
    trace = read_trace(tmp_path / "cut.jsonl")
    assert trace.iterations == [ITERATION]
    assert trace.problems[0] == "line 3 is cut short and was left out"


def test_a_writer_that_is_interrupted_keeps_what_it_had(tmp_path):
    path = tmp_path / "run.jsonl"
    with pytest.raises(KeyboardInterrupt), TraceWriter(path) as writer:
        writer.write(HEADER)
        writer.write(ITERATION)
        raise KeyboardInterrupt
    assert read_trace(path).iterations == [ITERATION]
    other = TraceWriter(tmp_path / "killed.jsonl")
    other.write(HEADER)  # and the process is killed here
    assert read_trace(tmp_path / "killed.jsonl.part").header == HEADER


def broken(record, **changes):
    row = json.loads(to_json(record))
    for key, value in changes.items():
        if value is ...:
            del row[key]
        else:
            row[key] = value
    return json.dumps(row) + "\n"


@pytest.mark.parametrize(("rows", "message"), [
    (["nonsense\n", *lines(ITERATION)], "line 1: not JSON"),
    ([], "no records"),
    (["[1]\n"], "line 1: a record is a JSON object, not list"),
    (["{}\n"], 'line 1: no "kind"'),
    (lines(ITERATION), "line 1: a iteration before the header"),
    (lines(HEADER, HEADER), "line 2: a second header"),
    (lines(HEADER, FOOTER, ITERATION), "line 3: a record after the footer"),
    ([broken(HEADER, schema=99)], "schema 99 is newer"),
    ([broken(HEADER, prompt=...)], 'line 1: "prompt" is missing'),
    ([broken(HEADER, prompt=5)], '"prompt": text is needed, not 5'),
    ([broken(HEADER, prompt_ids=[1.5])], '"prompt_ids": a whole number is needed'),
    ([broken(HEADER, limit=-1)], '"limit": out of range'),
    (lines(HEADER) + [broken(ITERATION, index=4)], "line 2: iteration 4 where 0 was expected"),
    (lines(HEADER) + [broken(ITERATION, accepted=5)], '"accepted" is 5 of 2 drafted'),
    (lines(HEADER) + [broken(ITERATION, stop="mood")], '"stop": one of length'),
    (lines(HEADER) + [broken(ITERATION, draft_seconds=1e999)], "line 2: Infinity is not valid JSON"),
    (lines(HEADER) + [broken(ITERATION, draft=[{"id": 1, "text": "a", "confidence": 2}])], "between 0 and 1"),
    (lines(HEADER) + [broken(ITERATION, start=True)], "a whole number is needed, not True"),
    (lines(HEADER) + ["{" + '"a":' * 3 + "\n"], "line 2: not JSON"),
    (lines(HEADER) + ["[" * 100_000 + "\n"], "line 2: nested too deeply"),
    (lines(HEADER) + ['{"kind":"iteration","index":' + "9" * 5000 + "}\n"], "line 2: "),
])
def test_a_broken_line_gives_its_number_and_reason(rows, message):
    with pytest.raises(TraceError) as error:
        parse_trace(rows)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
