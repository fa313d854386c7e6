"""What goes into a page stays text, whatever it is."""

import json

import numpy as np
import pandas as pd

from attnlimit.report.page import document, embedded, escape, table, token_page


def test_embedded_data_cannot_close_its_script():
    text = embedded({"a": "</script><script>", "b": float("nan"), "c": "\u2028"})
    assert "<" not in text
    assert json.loads(text) == {"a": "</script><script>", "b": None, "c": "\u2028"}


def test_tables_and_titles_are_escaped():
    assert "<i>" not in table(pd.DataFrame({"<i>": ["<i>"]}))
    assert "<title>&lt;i&gt;</title>" in document("<i>", "", {}, [])
    assert escape('"') == "&quot;"


def test_only_a_page_that_draws_carries_plotly():
    assert "plotly" not in document("title", "<p>words</p>")
    assert "plotly" in document("title", "", {"figures": []}, ["draw()"])


def test_the_token_page_shades_by_rank_and_escapes():
    page = token_page(["one", "<i>"], np.array([0.1, 9.0]), title="t", source="a<b>")
    assert "<i>" not in page
    assert "a<b>" not in page
    assert "rgba(213, 94, 0, 0.0)" in page
    assert "rgba(213, 94, 0, 0.85)" in page
