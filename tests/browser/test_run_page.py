"""The page of a run in a real browser, whatever the name of its folder is."""

import pytest

from attnlimit.reproduce import execute, load
from attnlimit.reproduce.result import write_report


@pytest.fixture(scope="module")
def path(browser, tmp_path_factory):
    root = tmp_path_factory.mktemp("<img src=x onerror=alert(1)>")
    config = {"horizons": [0.5], "n": [20, 50], "replicates": 20, "block": 10, "seed": 1}
    experiment = load("clt")
    run = execute(experiment, experiment.config(False) | config, root)
    return write_report(run, root / "run.html")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "light"), (1280, "dark")])
def test_the_page_loads_quietly_and_fits(visit, path, width, scheme):
    seen = visit(path, width=width, scheme=scheme)
    assert seen.page.locator("#figure-0-0 .main-svg").count() > 0
    seen.keep(f"{path.stem}-{width}-{scheme}")
    assert seen.errors == []
    assert seen.outside() == []
    assert seen.dialogs == []
    assert seen.fits()
    assert seen.page.locator("h1 img, h1 b, table img, svg img").count() == 0


def test_a_wide_table_scrolls_by_keyboard(visit, path):
    seen = visit(path, width=360)
    table = seen.page.locator(".scroll").first
    table.focus()
    for _ in range(5):
        seen.page.keyboard.press("ArrowRight")
    seen.page.wait_for_timeout(300)
    assert table.evaluate("node => node.scrollLeft") > 0


def test_the_page_prints(visit, path, tmp_path):
    seen = visit(path)
    seen.page.emulate_media(media="print")
    seen.page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 10_000
    assert seen.errors == []
