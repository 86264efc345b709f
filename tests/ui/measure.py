"""Measures the page in a browser and prints one line a figure: ``python -m tests.ui.measure``.

No test asserts these numbers: they belong to the machine. Run it on a quiet one.
"""

from __future__ import annotations

import json
import os
import statistics

from tests.ui import handmade
from tests.ui.conftest import ARGUMENTS, CHROMIUM, free_port
from tests.ui.helpers import lines_of

MOVED = "document.querySelectorAll('.sv-tokens .sv-tok:not([hidden])').length > 0"


def main() -> None:
    from playwright.sync_api import sync_playwright

    from specviz.ui.page import build, launch

    demo = build()
    url = launch(demo, prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", server_port=free_port())[1]
    found: dict[str, float] = {"load": os.getloadavg()[0]}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, "--enable-precise-memory-info"])
        for name in ("cold", "cold again"):
            context = browser.new_context()
            page = context.new_page()
            found[f"opening to first motion, {name} (s)"] = opening(page, url)
            page.wait_for_selector("html.sv-mounted", state="attached")
            found[f"opening to Gradio mounted, {name} (s)"] = since_navigation(page)
        page.wait_for_function("Boolean(window.Plotly)")
        found["opening to first motion, warm (s)"] = opening(page, url)
        page.wait_for_selector("html.sv-mounted", state="attached")
        page.wait_for_function("Boolean(window.Plotly)")
        found |= running(page)
        found |= heap(page)
        found |= sliding(page)
        browser.close()
    found |= cost_of_watching(url)
    demo.close()
    for name, value in found.items():
        print(f"{name:<60} {value:.3g}")
    print(json.dumps(found))


def opening(page, url: str) -> float:
    page.goto(url, wait_until="commit")
    page.wait_for_function(MOVED, polling=20)
    return since_navigation(page)


def since_navigation(page) -> float:
    return page.evaluate("performance.now()") / 1000


def running(page) -> dict[str, float]:
    """A click on run to the first token, and the last token to the last paint; the models are loaded by a first run."""
    out: dict[str, list[float]] = {"click on run to first token (s)": [], "last token to last paint (s)": []}
    for attempt in range(4):
        times = page.evaluate(
            """() => new Promise((resolve) => {
                const app = window.specviz.app, watch = app.view('watch'), begun = performance.now();
                const times = {};
                const look = () => {
                    const trace = watch.stage.trace;
                    if (!times.first && watch.stage.source.kind === 'live' && trace.iterations.length) times.first = performance.now() - begun;
                    if (!times.last && trace.footer && watch.stage.source.kind === 'live') times.last = performance.now() - begun;
                    const drawn = Number(watch.figures.node.dataset.iterations ?? -1);
                    if (times.last && drawn === trace.iterations.length && !watch.figures.timer) {
                        times.paint = performance.now() - begun;
                        resolve(times);
                    } else requestAnimationFrame(look);
                };
                watch.stage.source = { kind: 'none' };
                watch.run();
                look();
            })"""
        )
        page.wait_for_selector("[data-do=run]:visible")
        if attempt:
            out["click on run to first token (s)"].append(times["first"] / 1000)
            out["last token to last paint (s)"].append((times["paint"] - times["last"]) / 1000)
    return {name: statistics.median(values) for name, values in out.items()}


def heap(page) -> dict[str, float]:
    """JS heap after 50 and after 500 updates of all four figures."""
    page.evaluate("text => window.specviz.app.openText(text)", lines_of(handmade.trace(iterations=60)))
    sizes = page.evaluate(
        """async () => {
            const { stage, figures } = window.specviz.app.view('watch');
            stage.player.pause();
            const rest = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 4)));
            const sizes = {};
            for (let i = 1; i <= 500; i += 1) {
                stage.player.seek((i * 7) % stage.trace.ticks);
                figures.draw();
                await rest();
                if (i === 50 || i === 500) {
                    if (window.gc) window.gc();
                    await new Promise((resolve) => setTimeout(resolve, 1500));
                    sizes[i] = performance.memory.usedJSHeapSize;
                }
            }
            return sizes;
        }"""
    )
    return {"JS heap after 500 updates / after 50": sizes["500"] / sizes["50"], "JS heap after 500 (MB)": sizes["500"] / 1e6}


def sliding(page) -> dict[str, float]:
    page.click("#sv-tab-explore")
    page.click("#sv-panel-explore [data-do=probe]")
    page.wait_for_function("document.querySelector('#sv-panel-explore > div').dataset.answers", timeout=120_000)
    took = page.evaluate(
        """async () => {
            const slider = document.querySelector('#sv-field-explore-lookahead'), view = document.querySelector('#sv-panel-explore > div');
            const took = [];
            for (const value of [3, 7, 12, 5, 9, 2, 14, 6]) {
                const before = view.dataset.answers, begun = performance.now();
                slider.value = value;
                slider.dispatchEvent(new Event('input'));
                while (view.dataset.answers === before) await new Promise(requestAnimationFrame);
                took.push(performance.now() - begun);
            }
            return took;
        }"""
    )
    return {"slider to picture, median (s)": statistics.median(took) / 1000, "slider to picture, worst (s)": max(took) / 1000}


def cost_of_watching(url: str) -> dict[str, float]:
    """Tokens per second of one run without any page, and of the same run with a page that watches; interleaved."""
    from gradio_client import Client
    from playwright.sync_api import sync_playwright

    request = {"pair": "tiny", "method": "dynamic", "prompt": "def add(a, b):", "limit": 256}
    client = Client(url, verbose=False)
    alone, watched = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page()
        page.goto(url + "?pair=tiny&method=dynamic&limit=256&prompt=def add(a, b):", wait_until="commit")
        page.wait_for_selector("html.sv-mounted", state="attached")
        page.wait_for_function("Boolean(window.Plotly)")
        for _ in range(5):
            alone.append(speed(client.predict(**request, api_name="/decode")["records"][-1]))
            page.click("[data-do=run]")
            page.wait_for_selector("[data-do=stop]:visible")
            page.wait_for_selector("[data-do=run]:visible", timeout=120_000)
            watched.append(speed(page.evaluate("window.specviz.app.view('watch').stage.trace.footer")))
        browser.close()
    ratios = [b / a for a, b in zip(alone, watched, strict=True)]
    return {
        "tokens a second, nobody watching": statistics.median(alone),
        "tokens a second, watched": statistics.median(watched),
        "watched / alone": statistics.median(ratios),
    }


def speed(footer: dict) -> float:
    return footer["tokens"] / footer["seconds"]


if __name__ == "__main__":
    main()
