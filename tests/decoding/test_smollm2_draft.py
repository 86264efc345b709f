"""The draft for SmolLM2 changes none of its tokens, on any of the held-out prompts."""

from __future__ import annotations

import pytest

from specviz.analysis.prompts import load_prompts
from specviz.decoding import MethodConfig, build, check_run, decode
from specviz.models import zoo
from specviz.models.loading import encode_prompt, load_pair
from specviz.trace import Trace

TASKS = ("open-ended", "summarisation", "code")


@pytest.mark.slow
@pytest.mark.skipif(not zoo.MODELS["smollm2-draft"].here, reason="SmolLM2 is not fetched, or its draft is not shipped")
@pytest.mark.parametrize("config", [MethodConfig("constant", lookahead=4), MethodConfig("dynamic")], ids=["constant", "dynamic"])
def test_the_output_is_smollm2s_own(config):
    target, draft = load_pair("smollm2", "smollm2-draft", device="cpu", download=False)
    prompts = [prompt for task in TASKS for prompt in load_prompts(task)]
    assert len(prompts) >= 60
    for prompt in prompts:
        ids = encode_prompt(target, prompt.text, chat=prompt.form == "instruction")
        trace = Trace.collect(decode(ids, build(config, target, draft), 24))
        found = check_run(trace, target)
        assert found.identical or found.near_tie, (prompt.id, found.verdict())
