"""Pages are short enough, easy enough to read, and spelled right."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import prose  # noqa: E402

PLACES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs", "examples", "src")
NOT_WORDS = "*.json,*.js,*.svg,*.png,*.bib,_build,_explorer,gallery,api"


@pytest.mark.parametrize("group", prose.MOST_WORDS)
def test_pages_have_no_more_words_than_a_reader_has_time(group):
    assert 0 < prose.totals()[group] <= prose.MOST_WORDS[group]


@pytest.mark.parametrize("page", prose.first_contact(), ids=lambda page: page.name)
def test_first_pages_are_easy_to_read(page):
    pytest.importorskip("textstat", reason="needs the extra `docs`")
    assert prose.reading_ease(page) >= prose.LEAST_EASE


def test_words_are_spelled_right():
    pytest.importorskip("codespell_lib", reason="needs the extra `docs`")
    command = [sys.executable, "-m", "codespell_lib", *PLACES, "--skip", NOT_WORDS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
