"""``import --record --fetch``: what a script has of git repositories is taken once, pinned by its commit."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from git_server import git, serving
from memory_tree import MemoryTree
from mod_folders import FAST, LOADER, SITE, TOP

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.making import fetching, from_script, over_releases, served
from vllm_mods.making import folder as launcher
from vllm_mods.making.compose import Wanted
from vllm_mods.making.recording import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Answer

    Call = Callable[..., Answer]


class Shelf:
    """A server's URL, the commits of its repository, and what it was asked."""

    def __init__(self, url: str, asked: list[str], folder: Path) -> None:
        self.url, self.asked, self.folder = f"{url}/vllm.git", asked, folder
        self.pull = git(folder, "rev-parse", "refs/pull/7/head")
        self.main = git(folder, "rev-parse", "main")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    """Serve a vLLM with a pull request of two commits, of which the last one is the change."""
    root, work = tmp_path / "served", tmp_path / "work"
    root.mkdir()
    work.mkdir()
    git(work, "init", "-q", "-b", "main")
    (work / "vllm").mkdir()
    for name, text in (("loader.py", "OLD = 1\n"), ("loader.py", LOADER)):
        (work / "vllm" / name).write_text(text)
        git(work, "add", "-A")
        git(work, "commit", "-qm", name)
    git(work, "checkout", "-qb", "fast")
    for name, text in (("notes.txt", "a note\n"), ("vllm/loader.py", FAST)):
        (work / name).write_text(text)
        git(work, "add", "-A")
        git(work, "commit", "-qm", name)
    git(work, "tag", "v1")
    git(tmp_path, "clone", "-q", "--bare", str(work), str(root / "vllm.git"))
    git(root / "vllm.git", "update-ref", "refs/pull/7/head", "fast")
    git(root / "vllm.git", "symbolic-ref", "HEAD", "refs/heads/main")
    with serving(root, monkeypatch) as (url, asked):
        yield Shelf(url, asked, root / "vllm.git")


def folder(tmp_path: Path, text: str) -> Path:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "run.sh").write_text(TOP + text)
    return place


COPY = f"cp vllm/loader.py {SITE}/vllm/loader.py\n"
FORMS = {
    "clone of a branch, a file copied": "git clone -q --depth 1 --branch fast {url} /tmp/src\ncd /tmp/src\n" + COPY,
    "clone of a tag": "git clone --depth=1 -b v1 --single-branch {url} src\ncd src\n" + COPY,
    "init, fetch of a pull request, checkout": "git init -q w && cd w\ngit fetch -q --depth=1 {url} pull/7/head\n"
    "git checkout -q FETCH_HEAD\n" + COPY,
    "clone, the pull request's diff": "git clone -q {url} src\ncd src\ngit fetch -q origin pull/7/head\n"
    "git diff HEAD...FETCH_HEAD -- vllm | patch -p1 -F0 -d " + SITE + "\n",
    "partial clone, format-patch": "git clone -q --filter=blob:none {url} src\n"
    "git -C src fetch -q origin pull/7/head:pr\n"
    "git -C src format-patch -q -1 --stdout pr | git -C " + SITE + " apply -p1\n",
    "cherry-pick": "git clone -q {url} src && cd src\ngit fetch -q origin pull/7/head\n"
    "git cherry-pick -n FETCH_HEAD\n" + COPY,
    "a remote of its own": "git init -q w && cd w\ngit remote add up {url}\ngit fetch -q up +refs/pull/7/head\n"
    "git checkout -q FETCH_HEAD -- vllm/loader.py\n" + COPY,
    "a commit by its name": "git init -q w && cd w\ngit fetch -q {url} {pull}\n"
    "git show FETCH_HEAD:vllm/loader.py > " + SITE + "/vllm/loader.py\n",
    "into the packages themselves": "cd " + SITE + "\ngit init -q .\ngit fetch -q {url} pull/7/head\n"
    "git checkout -q FETCH_HEAD -- vllm/loader.py\n",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", FORMS)
def test_it_is_taken_once_and_pinned_by_its_commit(
    call: Call, site: Path, tmp_path: Path, shelf: Shelf, form: str
) -> None:
    text = FORMS[form].replace("{url}", shelf.url).replace("{pull}", shelf.pull)
    source, made = folder(tmp_path, text), tmp_path / "library-of-mine"
    answer = call("import", source, "--tree", site, "--library", made, "--record", "--fetch")
    assert answer.code == 0, answer.err
    assert f"commit {shelf.pull}" in answer.err
    kept = made / f"patches/mine/fetched/{shelf.pull}.commit"
    again = subprocess.run(
        ["git", "hash-object", "-t", "commit", kept], check=True, capture_output=True, text=True
    )
    assert again.stdout.strip() == shelf.pull
    assert f'url = "{shelf.url}#' in (made / "patches/mine/mod.toml").read_text()
    before = len(shelf.asked)
    assert call("apply", "mine", "--library", made, "--target", site).code == 0
    assert (site / "vllm/loader.py").read_text() == FAST
    assert len(shelf.asked) == before


@pytest.mark.slow
def test_it_is_taken_once_for_all_releases(tmp_path: Path, shelf: Shelf) -> None:
    text = FORMS["cherry-pick"].replace("{url}", shelf.url)
    source = launcher.read(str(folder(tmp_path, text)))
    trees = [
        over_releases.Release(
            version,
            MemoryTree(
                {"vllm/__init__.py": b"", "vllm/loader.py": (head + LOADER).encode()}, version
            ),
        )
        for version, head in (("0.21.0", ""), ("0.22.0", "# moved\n"))
    ]
    fetcher = fetching.Fetcher(lambda _: None)
    made, _ = from_script.make(
        source, Wanted("mine"), trees, Limits(seconds=60), lambda _: None, fetcher=fetcher
    )
    assert [one.asked[1] for one in fetcher.repositories.values()] == ["HEAD", "pull/7/head"]
    assert made.files[f"fetched/{shelf.pull}.commit"].startswith(b"tree ")
    assert made.files["mod.toml"].count(f"{shelf.url}#pull/7/head".encode()) == len(
        {row.variant for row in made.rows}
    )


@pytest.mark.slow
def test_without_it_nothing_is_taken(call: Call, site: Path, tmp_path: Path, shelf: Shelf) -> None:
    text = FORMS["cherry-pick"].replace("{url}", shelf.url)
    answer = call("import", folder(tmp_path, text), "--tree", site, "--record")
    assert answer.code == 3
    assert "run.sh:3: `git clone" in answer.err
    assert shelf.asked == []


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "line",
    [
        "git clone --recurse-submodules {url} src",
        "git fetch --all",
        "git submodule update --init",
        "git ls-remote {url}",
        "git clone {url} src && git -C src fetch origin pull/8/head",
        "git clone {url} src && git -C src fetch origin",
        "git clone -b nowhere {url} src",
        "git clone git://git.example/vllm.git src",
        "git clone git@git.example:vllm.git src",
        "git clone http://git.example/vllm.git src",
        "git clone https://127.0.0.1/vllm.git src",
        "git clone https://me:word@git.example/vllm.git src",
        "git clone -u /bin/true {url} src",
        "git -c core.sshCommand=true clone ssh://git.example/vllm.git src",
    ],
)
def test_what_is_not_known_refuses_by_line(
    call: Call, site: Path, tmp_path: Path, shelf: Shelf, line: str
) -> None:
    text = f"{line.replace('{url}', shelf.url)}\necho x >> {SITE}/vllm/loader.py\n"
    source = folder(tmp_path, text)
    answer = call(
        "import", source, "--tree", site, "--library", tmp_path / "lib", "--record", "--fetch"
    )
    assert answer.code in {1, 2, 3}
    assert (
        "run.sh:3" in answer.err
        or "pull/8/head" in answer.err
        or "nowhere" in answer.err
        or "https" in answer.err
    )
    assert "word" not in answer.err
    assert not (tmp_path / "lib").exists()


@pytest.mark.slow
def test_nothing_of_a_repository_runs_here(
    tmp_path: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, ran = tmp_path / "home", tmp_path / "ran"
    hooks = tmp_path / "hooks"
    for place in (home, hooks):
        place.mkdir()
    for name in ("reference-transaction", "post-checkout", "fsmonitor"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (hooks / name).chmod(0o755)
    (home / ".gitconfig").write_text(
        f'[core]\n\thooksPath = {hooks}\n[credential]\n\thelper = !touch {ran}\n[url "ext::touch {ran}"]\n\tinsteadOf = https:\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(hooks))
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "ext:file:https")
    place = tmp_path / "bare"
    place.mkdir()
    taken = fetching.take_repository((shelf.url, "pull/7/head", 1), str(place))
    assert taken.commit == shelf.pull
    assert not ran.exists()
    assert not os.listdir(place / "hooks") if (place / "hooks").exists() else True


@pytest.mark.slow
def test_more_than_a_mod_may_have_is_not_taken(
    tmp_path: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = limits.Limit(1 << 10, "bytes", "all of a mod")
    monkeypatch.setattr(limits, "MOD_BYTES", small)
    with pytest.raises(TreeError, match="more than 1 KiB"):
        fetching.take_repository((shelf.url, "main", 0), str(tmp_path))


def test_a_machine_without_git_is_no_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TreeError, match="No such file or directory: 'git'"):
        fetching.take_repository(("https://git.example/x", "HEAD", 0), str(tmp_path))


@pytest.mark.parametrize("url", ["file:///", "http://git.example/x", "ext::sh -c touch% /tmp/x"])
def test_no_other_protocol_is_spoken(tmp_path: Path, url: str) -> None:
    with pytest.raises(TreeError, match=r"not allowed|ext"):
        fetching.take_repository((url, "HEAD", 0), str(tmp_path))


@pytest.mark.slow
def test_a_redirect_is_not_followed(tmp_path: Path, shelf: Shelf) -> None:
    with pytest.raises(TreeError):
        fetching.take_repository(
            (shelf.url.replace("vllm.git", "moved.git"), "HEAD", 0), str(tmp_path)
        )


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("clone https://h/x", ("https://h/x", "HEAD", 0)),
        ("clone --depth 3 -b v1 https://h/x y", ("https://h/x", "v1", 3)),
        ("fetch --depth=1 https://h/x main:other", ("https://h/x", "main", 1)),
        ("fetch https://h/x", ("https://h/x", "HEAD", 0)),
        ("fetch origin +pull/1/head", ("https://o/x", "pull/1/head", 0)),
        ("fetch origin", None),
        ("fetch https://h/x a b", None),
        ("fetch --tags https://h/x a", None),
        ("fetch https://h/x -- --upload-pack=x", None),
        ("fetch https://h/x ../../a", None),
        ("fetch https://h/x a..b", None),
        ("clone https://h/x y z", None),
        ("clone -- --upload-pack=touch", None),
        ("clone --depth x https://h/x", None),
    ],
)
def test_only_uses_that_ask_for_one_ref_are_known(words: str, asked: served.Asked | None) -> None:
    assert served.parse_git(words.split(), {"origin": "https://o/x"}.get) == asked


def test_what_a_recording_says_that_it_asked_for_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / served.ASKED).write_bytes(
        b'["https://h/x", "--upload-pack=touch x", 0]\n["--upload-pack=x", "HEAD", 0]\nnot json\n{}\n'
        b'[1, 2, 3]\n["https://h/x", "HEAD", -1]\n["https://h/x", "HEAD", true]\n["https://h/x", "a", 2]\n'
    )
    assert [*fetching.asked(str(tmp_path))] == [("https://h/x", "a", 2)]
    with pytest.raises(UsageError):
        fetching.check("--upload-pack=x")
