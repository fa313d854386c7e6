"""The technical report is built from the pages, within a minute."""

import re
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
for library in ("sphinx", "pypandoc", "typst"):
    pytest.importorskip(library, reason="needs the extra `docs`")
import technical_report  # noqa: E402


def test_the_report_is_about_eight_pages_and_quick_to_build(tmp_path):
    start = time.perf_counter()
    technical_report.write_report(tmp_path / "attnlimit.pdf")
    assert time.perf_counter() - start < 60
    pdf = (tmp_path / "attnlimit.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert 6 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 10


def test_nothing_of_the_markup_of_the_site_is_left():
    text = technical_report.markdown()
    assert ":::" not in text
    assert "{include}" not in text
    for figure in technical_report.FIGURES:
        text = text.replace(f"]({figure})", "")
    assert "](" not in text
