"""Sphinx configuration: MyST pages, examples that run, no network to view it."""

import os
import sys
from pathlib import Path

from sphinx_gallery.sorting import FileNameSortKey

import attnlimit

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from explorer import write_explorer  # noqa: E402

os.environ["HF_HUB_OFFLINE"] = "1"

project = "attnlimit"
author = "The attnlimit developers"
copyright = "The attnlimit developers"
version = release = attnlimit.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
    "sphinx-mathjax-offline",
    "command_line",
    "public_names",
    "technical_report",
    "typeset",
]
exclude_patterns = [
    "_build",
    "_explorer",
    "tables",
    "technical_report",
    "gallery/*.ipynb",
    "gallery/*.py",
    "gallery/*.json",
    "**/README.md",
]

html_theme = "sphinx_book_theme"
html_title = "attnlimit"
html_static_path = ["_static"]
html_extra_path = ["_explorer"]  # a page of sliders over exact laws
html_css_files = ["site.css"]
html_context = {"default_mode": "auto"}
html_theme_options = {
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_toc_level": 2,
    "home_page_in_toc": True,
    "navigation_with_keys": False,
}

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = os.environ.get("ATTNLIMIT_DOCS_RUN", "auto")
nb_execution_timeout = 240
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"  # warnings of other libraries; an error stops the build

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
bibtex_bibfiles = ["references.bib"]
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
# Inventories are fetched only where there is a network; links to them are not needed to read.
intersphinx_mapping = (
    {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
    }
    if os.environ.get("ATTNLIMIT_DOCS_ONLINE")
    else {}
)
linkcheck_ignore = [r"https?://localhost.*"]

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r".*\.py",
    "within_subsection_order": FileNameSortKey,
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,  # that page fetches its table from the network
    "min_reported_time": 5,
    "remove_config_comments": True,
    "plot_gallery": os.environ.get("ATTNLIMIT_DOCS_RUN", "auto") != "off",
    "abort_on_example_error": True,
    "image_scrapers": ("matplotlib",),
}
suppress_warnings = ["config.cache", "mystnb.unknown_mime_type"]


def _colours(gallery_conf: dict[str, object], file_name: str) -> None:
    """Draw examples with a palette that the colour blind can read."""
    import matplotlib as mpl

    from attnlimit.plotting import PALETTE

    mpl.rcParams["axes.prop_cycle"] = mpl.cycler(color=PALETTE)


sphinx_gallery_conf["reset_modules"] = ("matplotlib", _colours)

# The explorer is one HTML file, copied to the root of the site.
(HERE / "_explorer").mkdir(exist_ok=True)
write_explorer(HERE / "_explorer" / "explorer.html")
