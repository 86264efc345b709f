"""At home a model can be typed; the form takes it as it takes the others."""

from __future__ import annotations

import pytest

from specviz.models import zoo
from tests.ui.helpers import IDENTICAL, run

# A browser and a run.
pytestmark = pytest.mark.slow


def test_a_folder_is_typed_and_runs(visit):
    page = visit("?pair=tiny&limit=16")
    page.click(".sv-other-model summary")
    target = page.locator(".sv-other-model input").first
    target.fill("/no/such/folder")
    page.click("[data-do=use-model]")
    page.wait_for_function("document.querySelector('#sv-error-pair').textContent.includes('no such folder')")
    target.fill(str(zoo.ASSETS / "tiny-plain"))
    page.click("[data-do=use-model]")
    page.wait_for_function("document.querySelector('#sv-field-pair').value.endsWith('tiny-plain')")
    assert not page.inner_text("#sv-error-pair")
    run(page)
    page.wait_for_selector(IDENTICAL)
