"""The cases that a decoding loop gets wrong."""

import gc
import itertools
import weakref

import pytest
import torch

from specviz.decoding import FULL_DETAIL, MethodConfig, Sampling, build, check_run, decode
from specviz.errors import UsageError
from specviz.models.streams import PublicStream
from specviz.trace import Footer, Header, Trace
from tests.decoding.reference import encode, generate, run, run_method
from tests.tiny import EOS, PROMPTS, tiny_model, tiny_pair

METHODS = ("constant", "heuristic", "dynamic", "oracle", "prompt-lookup", "early-exit", "early-exit-dynamic")


def test_a_draft_equal_to_its_target_is_always_accepted():
    target = tiny_model("llama")
    trace = run(encode(target, PROMPTS[0]), target, target, 31, name="constant", lookahead=5)
    assert trace.footer.accepted == trace.footer.drafted > 0
    assert {iteration.ending.kind for iteration in trace.iterations} == {"bonus"}
    assert [iteration.accepted for iteration in trace.iterations] == [5, 5, 5, 5, 5, 0]


def test_a_draft_that_is_never_right_costs_nothing_but_time():
    target = tiny_model("llama")
    ids = encode(target, PROMPTS[0])

    class Contrary:
        """Drafts what the target will surely refuse: its least probable token."""

        def prefill(self, sequence): ...
        def rewind(self, length): ...
        def close(self): ...

        def propose(self, sequence, policy, lookahead, budget):
            from specviz.decoding.drafters import Draft
            from specviz.decoding.sampling import Pick

            logits = target.model(torch.tensor([sequence])).logits[0, -1]
            return Draft([Pick(int(logits.argmin()), 0.9)] * min(lookahead, budget))

    method = build(MethodConfig("constant", lookahead=3), target, target)
    session_of = method.open

    def open_contrary(prompt_ids, limit, picker):
        session = session_of(prompt_ids, limit, picker)
        session.drafter.close()
        session.drafter = Contrary()
        return session

    object.__setattr__(method, "open", open_contrary)
    trace = run_method(ids, method, 12)
    assert trace.footer.accepted == 0
    assert {iteration.ending.kind for iteration in trace.iterations[:-1]} == {"correction"}
    assert list(trace.output_ids) == generate(target, ids, 12)


@pytest.mark.parametrize("name", METHODS)
def test_the_limit_holds_in_the_middle_of_a_draft(name):
    target, draft = tiny_pair("llama", likeness=0.995)
    ids = encode(target, PROMPTS[1])
    for limit in range(1, 12):
        trace = run(ids, target, draft, limit, name=name)
        assert len(trace.output_ids) == limit == trace.footer.tokens
        assert trace.footer.end == "limit"


@pytest.mark.parametrize("name", METHODS)
def test_a_prompt_of_one_token(name):
    target, draft = tiny_pair("llama")
    trace = run([77], target, draft, 10, name=name)
    assert list(trace.output_ids) == generate(target, [77], 10)


@pytest.mark.parametrize("name", METHODS)
def test_every_end_of_sequence_id_stops_also_inside_a_draft(name):
    plain = tiny_model("llama")
    ids = encode(plain, PROMPTS[0])
    text = generate(plain, ids, 20)
    for place in (3, 8):
        target, draft = tiny_pair("llama", likeness=0.995, eos_ids=(EOS, text[place]))
        trace = run(ids, target, draft, 20, name=name)
        assert trace.footer.end == "eos"
        assert list(trace.output_ids) == text[: text.index(text[place]) + 1]


def test_nothing_is_drafted_at_lookahead_0():
    target, draft = tiny_pair("llama")
    ids = encode(target, PROMPTS[0])
    trace = run(ids, target, draft, 9, name="constant", lookahead=0)
    assert trace.footer.drafted == 0 and trace.footer.iterations == 9
    assert list(trace.output_ids) == generate(target, ids, 9)


def test_threshold_0_never_stops_and_threshold_1_drafts_one_token():
    target, draft = tiny_pair("llama")
    ids = encode(target, PROMPTS[0])
    never = run(ids, target, draft, 24, name="dynamic", lookahead=6, threshold=0.0)
    constant = run(ids, target, draft, 24, name="constant", lookahead=6)
    assert [i.drafted for i in never.iterations] == [i.drafted for i in constant.iterations]
    one = run(ids, target, draft, 24, name="dynamic", lookahead=6, threshold=1.0)
    assert {i.drafted for i in one.iterations[:-1]} == {1}
    assert {i.stop for i in one.iterations[:-1]} == {"confidence"}


def test_the_unsure_token_stays_in_the_draft():
    target, draft = tiny_pair("llama")
    trace = run(encode(target, PROMPTS[0]), target, draft, 40, name="dynamic", threshold=0.5)
    stopped = [i for i in trace.iterations if i.stop == "confidence"]
    assert stopped
    for iteration in stopped:
        assert iteration.draft[-1].confidence < 0.5
        assert all(token.confidence >= 0.5 for token in iteration.draft[:-1])


def test_the_context_window_ends_a_run():
    target, draft = tiny_pair("llama", max_position_embeddings=64)
    ids = encode(target, "abcdefgh" * 7)
    assert 40 < len(ids) < 64
    for name in METHODS:
        trace = run(ids, target, draft, 100, name=name)
        assert trace.footer.end == "context"
        assert len(ids) + len(trace.output_ids) == 64


def test_a_prompt_longer_than_the_context_window_is_refused():
    target = tiny_model("llama", max_position_embeddings=64)
    with pytest.raises(UsageError, match="takes 64 in all: shorten it"):
        run([9] * 64, target, name="autoregressive")


def test_a_draft_model_with_a_shorter_window_falls_silent_behind_it():
    target = tiny_model("llama", max_position_embeddings=128)
    draft = tiny_model("llama", max_position_embeddings=48)
    ids = encode(target, "abcdefgh" * 4)
    expected = generate(target, ids, 60)
    for name in ("constant", "dynamic", "heuristic", "oracle"):
        trace = run(ids, target, draft, 60, name=name)
        assert list(trace.output_ids) == expected
        assert all(i.drafted == 0 for i in trace.iterations if i.start > 49)
    long = encode(target, "abcdefgh" * 9)
    assert list(run(long, target, draft, 20, name="dynamic").output_ids) == generate(target, long, 20)


def test_empty_prompts_and_limits_are_refused():
    target = tiny_model("llama")
    with pytest.raises(UsageError, match="empty"):
        run([], target, name="autoregressive")
    with pytest.raises(UsageError, match="limit=0"):
        run([5], target, limit=0, name="autoregressive")


def test_padded_vocabularies_of_one_tokenizer_go_together():
    target = tiny_model("llama", vocab_size=304)
    draft = tiny_model("llama", vocab_size=320, seed=0)
    for left, right in ((target, draft), (draft, target)):
        ids = encode(left, PROMPTS[0])
        for sampling in (Sampling(), Sampling(temperature=1.0, seed=4)):
            trace = run(ids, left, right, 24, name="constant", sampling=sampling)
            assert all(token.id < 304 for i in trace.iterations for token in i.draft)
            if sampling.greedy:
                assert list(trace.output_ids) == generate(left, ids, 24)


def test_a_missing_draft_model_and_a_wrong_exit_layer_say_what_to_do():
    target = tiny_model("llama")
    with pytest.raises(UsageError, match="needs a draft model"):
        build(MethodConfig("dynamic"), target)
    with pytest.raises(UsageError, match="this model has 6 layers, choose 1..5"):
        build(MethodConfig("early-exit", exit_layer=6), target)


@pytest.mark.parametrize("name", ["constant", "early-exit", "dynamic", "prompt-lookup"])
def test_rejected_tokens_leave_no_trace_in_the_cache(name):
    target, draft = tiny_pair("llama", likeness=0.9)
    ids = encode(target, PROMPTS[2])
    method = build(MethodConfig(name), target, draft)
    sessions = []
    opener = method.open
    object.__setattr__(method, "open", lambda *args: sessions.append(opener(*args)) or sessions[0])
    records = decode(ids, method, 30)
    for record in records:
        if record.kind == "iteration":
            assert sessions[0].verifier.stream.length == len(ids) + record.start - len(ids) + len(record.ids) - 1
    assert sessions[0].sequence == [*ids, *generate(target, ids, 30)]


@pytest.mark.parametrize("name", METHODS)
def test_a_caller_that_stops_leaves_no_cache_behind(name):
    target, draft = tiny_pair("llama")
    closed, caches = [], []
    method = build(MethodConfig(name), target, draft)
    opener = method.open

    def watched(*args):
        session = opener(*args)
        stream = session.verifier.stream
        for value in vars(stream).values():
            if type(value).__name__ == "DynamicCache":
                caches.append(weakref.ref(value))
        close = session.close
        session.close = lambda: (closed.append(1), close())
        return session

    object.__setattr__(method, "open", watched)
    records = decode(encode(target, PROMPTS[0]), method, 40)
    for _ in itertools.islice(records, 3):
        pass
    records.close()
    del records
    gc.collect()
    assert closed
    assert all(cache() is None for cache in caches)


def test_an_exception_in_an_iteration_closes_everything_and_leaves_the_model_usable():
    target, draft = tiny_pair("llama")
    ids = encode(target, PROMPTS[0])
    expected = generate(target, ids, 20)
    before = target.model.config.to_dict()

    class Broken(RuntimeError):
        pass

    def fail(module, args):
        fail.calls += 1
        if fail.calls == 7:
            raise Broken

    fail.calls = 0
    handle = draft.model.register_forward_pre_hook(fail)
    try:
        method = build(MethodConfig("constant", lookahead=3), target, draft)
        opener = method.open
        closed = []

        def watched(*args):
            session = opener(*args)
            for part in (session.drafter, session.verifier):
                close = part.close
                part.close = lambda close=close: (closed.append(1), close())
            if isinstance(session.drafter._stream, PublicStream):
                return session
            session.drafter._stream = PublicStream(draft)
            return session

        object.__setattr__(method, "open", watched)
        with pytest.raises(Broken):
            run_method(ids, method, 20)
        assert len(closed) == 2
    finally:
        handle.remove()
    assert target.model.config.to_dict() == before
    assert list(run(ids, target, draft, 20, name="constant").output_ids) == expected


def test_records_come_one_by_one_and_hold_what_was_asked_for():
    target, draft = tiny_pair("llama")
    method = build(MethodConfig("dynamic", threshold=0.3), target, draft)
    records = list(decode(encode(target, "naïve"), method, 20, detail=FULL_DETAIL, prompt="naïve", command="x"))
    header, *iterations, footer = records
    assert isinstance(header, Header) and isinstance(footer, Footer)
    assert header.method == {"name": "dynamic", "lookahead": 20, "threshold": 0.3}
    assert header.prompt == "naïve" and header.command == "x" and header.limit == 20
    assert header.target["name"] == target.name and header.target["dtype"] == "float32"
    assert [i.index for i in iterations] == list(range(len(iterations)))
    position = len(header.prompt_ids)
    for iteration in iterations:
        assert iteration.start == position
        position += len(iteration.ids)
        for token in iteration.draft:
            assert len(token.alternatives) == 5 and token.entropy > 0
            assert token.alternatives[0].id == token.id  # greedy picks the most probable
            assert token.alternatives[0].probability == pytest.approx(token.confidence, abs=1e-6)
        assert iteration.ending.alternatives[0].id == iteration.ending.id
        assert iteration.ending.probability == pytest.approx(iteration.ending.alternatives[0].probability, abs=1e-6)
        for token in iteration.draft[: iteration.accepted]:
            assert token.target_probability > 0
    assert footer.tokens == 20 and footer.seconds > 0
    assert footer.drafted == sum(i.drafted for i in iterations)


def test_confidence_does_not_depend_on_what_is_recorded():
    target, draft = tiny_pair("llama")
    ids = encode(target, PROMPTS[0])
    method = build(MethodConfig("dynamic"), target, draft)
    plain, full = run_method(ids, method), run_method(ids, method, detail=FULL_DETAIL)
    assert [i.drafted for i in plain.iterations] == [i.drafted for i in full.iterations]
    for a, b in zip(plain.iterations, full.iterations, strict=True):
        assert [t.confidence for t in a.draft] == pytest.approx([t.confidence for t in b.draft], abs=1e-6)


def test_the_oracle_is_never_refused_and_needs_the_fewest_forwards():
    target, draft = tiny_pair("llama", likeness=0.95)
    ids = encode(target, PROMPTS[2])
    oracle = run(ids, target, draft, 48, name="oracle")
    assert all(i.accepted == i.drafted for i in oracle.iterations)
    assert {i.stop for i in oracle.iterations} <= {"oracle", "budget"}
    assert oracle.footer.setup["oracle_seconds"] > 0
    for parameters in ({"name": "constant", "lookahead": 8}, {"name": "heuristic"}, {"name": "dynamic"}):
        other = run(ids, target, draft, 48, **parameters)
        assert len(oracle.iterations) <= len(other.iterations)


def test_the_oracle_is_refused_for_sampling():
    target, draft = tiny_pair("llama")
    with pytest.raises(UsageError, match="temperature to 0"):
        run([5, 6], target, draft, 8, name="oracle", sampling=Sampling(temperature=1.0))


def test_a_seed_repeats_a_sampled_run():
    target, draft = tiny_pair("llama")
    ids = encode(target, PROMPTS[0])
    for name in ("autoregressive", "constant", "early-exit", "prompt-lookup"):
        texts = [
            run(ids, target, draft, 24, name=name, sampling=Sampling(temperature=1.2, top_p=0.95, seed=seed)).output_ids
            for seed in (1, 1, 2)
        ]
        assert texts[0] == texts[1] != texts[2]


def test_the_check_confirms_a_true_run_and_names_the_first_difference():
    target, draft = tiny_pair("llama")
    ids = encode(target, PROMPTS[0])
    trace = run(ids, target, draft, 20, name="dynamic")
    check = check_run(trace, target)
    assert check.identical and check.verdict() == "identical: 20 of 20 tokens" and check.speedup > 0
    other = run(ids, tiny_model("llama", seed=1), name="autoregressive", limit=20)
    forged = Trace(trace.header, other.iterations, other.footer)
    check = check_run(forged, target)
    assert not check.identical and not check.near_tie
    assert check.verdict().startswith(f"differs at token {check.position}: ")
    assert "logit gap" in check.verdict()
    with pytest.raises(UsageError, match="temperature"):
        check_run(run(ids, target, draft, 8, name="constant", sampling=Sampling(temperature=1.0)), target)


def test_prompt_lookup_copies_what_followed_the_same_words():
    from specviz.decoding.drafters import PromptLookupDrafter
    from specviz.decoding.policies import Constant

    drafter = PromptLookupDrafter(3, frozenset({99}))
    policy = Constant(4)
    cases = [
        ([1, 2, 3, 4, 5, 1, 2, 3], [4, 5, 1, 2], "length"),   # the longest n-gram, leftmost
        ([7, 8, 9, 8], [9, 8], "no-match"),                    # shorter copy: the text is not longer
        ([1, 2, 3], [], "no-match"),
        ([1, 2, 99, 4, 1, 2], [], "no-match"),                 # cut before the end of sequence
        ([1, 2, 5, 99, 1, 2], [5], "no-match"),
    ]
    for sequence, expected, stop in cases:
        drafter.prefill(sequence)
        draft = drafter.propose(sequence, policy, 4, 10)
        assert (draft.ids, draft.stop) == (expected, stop)
    drafter.prefill([])
    assert drafter.propose([1, 2, 3, 1, 2], policy, 4, 2).ids == [3, 1]
    assert drafter.propose([1, 2, 3, 1, 2], policy, 4, 2).stop == "budget"
