"""Libraries of others that want more than to be read: by their address, their repository, their files, their lock."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lone_project
import pytest
from git_host import commit, git, mod, served, write
from lowering import lower
from small_site import build, snapshot

from vllm_mods.base import secrets
from vllm_mods.cli import run
from vllm_mods.formats.project import LibrarySource
from vllm_mods.formats.project_lock import LockedLibrary
from vllm_mods.sharing import kept
from vllm_mods.trees import git_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vllm_mods.trees.git_process import GitOutcome

    Call = Callable[..., tuple[int, str]]

SECRET = "s3cr3t-t0ken"  # noqa: S105  (what may appear nowhere)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return lone_project.project(tmp_path, monkeypatch)


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    def do(*arguments: object) -> tuple[int, str]:
        code = run([str(one) for one in arguments])
        out, err = capfd.readouterr()
        return code, out + err

    return do


@pytest.fixture
def alice(tmp_path: Path) -> Path:
    commit(tmp_path / "alice", mod("fast"), "v1")
    return tmp_path / "alice"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return build(tmp_path / "site")


def everything(folder: Path) -> bytes:
    """Return all that was written below a folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
@pytest.mark.parametrize(
    "address",
    [
        "git+ext::sh -c 'touch {mark}'",
        "git+ext::touch%20{mark}",
        "git+fd::7",
        "git+--upload-pack=touch {mark}",
        "git+-utouch",
        "git+ssh://-oProxyCommand=touch%20{mark}/x",
        "git+-oProxyCommand=touch@host:x",
        "git+git@host:-x",
        "git+git://host/x",
        "git+http://example.org/x",
        "git+ftp://host/x",
        "git+file://host/x",
        "git+../alice@--output={mark}",
        "git+../alice@-v1",
        "git+../alice@v1:x",
        "git+../alice@v1..v2",
        "git+../alice@@{{0}}",
        "git+../alice@v1#subdirectory=../..",
        "git+../alice@v1#subdirectory=/etc",
        "git+../alice\n@v1",
        "package:../x",
        "package:-x",
    ],
)
def test_no_address_is_a_command(
    call: Call, place: Path, tmp_path: Path, alice: Path, address: str
) -> None:
    mark = tmp_path / "mark"
    assert alice.exists()
    code, said = call("add", address.format(mark=mark), "--name", "x")
    assert code == 2, said
    assert not mark.exists()
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("key", ["git", "rev", "subdirectory", "package"])
def test_nor_is_one_in_the_file_or_in_the_lock(
    call: Call, place: Path, tmp_path: Path, key: str
) -> None:
    mark = tmp_path / "mark"
    table = {"git": "../alice"} if key in {"rev", "subdirectory"} else {}
    table[key] = {"subdirectory": f"../{mark}"}.get(key, f"--upload-pack=touch {mark}")
    text = "".join(f'{name} = "{value}"\n' for name, value in table.items())
    (place / "vllm-mods.toml").write_text(f"schema = 1\n[libraries.x]\n{text}")
    assert call("update")[0] == 2
    (place / "vllm-mods.toml").write_text("schema = 1\n[libraries.x]\ngit = '../alice'\n")
    (place / "vllm-mods.lock").write_text(
        f"schema = 1\n[libraries.x]\n{text}commit = '--help'\nfiles = 'x'\n"
    )
    assert call("sync", "--fetch")[0] == 2
    assert not mark.exists()


@pytest.mark.slow
def test_nothing_of_a_repository_is_run(
    call: Call, tmp_path: Path, alice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "hooks").mkdir()
    for folder in (alice / ".git/hooks", tmp_path / "hooks"):
        folder.mkdir(exist_ok=True)
        for name in ("post-checkout", "reference-transaction", "post-merge", "pre-receive"):
            (folder / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
            (folder / name).chmod(0o755)
    settings = tmp_path / "home/.gitconfig"
    settings.write_text(
        f"[core]\n\thooksPath = {tmp_path}/hooks\n\tfsmonitor = touch {mark}\n"
        f'[filter "x"]\n\tsmudge = touch {mark}\n\tclean = touch {mark}\n\tprocess = touch {mark}\n\trequired = true\n'
        f"[init]\n\ttemplateDir = {tmp_path}/template\n"
    )
    write(tmp_path / "template/hooks", {"reference-transaction": f"#!/bin/sh\ntouch {mark}\n"})
    (tmp_path / "template/hooks/reference-transaction").chmod(0o755)
    (alice / ".gitattributes").write_text("* filter=x\n")
    bare = (
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "filter.x.required=false",
    )
    for words in (("add", ".gitattributes"), ("commit", "-q", "-m", "a"), ("tag", "v2")):
        git(alice, *bare, "-c", "filter.x.clean=", "-c", "filter.x.process=", *words)
    mark.unlink(missing_ok=True)
    short = git(alice, *bare, "rev-parse", "v2")[:10]
    # as a hook has it that runs this
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "not-ours"))
    assert call("add", "git+../alice@v2")[0] == 0
    assert call("add", f"git+../alice@{short}", "--name", "all-of-it")[0] == 0
    assert call("update")[0] == 0
    assert not mark.exists()
    assert not (tmp_path / "not-ours").exists()


def linked(folder: Path) -> None:
    (folder / "patches/fast/notes.txt").symlink_to("/etc/passwd")


def nested(folder: Path) -> None:
    commit(folder.parent / "inner", {"a": "b"})
    git(
        folder,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        "../inner",
        "patches/inner",
    )


def kept_elsewhere(folder: Path) -> None:
    (folder / "patches/fast/x.py").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    )


def with_a_line_in_its_name(folder: Path) -> None:
    (folder / "patches/fast/a\nb").write_text("")


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (linked, "is a symbolic link"),
        (nested, "is a submodule"),
        (kept_elsewhere, "git-lfs"),
        (with_a_line_in_its_name, "other systems do not support"),
    ],
)
def test_what_is_no_plain_file_is_refused(
    call: Call, place: Path, alice: Path, spoil: Callable[[Path], None], why: str
) -> None:
    spoil(alice)
    commit(alice, {}, "v2")
    code, said = call("add", "git+../alice@v2")
    assert code in {1, 2}
    assert why in said
    assert list(place.iterdir()) == []


@pytest.mark.slow
def test_a_tree_that_leads_out_is_refused(
    call: Call, place: Path, alice: Path, tmp_path: Path
) -> None:
    blob = git(alice, "hash-object", "-w", "patches/fast/x.py")

    def tree(mode: bytes, name: bytes, sha: str) -> str:
        made = subprocess.run(
            ["git", "-C", alice, "hash-object", "-t", "tree", "-w", "--stdin", "--literally"],
            input=mode + b" " + name + b"\0" + bytes.fromhex(sha),
            capture_output=True,
            check=True,
        )
        return made.stdout.decode().strip()

    top = tree(b"40000", b"patches", tree(b"40000", b"..", tree(b"100644", b"out.py", blob)))
    git(alice, "tag", "bad", git(alice, "commit-tree", top, "-m", "x"))
    assert call("add", "git+../alice@bad")[0] == 1
    assert list(place.iterdir()) == []
    assert not list(tmp_path.rglob("out.py"))


@pytest.mark.slow
def test_a_library_of_too_many_files(
    call: Call, alice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert alice.exists()
    lower(monkeypatch, "LIBRARY_FILES", 1)
    code, said = call("add", "git+../alice@v1")
    assert code == 1
    assert "more than 1 file" in said
    lower(monkeypatch, "LIBRARY_FILES", 9)
    lower(monkeypatch, "LIBRARY", 9)
    assert "more than 9 bytes" in call("add", "git+../alice@v1")[1]


@pytest.mark.parametrize(
    "url",
    [
        f"git+https://me:{SECRET}@127.0.0.1:9/alice@v1",
        f"git+https://{SECRET}@127.0.0.1:9/alice",
        f"git+https://127.0.0.1:9/alice?token={SECRET}",
        f"git+ssh://me:{SECRET}@127.0.0.1:9/alice",
        f"https://me:{SECRET}@127.0.0.1:9/alice",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(
    call: Call, place: Path, url: str
) -> None:
    code, said = call("add", url, "--name", "x")
    assert code == 2
    assert SECRET not in said
    text = url.removeprefix("git+")
    (place / "vllm-mods.toml").write_text(f'schema = 1\n[libraries.x]\ngit = "{text}"\n')
    code, said = call("update", "--json")
    assert code == 2
    assert SECRET not in said


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_git_asks_its_own_helpers_and_what_they_say_appears_nowhere(
    call: Call, place: Path, tmp_path: Path, alice: Path, *, right: bool
) -> None:
    assert alice.exists()
    with served(tmp_path, password=SECRET if right else "another") as host:
        kept = tmp_path / "home/.git-credentials"
        kept.write_text(host.url.replace("//", f"//me:{SECRET}@") + "\n")
        settings = tmp_path / "home/.gitconfig"
        settings.write_text("[credential]\n\thelper = store\n")
        code, said = call("add", f"git+{host.url}/alice@v1", "--name", "x")
        assert code == (0 if right else 1), said
        assert SECRET not in said
        # and where the settings put it into the address
        settings.write_text(
            f'[url "{host.url.replace("//", f"//me:{SECRET}@")}/"]\n\tinsteadOf = {host.url}/\n'
        )
        code, said = call("add", f"git+{host.url}/alice@v1", "--name", "y", "--json")
        assert code == (0 if right else 1), said
        assert SECRET not in said
    secret = SECRET.encode()
    assert secret not in everything(place)
    assert not (tmp_path / "cache").exists() or secret not in everything(tmp_path / "cache")


def test_what_a_transport_says_is_repeated_without_secrets(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = f"fatal: https://me:{SECRET}@host/x?token={SECRET} is not for you"
    monkeypatch.setenv("GIT_SSH_COMMAND", f"sh -c 'echo \"{said}\" >&2; exit 1' #")
    code, told = call("add", "git+ssh://host/alice@v1", "--name", "x")
    assert code == 1
    assert "is not for you" in told
    assert SECRET not in told


@pytest.mark.slow
def test_nobody_is_asked_where_nobody_is(call: Call, tmp_path: Path, alice: Path) -> None:
    assert alice.exists()
    with served(tmp_path, password="x") as host:  # noqa: S106
        code, said = call("add", f"git+{host.url}/alice@v1", "--name", "x")
    assert code == 1
    assert "terminal prompts disabled" in said


@pytest.mark.slow
@pytest.mark.usefixtures("alice")
def test_a_ref_with_a_tab_in_its_name_is_no_bug(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = git_process.run

    def answer(
        folder: str, words: tuple[str, ...], environ: Mapping[str, str], **rest: Any
    ) -> GitOutcome:
        done = whole(folder, words, environ, **rest)
        if words[0] != "ls-remote":
            return done
        return done._replace(out=b"%040d\trefs/heads/a\t/refs/tags/v1\n" % 1)

    monkeypatch.setattr(git_process, "run", answer)
    code, said = call("add", "git+../alice@v1")
    assert code == 0, said
    code, said = call("add", "git+../alice@v2", "--name", "x")
    assert code == 2
    assert "has no tag, branch or commit v2" in said


@pytest.mark.slow
def test_a_lock_that_was_edited(
    call: Call, place: Path, alice: Path, site: Path, tmp_path: Path
) -> None:
    call("add", "git+../alice@v1", "--mod", "fast")
    lock = place / "vllm-mods.lock"
    good = lock.read_text()
    old = git(alice, "rev-parse", "HEAD")
    new = commit(alice, mod("fast", text="X = 'evil'\n"))
    before = snapshot(site)
    shutil.rmtree(tmp_path / "cache")
    for bad, code, why in (
        (good.replace(old, new), 3, "differs from"),
        (good.replace(old, "0" * 40), 2, "has no commit"),
        (good.replace("../alice", "../bob"), 2, "vllm-mods update alice"),
        (good.replace("sha256:", "sha1:"), 2, "expected sha256:HEX"),
        (good.replace("schema = 1", "schema = 2"), 2, "schema"),
        ("schema = 1\n", 2, "vllm-mods update alice"),
    ):
        lock.write_text(bad)
        found, said = call("sync", "--target", site)
        assert (found, why in said) == (code, True), said
        assert snapshot(site) == before


@pytest.mark.slow
def test_what_is_kept_is_held_against_the_lock_at_each_read(
    call: Call, alice: Path, site: Path, tmp_path: Path
) -> None:
    assert alice.exists()
    call("add", "git+../alice@v1", "--mod", "fast")
    (kept,) = (tmp_path / "cache").rglob("x.py")
    kept.write_text("X = 'evil'\n")
    for words in (("check", "fast", "--target", site), ("apply", "fast", "--target", site)):
        code, said = call(*words)
        assert code == 2
        assert "vllm-mods sync --fetch" in said
    assert call("sync", "--target", site)[0] == 0  # which has it anew
    assert (site / "vllm/fast.py").read_text() == "X = 1\n"
    (kept,) = (tmp_path / "cache").rglob("mod.toml")
    kept.unlink()
    assert call("list")[0] == 2
    assert call("sync", "--target", site)[0] == 0
    (listed,) = (tmp_path / "cache").rglob("list")
    listed.write_text("")
    assert call("list")[0] == 2


@pytest.mark.slow
def test_a_mod_that_was_put_beside_is_not_taken(call: Call, alice: Path, tmp_path: Path) -> None:
    assert alice.exists()
    call("add", "git+../alice@v1")
    (folder,) = (tmp_path / "cache/libraries").glob("*/files")
    write(folder, mod("more"))
    code, said = call("show", "more")
    assert code == 3
    assert "is in no hash list" in said


@pytest.mark.slow
def test_what_a_mod_may_touch_is_said_before_it_touches_it(call: Call, tmp_path: Path) -> None:
    more = 'outside = ["sitecustomize.py"]\n[env]\nLD_PRELOAD = "/x.so"\n'
    files = mod("fast", more=more)
    name = "patches/fast/mod.toml"
    files[name] = files[name].replace("vllm/fast.py", "sitecustomize.py")
    commit(tmp_path / "mallory", files, "v1")
    code, said = call("add", "git+../mallory@v1")
    assert code == 0
    for word in ("outside     sitecustomize.py", "LD_PRELOAD=/x.so"):
        assert word in said


@pytest.mark.slow
def test_the_policy_holds_for_sync(call: Call, place: Path, alice: Path, site: Path) -> None:
    assert alice.exists()
    call("add", "git+../alice@v1", "--mod", "fast")
    with (place / "vllm-mods.toml").open("a") as file:
        file.write(f'\n[trust]\nrequire_hashes = ["sha256:{"0" * 64}"]\n')
    before = snapshot(site)
    code, said = call("sync", "--target", site)
    assert code == 3
    assert "does not allow this:" in said
    assert snapshot(site) == before


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen (OpenSSH)")
def test_a_signature_that_is_asked_for(
    call: Call, place: Path, alice: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = key.with_suffix(".pub").read_text()
    (place / "signers").write_text(f'a@b namespaces="vllm-mods" {public}')
    words = ("--allowed-signers", "signers", "--mod", "fast")
    assert call("add", "git+../alice@v1", *words)[0] in {2, 3}
    listing = subprocess.run(
        ["sh", "-c", "find patches -type f | sort | xargs sha256sum"],
        cwd=alice,
        capture_output=True,
        check=True,
    )
    (alice / "SHA256SUMS").write_bytes(listing.stdout)
    sign = [
        "ssh-keygen",
        "-q",
        "-Y",
        "sign",
        "-f",
        str(key),
        "-n",
        "vllm-mods",
        str(alice / "SHA256SUMS"),
    ]
    subprocess.run(sign, check=True, capture_output=True)
    commit(alice, {}, "v2")
    assert call("add", "git+../alice@v2", *words)[0] == 0
    assert call("list")[0] == 0
    commit(alice, mod("fast", text="X = 'not signed'\n"), "v2")
    code, said = call("update")
    assert code == 3
    assert "has the hash" in said
    (place / "signers").write_text(f'a@b namespaces="file" {public}')
    assert call("sync", "--fetch")[0] == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give a file away")
def test_somebody_elses_file_above_is_not_taken(
    call: Call, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(place, "init", "-q")
    (place / "vllm-mods.toml").write_text("schema = 1\n")
    (place / "inner").mkdir()
    monkeypatch.chdir(place / "inner")
    assert call("list")[0] == 0
    os.chown(place / "vllm-mods.toml", 12345, 12345)
    code, said = call("list")
    assert code == 2
    assert "VLLM_MODS_CONFIG=" in said


@pytest.mark.parametrize(
    "source",
    [
        f"git+https://127.0.0.1:9/alice@me:{SECRET}@x",
        f"git+https://127.0.0.1:9/alice@v1?token={SECRET}",
        f"git+https://127.0.0.1:9/alice@v1#subdirectory=a?token={SECRET}",
        f"git+me@{SECRET}!",
        f"git+//me:{SECRET}@127.0.0.1:9/alice",
        f"me:{SECRET}@127.0.0.1:9/alice",
        f"127.0.0.1:9/alice?token={SECRET}",
    ],
)
def test_nor_is_one_at_another_place_of_an_address(call: Call, place: Path, source: str) -> None:
    code, said = call("add", source, "--name", "x")
    assert code == 2
    assert SECRET not in said
    assert not list(place.iterdir())


@pytest.mark.slow
def test_a_revision_in_the_lock_is_not_repeated(call: Call, place: Path, alice: Path) -> None:
    assert alice.exists()
    call("add", "git+../alice@v1")
    for name in ("vllm-mods.lock", "vllm-mods.toml"):
        text = (place / name).read_text()
        (place / name).write_text(text.replace('"v1"', f'"me:{SECRET}@x"'))
        code, said = call("sync", "--fetch")
        assert code == 2
        assert "expected a tag" in said
        assert SECRET not in said


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", ["x.py", "list"])
@pytest.mark.parametrize("damage", [os.mkfifo, lambda path: path.symlink_to("/dev/null")])
def test_what_is_kept_and_is_no_file_any_more_is_had_anew(
    call: Call,
    alice: Path,
    site: Path,
    tmp_path: Path,
    *,
    what: str,
    damage: Callable[[Path], None],
) -> None:
    assert alice.exists()
    call("add", "git+../alice@v1", "--mod", "fast")
    (kept,) = (tmp_path / "cache").rglob(what)
    kept.unlink()
    damage(kept)
    code, said = call("sync", "--target", site)
    assert code == 0, said
    assert kept.is_file()
    assert not kept.is_symlink()


@pytest.mark.slow
def test_removing_a_library_takes_no_mod_of_another_out(
    call: Call, place: Path, tmp_path: Path
) -> None:
    files = {
        "templates/flashqla/mod.toml": "",
        "patches/hybrid-int4-fp8/x/mod.toml": "",
        "patches/hybrid-int4-fp8/mod.toml.txt": "",
    }
    commit(tmp_path / "eve", mod("fast") | files, "v1")
    call("add", "git+../eve@v1", "--mod", "fast")
    project = place / "vllm-mods.toml"
    others = '"flashqla", "hybrid-int4-fp8"'
    project.write_text(project.read_text().replace('"eve/fast"', f'"fast", {others}'))
    assert call("remove", "eve")[0] == 0
    assert f"mods = [{others}]" in project.read_text()


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["vllm-mods.toml", "pyproject.toml"])
def test_a_project_that_is_no_file(place: Path, name: str) -> None:
    """A pipe would be waited for; a folder, or a link to nothing, was named by nobody."""
    where = place / name
    for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to("nowhere")):
        make(where)
        done = subprocess.run(
            [sys.executable, "-m", "vllm_mods", "list"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 2
        assert f"{where} is not a regular file\n\nhint: ls -l {where}" in done.stderr
        where.rmdir() if where.is_dir() else where.unlink()


@pytest.mark.parametrize("path", ["", "a\\u0000b"])
def test_a_target_without_a_path(call: Call, place: Path, path: str) -> None:
    (place / "vllm-mods.toml").write_text(f'schema = 1\n[targets.a]\nmods = []\npath = "{path}"\n')
    code, said = call("sync")
    assert code == 2
    assert "targets.a.path: is not a path" in said


def test_a_table_of_pyproject_that_is_none_is_not_passed_over(call: Call, place: Path) -> None:
    for text in ('[tool]\nvllm-mods = "x"\n', "[[tool.vllm-mods]]\nschema = 1\n"):
        (place / "pyproject.toml").write_text(text)
        code, said = call("list")
        assert code == 2
        assert "tool.vllm-mods: expected a table, found" in said


def test_what_another_run_has_just_kept_is_not_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = kept.open_kept
    files = {path: text.encode() for path, text in mod("fast").items()}
    fetched = kept.FetchedLibrary("", files)
    locked = kept.lock(LibrarySource("path", "./mods"), fetched)
    mark = tmp_path / "mark"

    def slowly(locked: LockedLibrary) -> kept.KeptLibrary | None:
        found = opened(locked)
        if not mark.exists():
            mark.touch()
            kept.keep(locked, fetched)
            (folder,) = (tmp_path / "cache/libraries").iterdir()
            (folder / "mark").touch()
        return found

    monkeypatch.setattr(kept, "open_kept", slowly)
    kept.keep(locked, fetched)
    (folder,) = (tmp_path / "cache/libraries").iterdir()
    assert (folder / "mark").exists()


def test_no_room_for_what_git_fetches(
    call: Call, place: Path, alice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert alice.exists()

    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    code, said = call("add", "git+../alice@v1")
    assert (code, "cannot be written: No space left on device" in said, "df -h" in said) == (
        3,
        True,
        True,
    )
    assert not list(place.iterdir())


@pytest.mark.slow
def test_a_limit_of_the_users_own_on_files_is_no_bug(place: Path, alice: Path) -> None:
    assert alice.exists()

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    done = subprocess.run(
        [sys.executable, "-m", "vllm_mods", "add", "git+../alice@v1"],
        cwd=place,
        preexec_fn=limited,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("entries", "version"),
    [
        (b"[vllm_mods.libraries]\nnothing\n", "1"),
        (b"\xff\xfe", "1"),
        (b"[vllm_mods.libraries]\na = acme\n", "1\x1b[31m ../x"),
        (b"[vllm_mods.libraries]\na = acme\n", None),
    ],
)
def test_a_distribution_that_is_damaged(
    call: Call,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    entries: bytes,
    version: str | None,
) -> None:
    """Of a version that is none, the lock would be one that nobody reads again."""
    there = tmp_path / "installed"
    write(there / "acme", mod("fast"))
    said = "" if version is None else f"Version: {version}\n"
    info = "acme_mods-1.dist-info"
    write(there, {f"{info}/METADATA": f"Metadata-Version: 2.1\nName: acme-mods\n{said}"})
    (there / info / "entry_points.txt").write_bytes(entries)
    monkeypatch.syspath_prepend(str(there))
    code, said = call("add", "package:acme-mods", "--name", "acme")
    assert code == 2
    assert "damaged" in said
    assert "hint: pip install --force-reinstall acme-mods" in said
    assert not list(place.iterdir())


@pytest.mark.parametrize("source", [f"git+https://h/x@me:{SECRET}@y", f"me:{SECRET}@h/x"])
def test_a_traceback_has_no_password_of_an_address_without_a_scheme(source: str) -> None:
    assert SECRET not in secrets.clean(f"ValueError: {source}", {})
    image = f"registry/team/mods:release1@sha256:{'0' * 64}"
    assert image in secrets.clean(image, {})
