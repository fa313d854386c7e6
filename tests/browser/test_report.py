"""The report in a real browser: it answers clicks and keys, and nothing leaves the machine."""

import pytest

from made_page import made_page


@pytest.fixture(scope="module")
def path(browser, tmp_path_factory):
    return made_page(tmp_path_factory.mktemp("pages") / "report.html")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "light"), (1280, "dark")])
def test_the_page_loads_quietly_and_fits(visit, path, width, scheme):
    seen = visit(path, width=width, scheme=scheme)
    assert seen.page.locator("#output-plot .main-svg").count() > 0
    seen.keep(f"report-{width}-{scheme}")
    assert seen.errors == []
    assert seen.outside() == []
    assert seen.dialogs == []
    assert seen.fits()


def test_the_answer_comes_first_and_is_the_models(visit, path):
    seen = visit(path)
    assert "keeps its embedding within 0.1 %" in seen.page.locator("h1").inner_text()
    assert "predicted" in seen.page.locator(".cards").first.inner_text()
    assert "measured on a passage not planned on" in seen.page.locator(".cards").first.inner_text()


def test_the_slider_moves_the_plan_the_curve_and_the_map(visit, path):
    seen = visit(path)
    shown = {
        "facts": "document.getElementById('target-facts').innerText",
        "command": "document.getElementById('target-command').innerText",
        "star": "document.getElementById('output-plot').data.at(-1).x.join()",
        "line": "document.getElementById('output-plot').layout.shapes[0].y0",
        "map": "document.querySelector('#map button').title",
    }
    before = {name: seen.page.evaluate(code) for name, code in shown.items()}
    seen.page.locator("#target").focus()
    for _ in range(3):
        seen.page.keyboard.press("ArrowLeft")
    after = {name: seen.page.evaluate(code) for name, code in shown.items()}
    assert {name for name in shown if before[name] == after[name]} == set()
    assert float(after["star"]) > float(before["star"])
    assert "--cosine 0.9997" in after["command"]
    assert seen.errors == []


def test_the_curve_has_every_scheme_predicted_and_measured(visit, path):
    seen = visit(path)
    traces = seen.page.evaluate(
        "document.getElementById('output-plot').data.map(t => [t.legendgroup, t.mode, !!t.error_y])"
    )
    for scheme in ("threshold", "top-k + sample"):
        assert [scheme, "lines", False] in traces
        assert [scheme, "markers", True] in traces
    for scheme in ("top-k", "top-p", "sinks + recent"):
        assert [scheme, "lines+markers", False] in traces
    assert ["bound", "lines", False] in traces


def test_a_command_can_be_copied(visit, path):
    seen = visit(path)
    seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    box = seen.page.locator(".next .command").first
    box.get_by_role("button").click()
    box.get_by_text("copied").wait_for()
    copied = seen.page.evaluate("navigator.clipboard.readText()")
    assert copied == box.locator("code").inner_text()
    assert copied.startswith("attnlimit plan --model ")


def test_the_map_answers_the_keyboard(visit, path):
    seen = visit(path)
    seen.page.locator("#map button").nth(0).focus()
    seen.page.keyboard.press("ArrowDown")
    seen.page.keyboard.press("ArrowRight")
    assert "layer 1, head 1" in seen.page.locator("#hint").inner_text()


def test_a_deep_model_lies_on_its_side_where_there_is_room(visit, browser, tmp_path):
    seen = visit(made_page(tmp_path / "deep.html", layers=7))
    assert seen.page.locator("#map-way").inner_text().startswith("layers across")
    seen.page.locator("#map button").nth(0).focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        seen.page.keyboard.press(key)
    assert "layer 2, head 1" in seen.page.locator("#hint").inner_text()
    seen.page.set_viewport_size({"width": 360, "height": 900})
    # the page learns its new width when the browser gets to it
    seen.page.locator("#map-way", has_text="layers downwards").wait_for()
    assert seen.fits()


def test_the_map_changes_what_it_shows(visit, path):
    seen = visit(path)
    before = seen.page.locator("#map button").nth(0).inner_text()
    seen.page.get_by_label("keys read", exact=True).check()
    assert seen.page.locator("#map button").nth(0).inner_text() != before


def test_the_page_prints(visit, path, tmp_path):
    seen = visit(path)
    seen.page.emulate_media(media="print")
    assert not seen.page.locator("#quantity").is_visible()
    seen.page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 10_000
