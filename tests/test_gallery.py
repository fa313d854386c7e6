"""Every script of the gallery runs as it stands, and draws its picture or prints its table."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SMALLER = {  # fewer draws and articles: seconds
    "finite_n_moments": ["gallery/finite_n_moments.png", "6"],
    "plan_transfer": ["6"],
}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_runs(script, tmp_path):
    done = subprocess.run(
        [sys.executable, str(script), *SMALLER.get(script.stem, [])],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    if "gallery" not in script.read_text():
        assert len(done.stdout.splitlines()) > 3
        return
    picture = tmp_path / "gallery" / f"{script.stem}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
