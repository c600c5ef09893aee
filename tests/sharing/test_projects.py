"""A project's libraries: added, locked, synced, updated, removed; from git, a folder, a distribution."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import git_host
import lone_project
import pytest
from git_host import commit, git, mod, served
from small_site import build, snapshot

import vllm_mods as vm
from vllm_mods.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., "Said"]


class Said:
    """What a call printed and returned."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that says nothing."""

    def log_message(self, *_: object) -> None:
        """Be silent."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return lone_project.project(tmp_path, monkeypatch)


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    def do(*arguments: object) -> Said:
        code = run([str(one) for one in arguments])
        return Said(code, *capfd.readouterr())

    return do


@pytest.fixture(autouse=True)
def alice(tmp_path: Path) -> Path:
    commit(tmp_path / "alice", mod("fast") | mod("slow"), "v1")
    return tmp_path / "alice"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return build(tmp_path / "site")


def kept(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}


@pytest.mark.slow
def test_what_was_added_is_put_in_and_taken_out_again(call: Call, place: Path, site: Path) -> None:
    untouched = snapshot(site)
    said = call("add", "git+../alice@v1", "--mod", "fast")
    assert said.code == 0
    assert "fast 1.0.0: A module more" in said.out
    assert "    vllm/fast.py" in said.out
    assert call("sync", "--check", "--target", site).code == 1
    assert snapshot(site) == untouched
    assert call("sync", "--target", site).code == 0
    assert (site / "vllm/fast.py").read_text() == "X = 1\n"
    assert not (site / "vllm/slow.py").exists()
    after = snapshot(site)
    assert call("sync", "--target", site).code == 0
    assert call("sync", "--check", "--target", site).code == 0
    assert snapshot(site) == after
    assert call("remove", "alice").code == 0
    assert call("sync", "--target", site).code == 0
    assert snapshot(site) == untouched
    assert "alice" not in (place / "vllm-mods.lock").read_text()


@pytest.mark.slow
def test_sync_holds_a_tree_to_exactly_what_is_named(
    call: Call, place: Path, alice: Path, site: Path
) -> None:
    call("add", "git+../alice@v1", "--mod", "fast")
    call("apply", "slow", "--target", site)
    commit(alice, mod("fast", "1.1.0", text="X = 2\n"), "v2")
    text = (place / "vllm-mods.toml").read_text()
    assert call("sync", "--target", site).code == 0
    assert [one.name for one in vm.status(site).mods] == ["fast"]
    (place / "vllm-mods.toml").write_text(text.replace("v1", "v2"))
    said = call("sync", "--target", site)
    assert said.code == 2
    assert "vllm-mods update alice" in said.err
    call("update", "alice")
    done = call("sync", "--target", site, "--json").json
    assert [one["name"] for one in done["renewed"]] == ["fast"]
    assert done["out"] == done["into"] == []
    assert (site / "vllm/fast.py").read_text() == "X = 2\n"


@pytest.mark.slow
def test_what_does_not_fit_leaves_the_tree_as_it_was(call: Call, site: Path) -> None:
    call("add", "git+../alice@v1", "--mod", "fast")
    call("apply", "slow", "--target", site)
    (site / "vllm/fast.py").write_text("somebody's\n")
    before = snapshot(site)
    said = call("sync", "--target", site)
    assert said.code == 3
    assert "fast" in said.err
    assert snapshot(site) == before


@pytest.mark.slow
def test_an_edit_in_the_tree_is_not_thrown_away(call: Call, site: Path) -> None:
    call("add", "git+../alice@v1", "--mod", "fast")
    call("sync", "--target", site)
    (site / "vllm/fast.py").write_text("X = 3\n")
    assert call("sync", "--check", "--target", site).code == 3
    said = call("sync", "--target", site)
    assert said.code == 3
    assert "--only-edits" in said.err
    assert (site / "vllm/fast.py").read_text() == "X = 3\n"


@pytest.mark.slow
def test_what_pip_undid_is_put_in_again(call: Call, site: Path) -> None:
    call("add", "git+../alice@v1", "--mod", "fast", "--mod", "slow")
    call("sync", "--target", site)
    (site / "vllm/fast.py").unlink()
    assert call("sync", "--check", "--target", site).code == 1
    assert call("sync", "--target", site).code == 0
    assert vm.verify(site).ok


@pytest.mark.slow
def test_another_order_of_the_mods_is_said(call: Call, place: Path, site: Path) -> None:
    """The receipt is a part of the tree, and that is the same wherever the project is."""
    call("add", "git+../alice@v1", "--mod", "fast", "--mod", "slow")
    call("sync", "--target", site)
    project = place / "vllm-mods.toml"
    project.write_text(re.sub(r"mods = .*", 'mods = ["slow", "fast"]', project.read_text()))
    said = call("sync", "--check", "--target", site)
    assert said.code == 1
    assert "  the receipt lists the mods in a different order\nno file changes\n" in said.out
    assert call("sync", "--target", site).code == 0
    assert call("sync", "--check", "--target", site).code == 0


@pytest.mark.slow
def test_one_project_gives_one_tree_on_every_machine(
    call: Call, place: Path, alice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    trees = []
    with served(tmp_path) as host:
        call("add", f"git+{host.url}/alice@v1", "--name", "alice", "--mod", "fast")
        commit(alice, mod("fast", "2.0.0", text="X = 9\n"), "v1")  # the tag is moved
        for machine in ("one", "two"):
            monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / machine / "cache"))
            monkeypatch.setenv("HOME", str(tmp_path / machine))
            there = tmp_path / machine / "project"
            shutil.copytree(place, there)
            monkeypatch.chdir(there)
            root = build(tmp_path / machine / "site")
            assert call("sync", "--target", root).code == 0
            trees.append(
                {
                    str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode)
                    for path in root.rglob("*")
                    if path.is_file()
                }
            )
    assert trees[0] == trees[1]
    assert trees[0]["vllm/fast.py"][0] == b"X = 1\n"


@pytest.mark.slow
def test_update_says_that_a_tag_moved_and_which_mods_changed(
    call: Call, place: Path, alice: Path, site: Path
) -> None:
    old = git(alice, "rev-parse", "HEAD")
    call("add", "git+../alice@v1", "--mod", "fast")
    new = commit(alice, mod("fast", "1.1.0") | mod("more"), "v1")
    before = kept(place)
    said = call("update", "--dry-run")
    assert said.code == 0
    assert kept(place) == before
    assert f"{old[:12]}) → (commit {new[:12]})" in said.out
    assert re.search(r"fast 1\.0\.0 \(\w+\) → 1\.1\.0 \(\w+\)", said.out)
    assert "more is new → 1.0.0" in said.out
    assert "slow" not in said.out
    assert call("sync", "--target", site).code == 0
    assert vm.status(site).mods[0].version == "1.0.0"
    assert call("update", "--json").json["libraries"][0]["now"]["commit"] == new
    assert call("sync", "--target", site).code == 0
    assert vm.status(site).mods[0].version == "1.1.0"
    assert "nothing is new" in call("update").out


@pytest.mark.slow
def test_an_annotated_tag_a_branch_and_a_commit_are_revisions(call: Call, alice: Path) -> None:
    old = git(alice, "rev-parse", "HEAD")
    git(alice, "tag", "-a", "-m", "t", "release")
    git(alice, "branch", "feature/one")
    commit(alice, mod("fast", "2.0.0"))
    for number, rev in enumerate(("release", "feature/one", old, old[:10])):
        said = call("add", f"git+../alice@{rev}", "--name", f"n{number}", "--json")
        assert said.json["library"]["commit"] == old
    said = call("add", "git+../alice", "--name", "newest", "--json")
    assert said.json["library"]["commit"] == git(alice, "rev-parse", "HEAD")


@pytest.mark.slow
def test_a_revision_that_there_is_not(call: Call, place: Path) -> None:
    said = call("add", "git+../alice@v9")
    assert said.code == 2
    assert "has no tag, branch or commit v9" in said.err
    assert kept(place) == {}


@pytest.mark.slow
def test_a_library_in_a_folder_of_a_repository(call: Call, tmp_path: Path) -> None:
    files = {f"deep/vllm/{name}": text for name, text in mod("fast").items()}
    commit(tmp_path / "many", files | {"patches/other.txt": "no part of it"}, "v1")
    said = call("add", "git+../many@v1#subdirectory=deep/vllm", "--name", "many", "--json")
    assert [one["name"] for one in said.json["mods"]] == ["fast"]
    assert call("show", "many/fast").code == 0


@pytest.mark.slow
def test_comments_and_order_stay(call: Call, place: Path) -> None:
    text = """\
# ours
schema = 1  # one

[targets.default]
mods = [
    "flashqla",  # quick
]

[libraries.zed]  # last
path = "../alice"
"""
    (place / "vllm-mods.toml").write_text(text)
    call("update")
    assert call("add", "git+../alice@v1", "--name", "alice", "--mod", "slow").code == 0
    now = (place / "vllm-mods.toml").read_text()
    for line in text.splitlines():
        assert line in now.splitlines()
    assert tomllib.loads(now)["targets"]["default"]["mods"] == ["flashqla", "alice/slow"]
    assert call("remove", "alice").code == 0
    assert (place / "vllm-mods.toml").read_text() == text


@pytest.mark.slow
def test_a_project_in_pyproject(call: Call, place: Path, site: Path) -> None:
    text = (
        '[project]\nname = "ours"\n\n[tool.vllm-mods]\nschema = 1\n\n[tool.ruff]\nline-length = 9\n'
    )
    (place / "pyproject.toml").write_text(text)
    assert call("add", "git+../alice@v1", "--mod", "fast").code == 0
    assert not (place / "vllm-mods.toml").exists()
    assert call("sync", "--target", site).code == 0
    (place / "vllm-mods.toml").write_text("schema = 1\n")
    said = call("list")
    assert said.code == 2
    assert "two settings files of one project" in said.err


@pytest.mark.slow
def test_the_file_above_counts_in_a_repository_only(
    call: Call, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("add", "git+../alice@v1")
    (place / "deep/er").mkdir(parents=True)
    monkeypatch.chdir(place / "deep/er")
    assert "fast" not in call("list").out
    git(place, "init", "-q")
    assert "fast" in call("list").out


@pytest.mark.slow
def test_a_library_that_was_not_fetched_is_not_fetched_by_reading(
    call: Call, tmp_path: Path
) -> None:
    call("add", "git+../alice@v1", "--mod", "fast")
    shutil.rmtree(tmp_path / "cache")
    said = call("list")
    assert said.code == 2
    assert "vllm-mods sync --fetch" in said.err
    assert not (tmp_path / "cache").exists()
    assert call("sync", "--fetch").code == 0
    assert "fast" in call("list").out


@pytest.mark.slow
def test_a_library_that_is_gone_is_had_from_the_cache(
    call: Call, alice: Path, site: Path, tmp_path: Path
) -> None:
    call("add", "git+../alice@v1", "--mod", "fast")
    alice.rename(tmp_path / "elsewhere")
    assert call("sync", "--target", site).code == 0
    shutil.rmtree(tmp_path / "cache")
    said = call("sync", "--target", site)
    assert said.code == 1
    assert "git fetch failed" in said.err
    assert call("update").code == 1


@pytest.mark.slow
def test_a_folder_is_read_as_it_stands_and_synced_as_it_is_locked(
    call: Call, place: Path, site: Path
) -> None:
    git_host.write(place / "mods", mod("mine"))
    assert call("add", "./mods", "--name", "ours", "--mod", "mine").code == 0
    assert 'path = "./mods"' in (place / "vllm-mods.toml").read_text()
    git_host.write(place / "mods", mod("mine", text="X = 7\n"))
    assert call("check", "mine", "--target", site).code == 0
    said = call("sync", "--target", site)
    assert said.code == 3
    assert "vllm-mods update ours" in said.err
    call("update", "ours")
    assert call("sync", "--target", site).code == 0
    assert (site / "vllm/mine.py").read_text() == "X = 7\n"


@pytest.mark.slow
def test_a_distribution_brings_a_library_and_runs_nothing(
    call: Call, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-of-ours"
    files = {f"acme/mods/{name}": text for name, text in mod("fast").items()}
    boom = "raise SystemExit('imported')\n"
    git_host.write(
        installed,
        files
        | {
            "acme/__init__.py": boom,
            "acme/mods/__init__.py": boom,
            "acme_vllm_mods-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme-vllm-mods\nVersion: 1.2\n",
            "acme_vllm_mods-1.2.dist-info/entry_points.txt": "[vllm_mods.libraries]\nacme = acme.mods\n",
        },
    )
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", str(installed / "acme/mods/patches")], check=True
    )
    monkeypatch.syspath_prepend(str(installed))
    said = call("add", "package:acme-vllm-mods", "--name", "acme", "--mod", "fast", "--json")
    assert said.json["library"]["version"] == "1.2"
    assert call("sync", "--target", site).code == 0
    assert (site / "vllm/fast.py").exists()
    assert call("add", "package:no-such-thing").code == 2
    assert call("add", "package:click").code == 2


@pytest.mark.slow
def test_a_server_that_has_files_alone(call: Call, alice: Path, site: Path, tmp_path: Path) -> None:
    git(alice, "update-server-info")
    handler = functools.partial(Quiet, directory=str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"git+http://127.0.0.1:{server.server_port}/alice/.git@v1"
        assert call("add", url, "--name", "alice", "--mod", "fast").code == 0
        shutil.rmtree(tmp_path / "cache")
        assert call("sync", "--target", site).code == 0
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.slow
def test_names_that_two_libraries_have(call: Call, tmp_path: Path, site: Path) -> None:
    commit(tmp_path / "bob", mod("fast", "7.0.0") | mod("other", more='requires = ["fast"]'), "v1")
    call("add", "git+../alice@v1")
    call("add", "git+../bob@v1")
    said = call("check", "fast", "--target", site)
    assert said.code == 2
    assert "alice/fast" in said.err
    assert "bob/fast" in said.err
    names = {
        (one["library"], one["version"])
        for one in call("list", "--json").json["mods"]
        if one["name"] == "fast"
    }
    assert names == {("alice", "1.0.0"), ("bob", "7.0.0")}
    assert "bob/fast" in call("list").out
    # what is required comes from the library of whoever requires it
    planned = call("check", "other", "--target", site, "--json").json
    assert {one["name"]: one["version"] for one in planned["mods"]} == {
        "fast": "7.0.0",
        "other": "1.0.0",
    }
    said = call("check", "alice/fast", "bob/other", "--target", site)
    assert said.code == 2
    assert "have the same name" in said.err
    assert call("apply", "alice/fast", "--target", site).code == 0
    assert call("status", "alice/fast", "--target", site).code == 0
    assert call("verify", "alice/fast", "--target", site).code == 0
    assert call("revert", "alice/fast", "--target", site).code == 0
    assert call("status", "alice/fast", "--target", site).code == 1
    assert call("show", "vllm-mods/flashqla").code == 0
    assert call("show", "vllm-mods/qwen3.6-35b").code == 0


@pytest.mark.slow
def test_a_pairing_takes_the_mods_beside_it(
    call: Call, tmp_path: Path, site: Path, place: Path
) -> None:
    pairing = (
        'schema = 1\nname = "pair"\nsummary = "s"\nmodel = "org/model"\nbase = "oci:nowhere"\n'
        'mods = ["fast"]\ncommand = "vllm serve org/model"\n'
    )
    commit(tmp_path / "bob", mod("fast", "7.0.0") | {"pairings/pair.toml": pairing}, "v1")
    call("add", "git+../alice@v1")
    call("add", "git+../bob@v1")
    with (place / "vllm-mods.toml").open("a") as file:
        file.write('\n[targets.served]\npairing = "pair"\n')
    assert call("sync", "served", "--target", site).code == 0
    assert vm.status(site).mods[0].version == "7.0.0"
    assert call("sync", "nowhere", "--target", site).code == 2


@pytest.mark.slow
def test_a_target_names_an_environment(call: Call, place: Path, tmp_path: Path) -> None:
    build(tmp_path / "venv/lib/python3.12/site-packages")
    call("add", "git+../alice@v1")
    with (place / "vllm-mods.toml").open("a") as file:
        file.write('\n[targets.default]\npath = "../venv"\nmods = ["alice/slow"]\n')
    assert call("sync").code == 0
    assert (tmp_path / "venv/lib/python3.12/site-packages/vllm/slow.py").exists()


@pytest.mark.slow
def test_a_name_is_taken_once(call: Call, place: Path) -> None:
    call("add", "git+../alice@v1")
    before = kept(place)
    said = call("add", "git+../alice@v1")
    assert said.code == 2
    assert "--name ANOTHER" in said.err
    assert call("add", "git+../alice@v1", "--name", "vllm-mods").code == 2
    assert call("add", "git+../alice@v1", "--name", "two", "--mod", "nothing").code == 2
    assert kept(place) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written(call: Call, place: Path) -> None:
    place.chmod(0o555)
    assert call("add", "git+../alice@v1").code == 3
    place.chmod(0o755)
    assert kept(place) == {}


@pytest.mark.slow
def test_both_are_written_or_none(call: Call, place: Path) -> None:
    (place / "vllm-mods.lock").mkdir()
    said = call("add", "git+../alice@v1")
    assert said.code == 3
    assert "cannot be written" in said.err
    assert kept(place) == {}


def started(place: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "vllm_mods", *words],
        cwd=place,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.slow
def test_two_that_add_at_once_both_do(call: Call, place: Path) -> None:
    running = [started(place, "add", "git+../alice@v1", "--name", name) for name in ("one", "two")]
    assert [one.wait(60) for one in running] == [0, 0]
    assert call("sync", "--fetch").code == 0
    assert call("show", "one/fast").code == call("show", "two/slow").code == 0


@pytest.mark.slow
def test_two_that_sync_at_once_leave_it_whole(call: Call, place: Path, site: Path) -> None:
    call("add", "git+../alice@v1", "--mod", "fast", "--mod", "slow")
    running = [started(place, "sync", "--target", str(site)) for _ in range(2)]
    codes = {one.wait(60) for one in running}
    assert 0 in codes
    assert codes <= {0, 3}
    assert call("sync", "--check", "--target", site).code == 0
    assert vm.verify(site).ok


@pytest.mark.slow
@pytest.mark.parametrize("words", [("add", "git+../alice@v1", "--mod", "fast"), ("sync",)])
def test_who_is_killed_leaves_it_whole(
    call: Call, place: Path, site: Path, words: tuple[str, ...]
) -> None:
    """Killed at ever later moments, a project fits its lock and a tree its receipt."""
    if words[0] == "sync":
        call("add", "git+../alice@v1", "--mod", "fast", "--mod", "slow")
        words = ("sync", "--target", str(site))
    untouched = snapshot(site)
    ended = False
    for step in range(40):
        running = started(place, *words)
        time.sleep(0.05 * step)
        ended = running.poll() is not None
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert call("list").code == 0
        if words[0] == "sync":
            assert call("sync", *words[1:]).code == 0
            assert vm.verify(site).ok
            call("revert", "--target", site)
            assert snapshot(site) == untouched
        elif (place / "vllm-mods.toml").exists():
            assert call("sync", "--check", "--target", site).code == 1
            call("remove", "alice")
            (place / "vllm-mods.toml").unlink()
        if ended:
            break
    assert ended


@pytest.mark.slow
def test_a_library_that_is_not_here_is_asked_for_whatever_is_named(
    call: Call, site: Path, tmp_path: Path
) -> None:
    commit(tmp_path / "bob", mod("other"), "v1")
    call("add", "git+../alice@v1")
    call("add", "git+../bob@v1")
    locked = json.loads(call("list", "--json").out)["mods"]
    (alice,) = {Path(one["directory"]).parents[2] for one in locked if one["library"] == "alice"}
    shutil.rmtree(alice)
    for name in ("list", "show flashqla", "show fast", f"check other --target {site}"):
        said = call(*name.split())
        assert said.code == 2
        assert said.err.startswith("error: alice (git+../alice@v1) has not been fetched")
        assert "hint: vllm-mods sync --fetch" in said.err
    assert call("status", "--target", site).code == 0


@pytest.mark.slow
def test_what_names_no_mod_says_which_to_name_where_two_libraries_have_one(
    call: Call, tmp_path: Path, site: Path
) -> None:
    commit(tmp_path / "bob", mod("fast", "7.0.0") | mod("hybrid-int4-fp8", "9.0.0"), "v1")
    call("add", "git+../alice@v1")
    call("add", "git+../bob@v1")
    said = call("matrix", "--tree", site)
    assert said.code == 2
    assert "alice/fast and bob/fast have the same name" in said.err
    assert call("matrix", "alice/fast", "slow", "--tree", site).code == 0
    said = call("matrix", "alice/fast", "bob/fast", "--tree", site)
    assert said.code == 2
    assert "alice/fast and bob/fast have the same name" in said.err
    assert call("list").code == 0
    # without a name, `check` takes what comes with the tool and is marked as default
    planned = call("check", "--target", site, "--json").json
    assert [(one["name"], one["version"]) for one in planned["mods"]] == [
        ("hybrid-int4-fp8", "1.1.0")
    ]
