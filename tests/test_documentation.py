"""The site builds without a warning and holds every page; design.md is right about imports.

What the pages show is run by test_docs.py; here only the site itself is looked at.
"""

import ast
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from sphinx.util.inventory import InventoryFile

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "dpcompare"
PUBLIC = {
    *("dpcompare", "dpcompare.frame", "dpcompare.results", "dpcompare.summary"),
    *("dpcompare.comparison", "dpcompare.figures", "dpcompare.tables"),
    *("dpcompare.study", "dpcompare.errors", "dpcompare.data"),
    *("dpcompare.mechanism", "dpcompare.label_mechanism", "dpcompare.label_prior"),
    *("dpcompare.label_kernel", "dpcompare.label_noise", "dpcompare.testing"),
    *("dpcompare.privacy", "dpcompare.accounting", "dpcompare.calibration"),
    *("dpcompare.private_selection", "dpcompare.shuffling"),
    *("dpcompare.tasks", "dpcompare.metrics", "dpcompare.model", "dpcompare.optimizers"),
    "dpcompare.trainer",
}
FLOOR = re.compile(r"^\| (\d) [a-z]+ \| ([^|]*) \|", re.MULTILINE)
EXTERNAL = re.compile(r"\b(\w+)://([^\s<>)\"'`]*)")


class Links(HTMLParser):
    """Where a page leads, and the anchors that it has."""

    def __init__(self, page):
        super().__init__()
        self.targets, self.anchors = set(), set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.targets |= {found[key] for key in ("href", "src") if found.get(key)}
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site, and what the build had to say."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n"]
    command += ["-d", str(folder / "doctrees"), "-c", str(DOCS), str(ROOT), str(folder / "html")]
    built = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert built.returncode == 0, built.stderr
    return folder / "html", built.stderr


def test_the_site_is_built_without_a_warning(site):
    folder, said = site
    assert "WARNING" not in said
    assert (folder / "docs" / "index.html").stat().st_size > 1000


def test_the_first_page_is_found_from_the_top(site):
    folder, _ = site
    (target,) = (t for t in Links(folder / "index.html").targets)
    assert (folder / target).samefile(folder / "docs" / "index.html")


def pages_in_toctrees():
    """Names, relative to docs/, that the toctrees of its pages list, without the ending."""
    listed = set()
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for body in re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            for line in body.splitlines():
                name = re.sub(r".*<(.*)>", r"\1", line)
                if name and not name.startswith(":"):
                    listed.add((page.parent / f"{name.removesuffix('.md')}.md").resolve())
    return listed


def test_every_page_is_in_a_toctree():
    missing = set(DOCS.rglob("*.md")) - pages_in_toctrees() - {DOCS / "index.md"}
    assert not missing, "add a line to docs/index.md"


def test_every_page_in_docs_is_named_on_the_first_page():
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    assert [
        p.name for p in DOCS.glob("*.md") if f"]({p.name})" not in text and p.stem != "index"
    ] == []


def test_every_public_name_has_an_entry(site):
    folder, _ = site
    inventory = InventoryFile.load((folder / "objects.inv").open("rb"), "", "/".join)
    found = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    assert set(inventory["py:module"]) >= PUBLIC
    expected = {f"{module}.{name}" for module in PUBLIC for name in public_names(module)}
    assert len(expected) > 100
    assert expected - found - {"dpcompare.frame.load"} == set()


def public_names(module):
    """Functions and classes that a module offers: of __all__, or all that it defines."""
    path = ROOT / module.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            return [name for name in names if not name.isupper() and not name.startswith("_")]
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [n.name for n in tree.body if isinstance(n, kinds) and not n.name.startswith("_")]


def test_every_link_within_the_site_leads_somewhere(site):
    folder, _ = site
    pages = {page: Links(page) for page in folder.rglob("*.html")}
    assert len(pages) > 20
    checked = 0
    for page, links in pages.items():
        if page.name in ("search.html", "genindex.html") or "_static" in page.parts:
            continue
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or target.startswith("//"):
                continue
            place = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert place.exists(), (page.name, target)
            if parts.fragment and place in pages:
                assert unquote(parts.fragment) in pages[place].anchors, (page.name, target)
            checked += 1
    assert checked > 1000


def test_external_links_are_https_and_well_formed():
    documents = [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "benchmarks" / "README.md"]
    links = [
        (document.name, found[0])
        for document in documents
        for found in EXTERNAL.finditer(document.read_text(encoding="utf-8"))
    ]
    assert len(links) >= 15
    for name, link in links:
        parts = urlsplit(link)
        assert parts.scheme == "https", (name, link)
        assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", parts.netloc), (name, link)


def test_the_paper_page_names_studies_that_exist_and_the_hours_that_they_took():
    text = (DOCS / "paper.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (?:Table|Figure) .*? \| `([\w-]+)` \| (.*?) \| ([\d.]+) \|$", text, re.M
    )
    assert len(rows) >= 8
    for study, papers, stated in rows:
        found = hours(ROOT / "results" / "reference" / study)
        assert abs(float(stated) - found) < max(0.03, 0.1 * found), (study, found)
        named = re.findall(r"`([\w-]+)`", papers)
        assert all((ROOT / "studies" / f"{name}.toml").exists() for name in named)


def hours(folder):
    """Processor time of a study's present trials, from their records."""
    present = set((folder / "plan.txt").read_text(encoding="utf-8").split())
    lines = (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    records = {record["id"]: record for record in map(json.loads, lines)}
    found = [sum(records[name]["timings"].values()) for name in present & records.keys()]
    return sum(found) / 3600


def floors():
    """Module to floor, from the table of docs/design.md."""
    found = {}
    for number, modules in FLOOR.findall((DOCS / "design.md").read_text(encoding="utf-8")):
        found |= {name: int(number) for name in re.findall(r"`(\w+)`", modules)}
    return found


def imported(source):
    """Modules of dpcompare that a file imports, by their first name below the package."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "dpcompare":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpcompare."):
            yield node.module.split(".")[1]


def test_no_module_imports_from_a_higher_floor():
    floor_of = floors()
    assert len(floor_of) > 50
    above = [
        (module, other)
        for module, floor in floor_of.items()
        for source in sources(module)
        for other in imported(source)
        if floor_of.get(other, 0) > floor
    ]
    assert above == []


def sources(module):
    """The files of a module or package."""
    folder = PACKAGE / module
    found = sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{module}.py"]
    assert all(source.exists() for source in found), module
    return found


def test_nothing_imports_the_built_in_mechanisms():
    for source in PACKAGE.rglob("*.py"):
        assert "dpcompare_mechanisms" not in source.read_text(encoding="utf-8"), source
