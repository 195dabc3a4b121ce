"""The documentation as a site: `scripts/docs` builds it, and a warning is an error."""

from __future__ import annotations

from sphinx.application import Sphinx

project = "kubesched"
html_title = "kubesched"
root_doc = "README"  # what a reader of the repository sees first, too
extensions = ["myst_parser"]
exclude_patterns = ["site"]
myst_heading_anchors = 4  # links such as limits.md#volumes, as on code hosts
nitpicky = True

html_theme = "furo"  # system fonts, light and dark; asks no other host for anything
html_copy_source = False
html_show_copyright = False

_SECTIONS = {
    "Tutorial": "tutorial/*",
    "Notebooks": "notebooks/*",
    "How-to": "how-to/*",
    "Reference": "reference/*",
    "Explanation": "explanation/*",
    "More": "limits\nglossary\ndesign/README",
}


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Append the table of contents, which would be noise where the files are read as they are."""
    sections = {root_doc: _SECTIONS, "design/README": {"Records": "0*"}}.get(name, {})
    source[0] += "".join(
        f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{files}\n```\n"
        for caption, files in sections.items()
    )


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_contents)
