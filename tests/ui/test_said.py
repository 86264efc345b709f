"""What the core says reaches visitors in their language: recognised by its shape, so the core itself must say it here."""

from __future__ import annotations

import io
import re

import pytest

from specviz.decoding import MethodConfig, Sampling, build, decode
from specviz.errors import UsageError
from specviz.models.hub import _room
from specviz.models.loading import check_pair, encode_prompt
from specviz.models.locate import bring
from specviz.models.memory import check_fits
from specviz.trace import TraceError, parse_trace
from specviz.ui.said import said
from specviz.ui.texts import CATALOGUE
from tests import tiny
from tests.ui import handmade
from tests.ui.helpers import lines_of

JAPANESE = re.compile(r"[぀-ヿ一-鿿]")


def models():
    return tiny.tiny_pair("llama", likeness=0.9)


def drain(method, ids=(5, 6), **more):
    for _ in decode(list(ids), method, 4, **more):
        pass


def oracle():
    drain(build(MethodConfig("oracle"), *models()), sampling=Sampling(temperature=1.0))


def too_much():
    import torch

    check_fits("big", 10**13, torch.device("cpu"), 4)


CORE = {
    "core.exit_layer": lambda: build(MethodConfig("early-exit", exit_layer=99), models()[0]),
    "core.oracle": oracle,
    "core.needs_draft": lambda: build(MethodConfig("dynamic"), models()[0]),
    "core.no_draft_for": lambda: check_pair(models()[0], tiny.tiny_model("t5")),
    "core.prompt_empty": lambda: encode_prompt(models()[0], " "),
    "core.prompt_long": lambda: drain(build(MethodConfig("autoregressive"), models()[0]), [5] * 100_000),
    "core.memory": too_much,
    "core.disk_room": lambda: _room("owner/name", 10**18),
    "core.not_here": lambda: bring("owner/no-such-model", download=False),
    "core.no_layers": lambda: build(MethodConfig("early-exit", exit_layer=1), tiny.tiny_model("t5")),
}

LINES = lines_of(handmade.trace(iterations=2)).splitlines()
FILES = {
    "core.not_json": "{broken\n",
    "core.not_object": "[]\n",
    "core.no_kind": "{}\n",
    "core.missing": '{"kind": "header"}\n',
    "core.wrong": LINES[0].replace('"limit":200', '"limit":"x"') + "\n",
    "core.early": LINES[1] + "\n",
    "core.second_header": f"{LINES[0]}\n{LINES[0]}\n",
    "core.order": f"{LINES[0]}\n{LINES[2]}\n",
    "core.late": "\n".join([*LINES, LINES[1]]) + "\n",
    "core.no_records": "",
    "core.newer": re.sub(r'"schema":\s*\d+', '"schema":999', LINES[0]) + "\n",
}


@pytest.mark.parametrize("key", CORE)
def test_what_the_core_says_is_said_in_japanese(key):
    with pytest.raises(UsageError) as raised:
        CORE[key]()
    check(str(raised.value), key)


@pytest.mark.parametrize("key", FILES)
def test_what_is_wrong_with_a_file_is_said_in_japanese(key):
    with pytest.raises(TraceError) as raised:
        parse_trace(io.StringIO(FILES[key]))
    check(str(raised.value), key)


def check(message: str, key: str) -> None:
    assert said(message, "en") == message
    japanese = said(message, "ja", "")
    assert JAPANESE.search(japanese), message
    beginning = CATALOGUE["ja"][key].split("{")[0] or CATALOGUE["ja"][key].rsplit("}", 1)[-1]
    assert beginning in japanese, (message, japanese)
    assert not re.search(r"\{\w+\}", japanese)


def test_what_is_not_known_is_shown_with_a_word_about_it():
    assert said("something new", "ja").endswith("something new")
    assert JAPANESE.search(said("something new", "ja"))
    assert said("", "ja", "") == ""
