"""The Python of README and guides runs as it is printed, block by block, each by itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/start.md", "docs/montecarlo.md", "docs/reproduce.md")
BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)
    )
]


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs(block):
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 1 or "print" not in block
