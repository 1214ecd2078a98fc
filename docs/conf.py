"""How Sphinx builds the site from the repository: ``make docs``.

The source folder is the repository itself, so that a relative link means the same here as where the
repository is browsed: to a page of the site, or to a file, which the site then holds a copy of.
"""

import re
from typing import Any

from sphinx.util.nodes import make_refnode

import dpcompare

project = "dpcompare"
author = "the authors of dpcompare"
version = release = dpcompare.__version__
language = "en"

root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "docs/**",
    "results/README.md",
    "results/reference/pctr/tables/relative-loss.md",
]
exclude_patterns = [".*", "**/.*", "build", "dist", "*.egg-info", "**/__pycache__"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]

myst_heading_anchors = 4  # the anchors that browsed Markdown has

# Docstrings name things in single backquotes; whatever is meant as a link says so (:class:`...`).
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "replace"}  # what flax adds to every record
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
napoleon_attr_annotations = False  # signatures show them
python_maximum_signature_line_length = 80

# What has no page here: other libraries, whose inventories would have to be fetched, and rooms that
# are nobody's interface.
OTHERS = "click|collections|dp_accounting|flax|jax|matplotlib|numpy|optax|os|pandas|pathlib|typing"
INSIDE = (
    "account|candidates|checkpoints|crossover|devices|embeddings|expansion|noise|privacy_loss|randomness"
    "|report_tables|sampled_gaussian|svg_chart|table_updates|wording"
)
nitpick_ignore_regex = [
    ("py:.*", rf"({OTHERS})\..*|DpEvent"),
    ("py:.*", rf"dpcompare\.({INSIDE})(\..*)?|FormatError"),
]

LINK = re.compile(r"\[([^\]]+)\]\(([\w./-]+)\)")

html_theme = "furo"
html_title = f"dpcompare {release}"
html_extra_path = ["root"]  # index.html leads on to the first page
html_copy_source = False
html_show_copyright = False


def resolve_short_name(app: Any, env: Any, node: Any, text: Any) -> Any:
    """Links a name without its module, as docstrings have it, where only one thing has it."""
    python, target = env.domains.python_domain, node["reftarget"]
    if node.get("refdomain") != "py":
        return None
    found = python.find_obj(env, None, None, target, node["reftype"], searchmode=1)
    if len(found) != 1:
        return None
    full_name, page = found[0][0], found[0][1].docname
    return make_refnode(app.builder, node["refdoc"], page, full_name, text, full_name)


def shorten_factory(
    app: Any, what: str, name: str, object_: Any, options: Any, signature: str, returns: str
) -> tuple[str, str] | None:
    """Sphinx cannot parse the default that a dataclass shows for a list."""
    return signature and (signature.replace("<factory>", "[]"), returns)


def head_table(app: Any, page: str, source: list[str]) -> None:
    """A page needs a heading, and tables of results begin with a bold line."""
    if page.startswith("results/reference/"):
        source[0] = re.sub(r"\A\*\*(.*)\*\*\n", r"# \1\n", source[0])


def name_folders(app: Any, page: str, source: list[str]) -> None:
    """A link to a folder becomes its words: the site has files to lead to, and no folders."""
    here = (app.srcdir / page).parent
    source[0] = LINK.sub(lambda m: m[1] if (here / m[2]).is_dir() else m[0], source[0])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", head_table)
    app.connect("source-read", name_folders)
    app.connect("missing-reference", resolve_short_name)
    app.connect("autodoc-process-signature", shorten_factory)
