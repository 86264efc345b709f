"""The one Gradio component of the page: a gr.HTML that carries our page and speaks with this process.

Its template is empty: the page is drawn by the scripts of assets/page, which the head loads. Data reaches the
browser as JSON and becomes text there; nothing of a visitor or a model is ever part of a template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gradio as gr

TEMPLATE = '<div class="sv-mount"></div>'

# 'work' is the event that makes the models work; the rest goes through the server functions.
ON_LOAD = """
const tools = { server, trigger: (name, detail) => trigger(name, detail) };
const events = ['work'];
if (window.specviz?.mount) window.specviz.mount(element, tools);
else window.specvizWaiting = [element, tools];
"""


def player(server_functions: Sequence[Callable]) -> gr.HTML:
    """The component, inside the Blocks that are being built."""
    return gr.HTML(
        html_template=TEMPLATE,
        js_on_load=ON_LOAD,
        apply_default_css=False,
        server_functions=list(server_functions),
        elem_id="sv-component",  # not "specviz": an element's id is also a global name in the browser
    )
