"""Pages in a real browser: drawn without a complaint, readable on wide and narrow screens, in light and dark."""

import importlib
import sys
from pathlib import Path

import pytest
from browser import find_browser, started

from nfold.verbs.watching.dashboard import DashboardServer
from nfold.view.html import compare_page, run_page

SIZES = [(1280, False), (400, True)]
"""Widths, each with whether the page is opened in the dark; a test then changes it to the other."""
NAMES = [f"{width} pixels, opened {'dark' if dark else 'light'}" for width, dark in SIZES]
CLI = Path(__file__).parents[1] / "cli"
CHECKS = (Path(__file__).parent / "checks.js").read_text()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = find_browser()
    if program is None:
        pytest.skip("there is no chromium here: `make browser` installs it on Debian")
    with started(program, tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def show(browser, tmp_path):
    def show(text, width=1280, dark=False):
        path = tmp_path / "page.html"
        path.write_text(text)
        browser.open(path, width=width, dark=dark)
        browser.value(CHECKS)
        return browser

    return show


def check_readable(shown, width, dark, charts):
    """Check that all can be read, in light and in dark, and nobody complains; yield the pixels of a chart's colours."""
    assert shown.value("checks.charts()") == charts
    for is_dark in (dark, not dark):
        shown.prefer("dark" if is_dark else "light")
        shown.value("checks.frames(2)")
        assert shown.value("document.documentElement.scrollWidth") <= width
        assert shown.value("checks.tooWide()") == []
        assert shown.value("checks.faintText()") == []
        yield from shown.value("checks.marks()").items()
    assert shown.complaints == []
    assert [url for url in shown.requests if not url.startswith(("file:///", "data:"))] == []


@pytest.mark.parametrize(("width", "dark"), SIZES, ids=NAMES)
def test_a_page_is_drawn_and_can_be_read(show, facts, width, dark):
    shown = show(run_page(facts), width, dark)

    keys = ("timeline", "nodes", "grid", "scaling", "loss", "staleness")
    for chart, colors in check_readable(shown, width, dark, [f"chart-{key}" for key in keys]):
        assert min(colors.values()) > 5, f"something is not drawn in {chart}: {colors}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The page of a short run of two ranks, which are threads of this process."""
    from nfold.verbs.train import train

    path = list(sys.path)
    try:
        script = CLI / "scripts" / "steady.py"
        out = tmp_path_factory.mktemp("real") / "run"
        return train(script, workers=2, strategy="ring", steps=6, debug=True, out=out).folder / "report.html"
    finally:
        sys.path[:] = path
        sys.modules.pop("numbers_of_this_program", None)


@pytest.mark.parametrize(("width", "dark"), SIZES, ids=NAMES)
def test_the_page_of_a_run_that_took_place_is_drawn_and_can_be_read(show, trained, width, dark):
    shown = show(trained.read_text(), width, dark)

    assert "No curve: no link between" in shown.value("document.querySelector('#scaling').textContent")
    keys = ("timeline", "nodes", "grid", "loss")
    for chart, colors in check_readable(shown, width, dark, [f"chart-{key}" for key in keys]):
        assert max(colors.values()) > 5, f"nothing is drawn in {chart}: {colors}"


@pytest.mark.parametrize(("width", "dark"), SIZES, ids=NAMES)
def test_a_comparison_is_drawn_and_can_be_read(show, comparison, width, dark):
    shown = show(compare_page(comparison()), width, dark)

    keys = ("parts", "scaling-0", "scaling-1", "bytes", "memory", "cost", "race", "predictions")
    for chart, colors in check_readable(shown, width, dark, [f"chart-{key}" for key in keys]):
        assert min(colors.values()) > 5, f"something is not drawn in {chart}: {colors}"


def test_the_colours_follow_the_reader_from_light_to_dark(show, facts):
    shown = show(run_page(facts))
    axis = "Bokeh.documents[0].roots()[0].xaxes[0].major_label_text_color"
    light = shown.value(axis)

    shown.prefer("dark")

    shown.value("checks.frames(2)")
    assert shown.value(axis) != light
    assert shown.value("checks.faintText()") == []


def test_the_timeline_shows_two_steps_and_moves_with_the_strip_below_it(show, facts):
    shown = show(run_page(facts))
    start, end = shown.value("checks.timelineWindow()")
    assert (start, round(end)) == (0, 120), "two of six steps of 60 ms"

    left, top, width, height = shown.value("checks.strip()")
    x, y = left + 0.2 * width, top + 0.4 * height
    for kind, shift in (("mousePressed", 0), ("mouseMoved", 100), ("mouseMoved", 300), ("mouseReleased", 300)):
        shown.call("Input.dispatchMouseEvent", type=kind, x=x + shift, y=y, button="left", buttons=1, clickCount=1)

    moved = shown.value("checks.timelineWindow()")
    assert moved[0] > start + 50
    assert moved[1] - moved[0] == pytest.approx(end - start)
    assert shown.complaints == []


def test_no_name_can_break_in(show, hostile):
    name = "</script><script>document.title='broken in'</script><img src=x onerror=\"document.title='broken in'\">"

    shown = show(run_page(hostile(name)), 400)

    assert shown.complaints == []
    assert "broken in" not in shown.value("document.title").replace(name, "")
    assert shown.value("document.images.length") == 0
    assert shown.value("document.documentElement.scrollWidth") <= 400


@pytest.fixture
def going_on(tmp_path, monkeypatch):
    """A run of two ranks, which are threads of this process, and the address of its page."""
    from nfold.verbs.train import start

    monkeypatch.setattr(sys, "path", [*sys.path, str(CLI / "brief")])
    importlib.import_module("measuring_briefly").measure_briefly(monkeypatch.setattr)
    monkeypatch.setenv("EPOCHS", "2000")
    script, out = CLI / "scripts" / "steady.py", tmp_path / "run"
    steps = start(script, workers=2, strategy="ring", debug=True, out=out, dashboard=0)
    next(steps)
    yield steps, (out / "log.txt").read_text().partition("dashboard: ")[2].split()[0]
    steps.close()
    sys.modules.pop("numbers_of_this_program", None)


def test_a_run_that_goes_on_is_seen_to_move(going_on, browser, monkeypatch):
    steps, address = going_on
    look = "[document.getElementById('step')?.textContent, document.querySelector('polyline')?.getAttribute('points')]"
    browser.open(address, width=1280)
    browser.value(CHECKS)
    seen = []
    for _ in steps:
        step, curve = browser.value(look)
        if step and curve and [step, curve] not in seen:
            seen.append([step, curve])
            if len({step for step, _ in seen}) == 3:
                break
    assert [int(step) for step, _ in seen] == sorted(int(step) for step, _ in seen)
    assert len({curve for _, curve in seen}) >= 3, "the loss moves, too"
    for width, scheme in ((1280, "light"), (400, "dark")):
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        browser.prefer(scheme)
        assert browser.value("document.documentElement.scrollWidth") <= width
        assert browser.value("checks.tooWide()") == []
        assert browser.value("checks.faintText()") == []
    assert [url for url in browser.requests if not url.startswith((address, "data:"))] == []
    assert browser.complaints == []

    with monkeypatch.context() as broken:
        broken.setattr(DashboardServer, "_parts", lambda _: {}["loss"])
        assert browser.value("checks.until(() => !document.getElementById('silence').hidden)")
        told = browser.value("document.getElementById('silence').textContent")
        assert "the command goes on, and could not make this page (KeyError: 'loss')" in told
    assert browser.value("checks.until(() => document.getElementById('silence').hidden)")

    steps.close()
    assert browser.value("checks.until(() => !document.getElementById('silence').hidden)")
    assert "the command has ended" in browser.value("document.getElementById('silence').textContent")
    assert browser.value("checks.faintText()") == []
