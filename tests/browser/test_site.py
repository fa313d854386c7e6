"""The site in a real browser, wide and narrow, light and dark; `make docs` builds it and asks."""

import os
import re
from pathlib import Path

import pytest

BUILT = os.environ.get("ATTNLIMIT_SITE", "")
pytestmark = pytest.mark.skipif(not BUILT, reason="there is no site: `make docs` builds one")

# One page of each kind, and one with much to scroll.
PAGES = [
    "index",
    "start",
    "compare",
    "evidence",
    "tutorials/model",
    "choose/scheme",
    "theory/exact-law",
    "theory/moments",
    "runs",
    "gallery/index",
    "gallery/exact_law",
    "reference/command-line",
    "reference/api/names/attnlimit.predict",
]
ARTICLE = "article.bd-article"
# Wide things that nobody can scroll to: past the window's left edge, or past its right one and no
# box around them scrolls.
LOST = """() => [...document.querySelectorAll("pre, table, mjx-container, img")]
  .filter(node => node.closest("article"))
  .filter(node => {
    const place = node.getBoundingClientRect();
    if (place.left < -1 && place.width) return true;
    if (place.right <= window.innerWidth + 1) return false;
    for (let box = node; box && box.tagName !== 'MAIN'; box = box.parentElement)
      if (/auto|scroll/.test(getComputedStyle(box).overflowX)) return false;
    return true;
  })
  .map(node => node.tagName + ' ' + node.innerText.slice(0, 40))"""
ALL_SET = """() => document.querySelectorAll("article .math").length
  === document.querySelectorAll("article mjx-container").length"""
# WCAG's ratio of the text's and the page's luminance.
CONTRAST = """() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const text = light(getComputedStyle(document.querySelector('article p')).color);
  const page = light(getComputedStyle(document.body).backgroundColor);
  return {ratio: (Math.max(text, page) + 0.05) / (Math.min(text, page) + 0.05), dark: page < text};
}"""


def path(name):
    return Path(BUILT).resolve() / f"{name}.html"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reads_well_wide_and_narrow_light_and_dark(visit, name):
    seen = visit(path(name), ready=ARTICLE)
    for width in (1280, 360):
        for scheme in ("light", "dark"):
            seen.page.set_viewport_size({"width": width, "height": 900})
            seen.page.emulate_media(color_scheme=scheme)
            seen.keep(f"site-{name.replace('/', '-')}-{width}-{scheme}")
            assert seen.fits()
            assert seen.page.evaluate(LOST) == []
            evaluation = seen.page.evaluate(CONTRAST)
            assert evaluation["dark"] == (scheme == "dark")
            assert evaluation["ratio"] > 4.5
    assert seen.errors == []
    assert seen.outside() == []


def test_no_page_asks_the_network_for_anything():
    pattern = re.compile(
        r"""<(?:script|img|iframe|link)\b[^>]*\s(?:src|href)=["'](?:https?:)?//[^"']*"""
    )
    pages = [*Path(BUILT).rglob("*.html")]
    assert len(pages) > 100
    actual = {
        entry for page in pages for entry in pattern.findall(page.read_text(encoding="utf-8"))
    }
    assert actual == set()


def test_mathematics_is_typeset(visit):
    seen = visit(path("theory/exact-law"), ready="mjx-container")
    seen.page.wait_for_function(ALL_SET)
    assert seen.page.locator("mjx-container").count() > 3
    assert seen.page.locator("mjx-merror, [data-mjx-error]").count() == 0
    assert "\\" not in seen.page.locator(ARTICLE).inner_text()
    assert seen.outside() == []


def test_search_finds_threshold(visit):
    seen = visit(f"{path('search')}?q=threshold", ready="#search-results li a")
    result = seen.page.locator("#search-results li a").all_inner_texts()
    assert any("hreshold" in title for title in result)
    assert seen.outside() == []
