"""A real browser, where there is one."""

import shutil
from pathlib import Path

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: run `make browser`"
    )
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Chromium is not installed: run `make browser`")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with api.sync_playwright() as playwright:
        result = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield result
        result.close()


class Visit:
    """A page with everything it did: console errors, failures, requests and dialogs."""

    def __init__(self, browser, path, width=1280, scheme="light", ready="body[data-ready=yes]"):
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.errors, self.requests, self.dialogs = [], [], []
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda d: (self.dialogs.append(d.message), d.dismiss()))
        self.page.goto(f"file://{path}")
        self.page.wait_for_selector(ready, timeout=60_000, state="attached")

    def outside(self):
        """Requests that left the machine."""
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]

    def fits(self):
        """Whether the page is as narrow as its window, once pictures have followed its width."""
        for _ in range(50):
            if self.page.evaluate(
                "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            ):
                return True
            self.page.wait_for_timeout(100)
        return False

    def keep(self, name):
        self.page.wait_for_timeout(300)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@pytest.fixture
def visit(browser):
    opened = []

    def go(path, **options):
        opened.append(Visit(browser, path, **options))
        return opened[-1]

    yield go
    for entry in opened:
        entry.page.close()
