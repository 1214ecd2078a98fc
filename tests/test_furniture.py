"""The files around the code: they parse, and what they name exists."""

import re
from pathlib import Path

import pytest
import yaml

from dpcompare.cli import cli

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
YAML = [*TEMPLATES, ROOT / ".github" / "workflows" / "ci.yml", ROOT / ".pre-commit-config.yaml"]
PROSE = [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
LINK = re.compile(r"\]\(([^)\s#]+)")


def make_targets():
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml_parses(path):
    assert yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", [*YAML, *PROSE], ids=lambda path: path.name)
def test_make_targets_that_are_named_exist(path):
    named = set(re.findall(r"(?:`|: |\()make ([a-z]+)", path.read_text()))
    if path.name in ("ci.yml", "CONTRIBUTING.md"):
        assert {"check", "test", "docs"} <= named
    assert named <= make_targets()


def test_every_step_of_the_workflow_does_one_thing_and_both_pythons_are_tested():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
    for job in jobs.values():
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])
        uses = [step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step]
        assert uses == ["actions/checkout", "actions/setup-python"]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_issue_templates_are_forms(path):
    form = yaml.safe_load(path.read_text())
    if path.name == "config.yml":
        return
    assert form["name"]
    assert form["description"]
    names = [element["id"] for element in form["body"]]
    assert len(names) == len(set(names))
    assert all(element["attributes"]["label"] for element in form["body"])
    assert any(element.get("validations", {}).get("required") for element in form["body"])


def test_a_bug_report_asks_for_the_doctor():
    text = (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug_report.yml").read_text()
    assert "dpcompare doctor" in text
    assert "doctor" in cli.commands


def test_hooks_are_local_so_that_versions_are_the_pinned_ones():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in hooks["repos"]] == ["local"]


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.name)
def test_links_and_files_that_are_named_exist(path):
    text = path.read_text()
    for link in LINK.findall(text):
        assert (ROOT / link).exists(), link
    for name in re.findall(r"`((?:tests|dpcompare|docs|mechanisms|studies)/[\w./]*)`", text):
        assert (ROOT / name).exists(), name


def test_every_command_and_every_option_is_documented():
    text = (ROOT / "docs" / "commands.md").read_text()
    of_all = {option for p in cli.params for option in p.opts}
    for name, command in cli.commands.items():
        assert f"\n### {name}\n" in text, name
        section = re.split(r"^##", text.partition(f"### {name}\n")[2], flags=re.MULTILINE)[0]
        for option in {o for p in command.params for o in p.opts if o.startswith("-")} - of_all:
            # Those of run-study are in docs/studies.md.
            assert option in section or name == "run-study", (name, option)
    for option in of_all - {"--version"}:
        assert f"`{option}" in text, option


def test_every_variable_of_the_package_is_documented():
    text = (ROOT / "docs" / "commands.md").read_text()
    sources = "".join(file.read_text() for file in (ROOT / "dpcompare").rglob("*.py"))
    for name in set(re.findall(r'environ(?:\.get\(|\[)"(\w+)"', sources)):
        if name not in ("TERM", "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES",
                        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):  # fmt: skip
            assert f"`{name}`" in text, name
