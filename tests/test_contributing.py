"""The examples of CONTRIBUTING.md run as they are printed, each in a file of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
SECTIONS = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.M | re.S)
EXAMPLES = {
    title: code
    for title, text in SECTIONS
    for code in re.findall(r"```python\n(.*?)```", text, re.S)
}


def run(*arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_kind_of_extension_has_an_example():
    kinds = {"A distribution", "A sampler", "An eviction rule", "A target", "An experiment"}
    assert set(EXAMPLES) == kinds


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_runs(title, tmp_path):
    if "attnlimit.models" in EXAMPLES[title]:
        pytest.importorskip("transformers")
    file = tmp_path / "example.py"
    file.write_text(EXAMPLES[title])
    assert run(file) or title == "An experiment"


def test_the_example_of_an_experiment_is_reproduced(tmp_path):
    file = tmp_path / "example.py"
    file.write_text(EXAMPLES["An experiment"])
    sizes = ["--set", "n=[10,50]", "--set", "replicates=200", "--workers", "1"]
    out = run("-m", "attnlimit", "reproduce", file, *sizes, "--out", tmp_path / "runs")
    assert "Predictions are within" in out
