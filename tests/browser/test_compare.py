"""Two runs side by side in a real browser, whatever their names are."""

import pytest

from attnlimit.reproduce.pages import write_comparison
from made_run import made_run


@pytest.fixture(scope="module", params=[2, 4], ids=["alike", "unlike"])
def path(browser, request, tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as monkeypatch:
        first = made_run(root, monkeypatch)
        text = "wikipedia:<img src=x onerror=alert(1)>"
        second = made_run(root, monkeypatch, text=text, layers=request.param)
    return write_comparison(first, second, root / f"compare-{request.param}.html")


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
