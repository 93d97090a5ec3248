"""The site: `make docs` builds it from the documents in this folder, with warnings as errors, into build/site."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from comper import __version__  # noqa: E402

project, author, copyright = "COMPER", "The COMPER contributors", "The COMPER contributors, Apache-2.0"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["README.md"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
default_role = "literal"  # docstrings put names between single backticks
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
add_module_names = False
html_theme, html_title = "furo", f"COMPER {version}"
html_static_path: list[str] = []
html_show_sphinx = False

FROM_THE_ROOT = {"contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
"""Pages whose text stands at the root of the repository."""
OTHERS = "(others)"
"""In the contents of index.md: all documents that are not named there."""
PAGES = {name: f"{page}.md" for page, name in FROM_THE_ROOT.items()} | {"README.md": "index.md"}


def setup(app: Any) -> None:
    """Read pages from the root of the repository, and lead links out of this folder to where the site has them."""
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _mark_code)


def _mark_code(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """What stands indented in a docstring, after an empty line, is code."""
    starts = [n for n in range(2, len(lines)) if lines[n].startswith("    ") and not lines[n - 1] and lines[n - 2][:1].strip()]
    for start in reversed(starts):
        lines[start:start] = ["::", ""]


def _read(app: Any, page: str, source: list[str]) -> None:
    if page == "index":
        source[0] = source[0].replace(OTHERS, "\n".join(_other_pages(source[0])))
    if page in FROM_THE_ROOT:
        source[0] = (ROOT / FROM_THE_ROOT[page]).read_text(encoding="utf-8").replace("](docs/", "](")
    source[0] = re.sub(r"\[([^\]]*)\]\((?:\.\./)?([^)#:]+)(#[^)]*)?\)", lambda match: _link(page, match), source[0])


def _other_pages(index: str) -> list[str]:
    """The documents that the first page does not name: a new one is on the site without more ado."""
    return [path.stem for path in sorted((ROOT / "docs").glob("*.md")) if not re.search(rf"^{path.stem}$", index, re.MULTILINE)
            and path.stem not in ("index", "README")]  # fmt: skip


def _link(page: str, match: re.Match[str]) -> str:
    """A link as it is, one to the page of the site, or, where the site has none, its words alone."""
    words, path, place = match.groups()
    if path in PAGES:
        return f"[{words}]({PAGES[path]}{place or ''})"
    here = ROOT / "docs" / Path(page).parent
    return match[0] if (here / path).exists() and not (here / path).is_dir() else f"`{words}`".replace("``", "`")
