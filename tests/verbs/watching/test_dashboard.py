"""Who may see a run's page, and what they see."""

import json
import re
import urllib.request

import pytest

from nfold.core.run_state import RunState
from nfold.verbs.watching.dashboard import Dashboard, DashboardServer


@pytest.fixture
def page(tmp_path):
    """A server that was not started, and its token."""
    server = DashboardServer(
        tmp_path, lambda: RunState(at=1.0, phase="training", step=7, total_steps=9), now=lambda: 2.0
    )
    return server, server._token


def test_who_knows_the_token_sees_the_run(page, tmp_path):
    server, token = page
    (tmp_path / "log.txt").write_text("[0] hello\n")
    shown, parts = server.answer(f"/{token}/"), server.answer(f"/{token}/parts.json?a")
    assert (shown.status, shown.kind) == (200, "text/html; charset=utf-8")
    assert f"<title>nfold: {tmp_path.name}</title>" in shown.text
    assert 'id="step">7<' in json.loads(parts.text)["head"]
    assert "[0] hello" in json.loads(parts.text)["log"]
    assert shown.headers["Referrer-Policy"] == "no-referrer", "the address is nobody else's to know"


def test_who_does_not_know_it_learns_nothing(page):
    server, token = page
    wrong = (
        "/",
        "",
        "//",
        "/x/",
        f"/{token[:-1]}/",
        f"/{token}x/parts.json",
        f"/?{token}",
        "/parts.json",
        f"/x/{token}/",
        "/é/",
    )
    answers = {path: server.answer(path) for path in wrong}
    assert {(answer.status, answer.text, *answer.headers) for answer in answers.values()} == {(403, "")}, answers


def test_only_who_knows_it_learns_of_a_failure(page, monkeypatch):
    server, token = page
    monkeypatch.setattr(server, "_state", {}.__getitem__)
    answer = server.answer(f"/{token}/parts.json")
    assert (answer.status, answer.text.partition(":")[0]) == (500, "TypeError")
    assert server.answer("/x/parts.json").status == 403


def test_an_address_without_its_end_is_mended_and_there_is_nothing_else(page):
    server, token = page
    assert server.answer(f"/{token}").headers == {"Location": f"/{token}/"}
    for path in ("x", "parts.json/", "../state.json"):
        assert server.answer(f"/{token}/{path}").status == 404


def test_every_command_has_a_token_of_its_own(tmp_path):
    tokens = {Dashboard(0, tmp_path)._server._token for _ in range(3)}
    assert len(tokens) == 3
    assert min(map(len, tokens)) >= 22


def test_the_address_is_told_with_the_way_to_it_from_elsewhere(tmp_path):
    notes, dashboard = [], Dashboard(0, tmp_path)
    with dashboard.opened(notes.append):
        address, way = notes
        found = re.fullmatch(r"dashboard: (http://127\.0\.0\.1:(\d+)/\S{22}/)", address)
        assert way.startswith(f"from another machine: ssh -N -L {found[2]}:127.0.0.1:{found[2]} ")
        dashboard.show(RunState(at=1.0, phase="done", step=9, total_steps=9))
        with urllib.request.urlopen(f"{found[1]}parts.json", timeout=10) as answer:
            assert 'id="step">9<' in json.load(answer)["head"]
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(found[1], timeout=10)
