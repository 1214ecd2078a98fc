"""The page of a report, opened in a real browser: no error, no request, and the layout holds."""

import html
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from dpcompare import report
from dpcompare.figures import draw
from dpcompare.results import ResultsFolder
from tests import fabricated_records as made

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--v=0",
    "--virtual-time-budget=3000",
)
PROBE = """<script>
const told = {};
const point = document.querySelector(".point");
const tip = point.querySelector(".tip");
told.page = document.documentElement.scrollWidth;
told.window = window.innerWidth;
told.boxes = [...document.querySelectorAll(".box")].filter(
  b => b.scrollWidth > b.clientWidth).length;
told.before = getComputedStyle(tip).visibility;
point.focus();
told.focused = getComputedStyle(tip).visibility;
told.others = [...document.querySelectorAll(".tip")].filter(
  t => getComputedStyle(t).visibility === "visible").length;
point.blur();
told.after = getComputedStyle(tip).visibility;
told.broken = [...document.images].filter(i => i.complete && !i.naturalWidth).length;
parent.document.title = JSON.stringify(told);
</script>"""


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no chromium on this machine: the page is not opened in a browser")
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page of two studies, one of them with other figures to embed."""
    base = tmp_path_factory.mktemp("report")
    for name, records in (("clicks", made.study()), ("sizes", made.sample_sizes(seeds=2))):
        folder = ResultsFolder(base / name)
        with folder.lock():
            for record in records:
                folder.append(record)
    for figure in ("effective-sample-size", "utility"):
        draw(ResultsFolder(base / "sizes"), figure=figure, formats=["svg"])
    return report.write([base / "clicks", base / "sizes"], base / "page.html")


def opened(browser, page, folder, *options):
    """What the browser prints; its process group is killed if it does not end."""
    command = [browser, *QUIET, f"--user-data-dir={folder / 'profile'}", *options, page.as_uri()]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"HOME": str(folder)},
    )
    try:
        output, log = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    assert process.returncode == 0, log
    return output, log


def console(log):
    """The lines that the page caused, such as a refused style or a missing picture."""
    return [line for line in log.splitlines() if "CONSOLE" in line]


def requests(net_log):
    """The addresses that a page asked for over a network; the browser's own have no origin."""
    text = net_log.read_text()
    try:
        events = json.loads(text)["events"]
    except json.JSONDecodeError:  # a browser that ends quickly may leave the end unwritten
        events = json.loads(text.rstrip().rstrip(",") + "]}")["events"]
    asked = [event.get("params") or {} for event in events]
    return {
        parameters["url"]
        for parameters in asked
        if parameters.get("initiator", "not an origin") != "not an origin"
        and parameters["url"].startswith(("http:", "https:", "ws:", "wss:"))
    }


def test_the_page_opens_without_error_and_without_a_request(browser, page, tmp_path):
    net_log, picture = tmp_path / "net.json", tmp_path / "page.png"
    options = [f"--log-net-log={net_log}", f"--screenshot={picture}", "--window-size=1280,2000"]
    _, log = opened(browser, page, tmp_path, *options)
    assert picture.stat().st_size > 50_000
    assert console(log) == []
    assert not requests(net_log)


def test_an_error_of_a_page_would_be_seen(browser, page, tmp_path):
    bad, net_log = tmp_path / "bad.html", tmp_path / "net.json"
    text = page.read_text()
    bad.write_text(text.replace("<main", '<p style="color: red">refused</p><main', 1))
    assert console(opened(browser, bad, tmp_path, "--screenshot=" + str(tmp_path / "x.png"))[1])
    open_to_all = re.sub(r"<meta http-equiv[^>]*>", "", text)
    bad.write_text(open_to_all.replace("<main", '<img src="http://host.invalid/a.png"><main', 1))
    options = [f"--log-net-log={net_log}", "--screenshot=" + str(tmp_path / "x.png")]
    opened(browser, bad, tmp_path, *options)
    assert any(url.startswith("http://host.invalid") for url in requests(net_log))


def test_the_browser_reads_the_page_as_it_was_written(browser, page, tmp_path):
    document, log = opened(browser, page, tmp_path, "--dump-dom")
    assert console(log) == []
    text = page.read_text()
    for mark in ("<table", "<svg", 'class="point"', "<details", "<h3", "<img"):
        assert document.count(mark) == text.count(mark) > 0, mark


@pytest.mark.parametrize("width", [360, 1280])
def test_layout_and_tooltips_hold(browser, page, tmp_path, width):
    """Measured by a script in a copy of the page whose policy lets it run, in a frame."""
    text = re.sub(r"<meta http-equiv[^>]*>", "", page.read_text())
    text = html.escape(text.replace("</body>", f"{PROBE}</body>"))
    framed = tmp_path / "framed.html"
    style = f"border: 0; width: {width}px; height: 900px"
    framed.write_text(f'<title></title><iframe style="{style}" srcdoc="{text}"></iframe>')
    document, log = opened(browser, framed, tmp_path, "--dump-dom", "--window-size=1400,1000")
    assert console(log) == []
    told = json.loads(re.search(r"<title>(.*?)</title>", document)[1])
    assert told["window"] == width
    assert told["page"] <= width  # no scrolling of the page itself to the side
    assert (told["boxes"] > 0) == (width == 360)  # wide tables scroll in boxes of their own
    assert (told["before"], told["focused"], told["after"]) == ("hidden", "visible", "hidden")
    assert told["others"] == 1
    assert told["broken"] == 0


def test_it_prints(browser, page, tmp_path):
    printed = tmp_path / "page.pdf"
    opened(browser, page, tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={printed}")
    content = Path(printed).read_bytes()
    assert content.startswith(b"%PDF")
    assert 3 < content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") < 40
