"""Programs find the page's work by name, with the same checks as visitors."""

from __future__ import annotations

import pytest

from specviz.trace import from_plain


@pytest.fixture(scope="module")
def client(app):
    from gradio_client import Client

    return Client(app.url, verbose=False)


def test_endpoints_have_names_and_documented_parameters(client):
    named = client.view_api(return_format="dict")["named_endpoints"]
    assert {"/decode", "/probe", "/sweep"} <= set(named)
    assert "/work" not in named
    names = {parameter["parameter_name"] for parameter in named["/decode"]["parameters"]}
    assert {"prompt", "pair", "method", "lookahead", "threshold", "exit_layer", "seed"} <= names
    assert "lookahead" in named["/decode"]["description"]


def test_decode_probe_and_sweep_answer(client):
    out = client.predict(prompt="def add(a, b):", pair="tiny", method="constant", limit=12, lookahead=3, api_name="/decode")
    kinds = [from_plain(record).kind for record in out["records"]]
    assert kinds[0] == "header" and kinds[-1] == "footer"
    assert out["check"]["kind"] == "identical"
    probe = client.predict(prompt="def add(a, b):", pair="tiny", limit=12, api_name="/probe")
    assert len(probe["match"][0]) == len(probe["output_ids"]) <= 12
    sweep = client.predict(
        prompt="def add(a, b):", pair="tiny", limit=12, lookaheads=[1, 4], thresholds=[0.0, 0.5], api_name="/sweep"
    )
    assert len(sweep["cells"]) == 4 and all(cell["predicted_speedup"] > 0 for cell in sweep["cells"])


@pytest.mark.parametrize("wrong", [{"pair": "x"}, {"method": "x"}, {"lookahead": 10**6}, {"prompt": ""}])
def test_wrong_requests_are_refused_in_words(client, wrong):
    with pytest.raises(Exception, match="choose|Lookahead|zoo|Method|empty"):
        client.predict(**({"prompt": "x", "pair": "tiny"} | wrong), api_name="/decode")


def test_nothing_outside_the_page_can_be_read(app):
    import httpx

    for path in ("/gradio_api/file=/etc/passwd", "/gradio_api/file=specviz/ui/page.py", "/specviz/../app.py", "/gradio_api/file=../../etc/passwd"):
        answer = httpx.get(app.url.rstrip("/") + path)
        assert answer.status_code in (403, 404), path
