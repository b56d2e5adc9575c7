"""How the hosts of a run are found again, as its folder says."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from nfold.core.options.run_options import OPTIONS
from nfold.errors import PlanError
from nfold.verbs.run_folder import held_hosts
from nfold.verbs.run_folder.files import HELD
from nfold.verbs.run_folder.held_hosts import KEPT, HeldHosts, forget_held, read_held, save_held

HOSTS = HeldHosts(host="10.0.0.1", port=7001, token="secret", hold_s=30.0, nodes="2:8", on=None, listen="10.0.0.1:0")


def test_only_its_owner_reads_it(tmp_path):
    assert read_held(tmp_path) is None
    save_held(tmp_path, replace(HOSTS, hold_s=1.0))
    save_held(tmp_path, HOSTS)
    assert (tmp_path / HELD).stat().st_mode & 0o777 == 0o600
    assert read_held(tmp_path) == HOSTS
    (tmp_path / HELD).chmod(0o640)
    with pytest.raises(PlanError, match=r"held.json can be read or changed by others \(mode 640\), .* chmod 600"):
        read_held(tmp_path)
    forget_held(tmp_path)
    assert read_held(tmp_path) is None


def test_what_killed_commands_have_left_of_its_token_goes_with_it_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.wait()
    user, secret = os.getuid(), f"{HOSTS.token}\n"
    left = {f"nfold-{user}-{gone.pid}.token": secret}
    kept = {f"nfold-{user}-{os.getpid()}.token": secret, f"nfold-{user + 1}-{gone.pid}.token": secret}
    kept |= {f"nfold-{user}-{gone.pid}.token.txt": secret, f"nfold-{user}-0{gone.pid}.token": secret}
    for name, text in (left | kept).items():
        (tmp_path / name).write_text(text)
    forget_held(tmp_path)
    assert (tmp_path / next(iter(left))).exists(), "nobody knows whose it is"
    save_held(tmp_path, replace(HOSTS, token="of another run"))
    forget_held(tmp_path)
    save_held(tmp_path, HOSTS)
    assert (tmp_path / next(iter(left))).exists(), "its hosts hold"
    forget_held(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(kept)


def test_the_next_command_listens_where_the_one_before_did():
    where = {"on": None, "nodes": "2:8", "listen": "10.0.0.1:7001", "port": 7001, "hold_for": 30.0}
    assert {name: value for name, value in HOSTS.wishes.items() if name not in KEPT} == where
    assert replace(HOSTS, on="local", listen=None).wishes["listen"] is None


def test_hosts_are_asked_for_again_as_they_were(tmp_path):
    asked = {"cpus": 4, "gang": False, "hosts_for": 3600.0, "hosts_within": 90.0, "protect": "20", "hosts_last": 7200.0}
    save_held(tmp_path, replace(HOSTS, python="/opt/python", **asked))
    found = read_held(tmp_path)
    assert {name: found.wishes[name] for name in KEPT} == {"python": "/opt/python", **asked}
    assert OPTIONS.keys() >= set(KEPT)


def test_what_an_earlier_version_wrote_down_is_read_too(tmp_path):
    save_held(tmp_path, HOSTS)
    path = tmp_path / HELD
    written = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in written.items() if name not in KEPT}))
    assert read_held(tmp_path) == HOSTS


@pytest.mark.parametrize("text", ["{ bad", "[]", '{"host": 3}'])
def test_one_that_is_broken_is_told_with_its_file_and_what_to_do(tmp_path, text):
    save_held(tmp_path, HOSTS)
    (tmp_path / HELD).write_text(text)
    with pytest.raises(PlanError, match=r"held\.json is broken, .* Remove it, .* nfold train --resume "):
        read_held(tmp_path)


def test_one_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    def break_off(path, text):
        path.write_text(text[:9])
        raise OSError("no room")

    save_held(tmp_path, HOSTS)
    monkeypatch.setattr(held_hosts, "write_owned", break_off)
    with pytest.raises(OSError, match="no room"):
        save_held(tmp_path, replace(HOSTS, hold_s=1.0))
    assert read_held(tmp_path) == HOSTS


@pytest.mark.parametrize(
    ("asked", "are_wanted"),
    [
        ({}, True),
        ({"nodes": "2:8", "listen": "10.0.0.1:0", "steps": 9}, True),
        ({"nodes": "1:8"}, False),
        ({"on": "here"}, False),
        ({"workers": 4}, False),
        ({"emulate": "c.toml"}, False),
    ],
)
def test_who_asks_for_other_hosts_does_not_get_these(asked, are_wanted):
    assert HOSTS.are_asked_for(asked) == are_wanted
