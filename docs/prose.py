"""Words, reading ease and strong claims of the pages: `make prose` prints them, tests hold them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS = {"all pages": 45_000, "theory": 25_000}
LEAST_EASE = 50.0
CLAIMS = re.compile(r"\b(exact(?:ly)?|certified|unbiased|guarantees?d?)\b", re.I)
BUILT = {"_build", "api", "gallery", "tables", "jupyter_execute"}


def pages() -> list[Path]:
    """Return every page that is written by hand; tables are written by experiments."""
    docs = [page for page in sorted(ROOT.glob("docs/**/*.md")) if not BUILT & {*page.parts}]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *docs]


def first_contact() -> list[Path]:
    """Return the pages of the first hour, whose reading ease is held."""
    start = [ROOT / "README.md", ROOT / "docs/start.md", ROOT / "docs/install.md"]
    return start + sorted(ROOT.glob("docs/tutorials/*.md"))


def without_code(page: Path) -> str:
    """Return a page without its header, code, tables of numbers and displayed formulas."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    text = re.sub(r"^(```+|:::+)\{(toctree|figure|include)\}.*?^\1", "", text, flags=re.M | re.S)
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"\$\$.*?\$\$", "", text, flags=re.S)
    return re.sub(r"^(:::+.*|:\w+:.*|    .*)$", "", text, flags=re.M)


def sentences(page: Path) -> str:
    """Return running text alone: no headings, tables, links' targets or names of code."""
    text = re.sub(r"^(#.*|\|.*)$", "", without_code(page), flags=re.M)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"^\s*(?:[-*]|\d+\.) ", "", text, flags=re.M)
    return re.sub(r"\*+", "", text)


def words(page: Path) -> int:
    """Return the number of words of a page, those in tables and inline code counted."""
    return sum(bool(re.search(r"\w", word)) for word in without_code(page).split())


def reading_ease(page: Path) -> float:
    """Return Flesch's reading ease of a page's sentences."""
    import textstat

    return float(textstat.flesch_reading_ease(sentences(page)))


def claims(page: Path) -> list[tuple[int, str]]:
    """Return the lines that say exact, certified, unbiased or guarantee."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return [(at, line.strip()) for at, line in enumerate(lines, 1) if CLAIMS.search(line)]


def totals() -> dict[str, int]:
    """Return words of all pages, and of those of theory."""
    counted = {page: words(page) for page in pages()}
    theory = sum(number for page, number in counted.items() if page.parent.name == "theory")
    return {"all pages": sum(counted.values()), "theory": theory}


def main() -> None:
    """Print words against their limits, reading ease page by page, and every strong claim."""
    for name, number in totals().items():
        print(f"{name}: {number} words, at most {MOST_WORDS[name]}")
    print(f"\nReading ease (Flesch), at least {LEAST_EASE:g}")
    for page in first_contact():
        print(f"{reading_ease(page):6.1f}  {page.relative_to(ROOT)}")
    print("\nLines that say exact, certified, unbiased or guarantee")
    for page in pages():
        for at, line in claims(page):
            print(f"{page.relative_to(ROOT)}:{at}: {line}")


if __name__ == "__main__":
    main()
