"""What is typed for a tree, and what a folder, an image or a revision says of itself or refuses: in its words."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from folder_base import FolderBase
from histories import git
from lowering import lower
from making_images import Image, layer
from small_site import row

from vllm_mods.base.errors import TreeError, UsageError, VllmModsError
from vllm_mods.formats import pairing_lock
from vllm_mods.images.open import open_base
from vllm_mods.trees import git as revisions, git_process
from vllm_mods.trees.folder import FolderTree, find_site_root, read_in_workspace
from vllm_mods.trees.image import ImageTree, find_site_root as find_in_image, open_image
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from pathlib import Path

FORMS = (
    "a TREE is a path to the vllm folder, its parent folder or its environment, pypi:VERSION, "
    "pypi:WHEEL-FILE-NAME, wheel:FILE, sdist:FILE, git:REPO@REV or image:REF"
)
OWN = "{0} has its own packages; --with works only for releases, wheels and sdists"


@pytest.mark.parametrize(
    ("spec", "given", "message", "hint"),
    [
        ("", {}, "no tree given", FORMS),
        ("pip:x", {}, "pip:x: unknown kind of tree: 'pip'", FORMS),
        ("wheel:", {}, "wheel: needs a name after the colon", FORMS),
        ("image:", {}, "image: needs a name after the colon", FORMS),
        (
            "wheel:x.whl",
            {"verify": True},
            "wheel:x.whl is not a release from a package index, so --verify cannot be used",
            "pypi:VERSION",
        ),
        ("git:x@y", {"others": {"a": "1"}}, OWN.format("git:x@y"), "pypi:VERSION"),
        ("x", {"others": {"a": "1"}}, OWN.format("x"), "pypi:VERSION"),
        ("wheel:{0}", {}, "wheel:{0}: Is a directory", "ls -la {parent}  # shows what is there"),
        ("sdist:{0}/x.whl", {}, "sdist:{0}/x.whl: this file is of the kind wheel", "wheel:{0}/x.whl"),
        ("wheel:{0}/x.tar.gz", {}, "wheel:{0}/x.tar.gz: this file is of the kind sdist", "sdist:{0}/x.tar.gz"),
        ("wheel:{0}/none", {}, "wheel:{0}/none: No such file or directory", "ls -la {0}  # shows what is there"),
        ("wheel:none", {}, "wheel:none: No such file or directory", "ls -la {here}  # shows what is there"),
        ("odd kind:x", {}, "odd kind:x: no such file or folder", "name the folder with vllm/, or a virtual environment; a release is pypi:VERSION"),
        ("{0}/none", {}, "{0}/none: no such file or folder", "name the folder with vllm/, or a virtual environment; a release is pypi:VERSION"),
        ("0.19.1", {}, "0.19.1: no such file or folder", "for a release write pypi:0.19.1"),
        (
            ">=0.19",
            {},
            ">=0.19: no such file or folder",
            "a TREE is one release, pypi:VERSION; for a range use `matrix --vllm`",
        ),
        ("{0}/x.whl", {}, "{0}/x.whl is a file, not a folder", "wheel:{0}/x.whl"),
        ("{0}/x.tar.gz", {}, "{0}/x.tar.gz is a file, not a folder", "sdist:{0}/x.tar.gz"),
        (
            "{0}",
            {},
            "{0} has no vLLM: it has no vllm/__init__.py",
            "name the folder that contains vllm/, such as site-packages, or its virtual environment",
        ),
    ],
)  # fmt: skip
def test_what_names_no_tree_has_a_next_step(
    tmp_path: Path, spec: str, given: dict[str, object], message: str, hint: str
) -> None:
    for name in ("x.whl", "x.tar.gz"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError) as caught:
        open_tree(spec.format(tmp_path), **given)  # type: ignore[arg-type]
    assert caught.value.message == message.format(tmp_path)
    places = {"parent": tmp_path.parent, "here": os.getcwd()}
    assert caught.value.hint == hint.format(tmp_path, **places)


def site_of(root: Path, **files: bytes) -> FolderTree:
    """Return a folder with such files, ``__`` standing for the slash of a dist-info."""
    for name, data in {"vllm/__init__.py": b"", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return FolderTree(str(root))


WHEEL = b"Tag: cp38-abi3-manylinux_2_31_aarch64\n"


@pytest.mark.parametrize(
    ("files", "platform"),
    [
        ({"vllm-0.19.1.dist-info/WHEEL": WHEEL}, "linux/arm64"),
        ({"vllm-0.19.1.dist-info/METADATA": b""}, None),
        ({"vllm-1.dist-info/WHEEL": WHEEL, "vllm-2.dist-info/WHEEL": WHEEL}, None),
        ({"other-1.dist-info/WHEEL": WHEEL}, None),
    ],
)
def test_what_a_folder_was_built_for(
    tmp_path: Path, files: dict[str, bytes], platform: str | None
) -> None:
    assert site_of(tmp_path, **files).platform == platform


def test_the_packages_of_a_folder_and_what_they_own(tmp_path: Path) -> None:
    rows = row("six/__init__.py", b"") + row("six_more.py", b"")
    files = {"Six-1.0.dist-info/RECORD": rows, "a-2.dist-info/RECORD": row("b/x.py", b"")}
    tree = site_of(tmp_path, **files, **{"bare-3.dist-info/METADATA": b""})
    assert [tree.package(name) for name in ("six", "a", "none")] == ["1.0", "2", None]
    assert tree.owner("six/other.py") == ("Six", "1.0")
    assert tree.owner("six_more.py") == ("Six", "1.0")
    assert tree.owner("b/x.py") == ("a", "2")
    assert tree.owner("b/y.py") is None
    assert list(tree.folders()) == ["Six-1.0.dist-info", "a-2.dist-info", "bare-3.dist-info"]


def test_of_two_records_either_vouches_and_one_of_another_name_does_not_contradict(
    tmp_path: Path,
) -> None:
    files = {
        "vllm-1.dist-info/RECORD": row("vllm/a.py", b"1"),
        "vllm-2.dist-info/RECORD": row("vllm/a.py", b"2"),
        "other-1.dist-info/RECORD": row("vllm/a.py", b"3") + row("vllm/b.py", b"4"),
        "third-1.dist-info/RECORD": row("vllm/b.py", b"5"),
    }
    tree = site_of(tmp_path, **files)
    released = {data: tree.is_released("vllm/a.py", data) for data in (b"1", b"2", b"3", b"4")}
    assert released == {b"1": True, b"2": True, b"3": False, b"4": False}
    assert [tree.is_released("vllm/b.py", data) for data in (b"4", b"5")] == [True, False]
    assert tree.is_released("vllm/none.py", b"") is None
    assert tree.is_released("/vllm/a.py", b"1") is None


@pytest.mark.parametrize(
    ("path", "message", "hint"),
    [
        ("vllm", "vllm is a folder", "ls -la {0}/vllm"),
        ("pipe", "pipe is not a regular file", "ls -la {0}/pipe"),
        (
            "x" * 300,
            f"cannot read {'x' * 300}: File name too long",
            "namei -l {0}/" + "x" * 300 + "  # shows who may read it",
        ),
        (
            "file/x",
            "refusing to read file/x: file is a symbolic link to vllm/__init__.py, and vllm-mods does not follow links",
            "uv pip install --link-mode copy --reinstall vllm  # real files instead of links",
        ),
        (
            "folder/x",
            "refusing to read folder/x: folder is a symbolic link to vllm, and vllm-mods does not follow links",
            "if you mean that tree, name it: {0}/vllm",
        ),
    ],
)
def test_what_is_no_file_of_a_folder(tmp_path: Path, path: str, message: str, hint: str) -> None:
    tree = site_of(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").symlink_to("vllm/__init__.py")
    (tmp_path / "folder").symlink_to("vllm")
    with pytest.raises(TreeError) as caught:
        tree.read(path)
    assert caught.value.message == f"{tmp_path}: {message}"
    assert caught.value.hint == hint.format(tmp_path)


def test_a_folder_that_cannot_be_listed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = site_of(tmp_path, **{"vllm/sub/a.py": b""})
    scandir = os.scandir

    def refused(place: str) -> object:
        if place.rstrip("/") not in closed:
            return scandir(place)
        raise PermissionError(13, "Permission denied")

    closed = {f"{tmp_path}/vllm/sub"}

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(TreeError) as caught:
        list(tree.paths())
    why = "cannot list vllm/sub: Permission denied"
    assert (caught.value.message, caught.value.hint) == (
        f"{tmp_path}: {why}",
        f"namei -l {tmp_path}/vllm/sub  # shows who may read it",
    )
    closed = {str(tmp_path)}
    with pytest.raises(TreeError) as caught:
        list(tree.paths(""))
    assert caught.value.message == f"{tmp_path}: cannot list .: Permission denied"
    gone = FolderTree(str(tmp_path / "gone"))
    with pytest.raises(TreeError) as caught:
        gone.folders()
    why = f"cannot list {tmp_path}/gone: No such file or directory"
    assert caught.value.message == f"{tmp_path}/gone: {why}"
    assert caught.value.hint == f"namei -l {tmp_path}/gone  # shows who may read it"
    assert list(gone.paths("")) == list(tree.paths("vllm/__init__.py")) == []


def test_two_vllms_in_one_path_are_both_named(tmp_path: Path) -> None:
    inner = tmp_path / "vllm/vllm"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    with pytest.raises(UsageError) as caught:
        find_site_root(str(inner))
    why = "is a vllm package folder that contains another vllm package folder"
    assert caught.value.message == f"{inner} {why}"
    assert (
        caught.value.hint == f"name the vLLM that you mean: {tmp_path}/vllm/vllm or {tmp_path}/vllm"
    )


@pytest.mark.parametrize("workspace", ["/w", None, "/"])
def test_an_absolute_path_is_read_in_the_workspace_only(workspace: str | None) -> None:
    with pytest.raises(TreeError) as caught:
        read_in_workspace("/etc/passwd", workspace, "it")
    where = f" ({workspace})" if workspace else ", and there is no workspace"
    why = "refusing to read /etc/passwd: an absolute path is read only inside the workspace"
    assert caught.value.message == f"it: {why}{where}"
    assert caught.value.hint == "vllm-mods … --workspace DIR"


def image_of(tmp_path: Path, files: dict[str, bytes], **settings: object) -> FolderBase:
    root = tmp_path / "root"
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return FolderBase(root, reference="it", settings=dict(settings))


SITE = "usr/lib/python3/dist-packages"
VLLM = {f"{SITE}/vllm/__init__.py": b"", f"{SITE}/vllm/_version.py": b"__version__ = '0.19.1'\n"}


VENV = "opt/venv/lib/python3.12/site-packages"
ANOTHER = (
    "name an image with vLLM, such as vllm/vllm-openai; or name the folder that contains it: "
    "--target-in-image /FOLDER"
)


def test_what_an_image_says_of_its_vllm(tmp_path: Path) -> None:
    own = f"{SITE}/vllm-0.19.1.dist-info/RECORD"
    files = {**VLLM, own: row("vllm/a.py", b"1"), f"{SITE}/six-1.dist-info/RECORD": b""}
    files |= {f"{SITE}/vllm/__pycache__/a.pyc": b"", f"{SITE}/six.py": b"", "srv/t.jinja": b"t"}
    base = image_of(tmp_path, files, WorkingDir="/srv")
    tree = ImageTree(base, find_in_image(base), workspace="/srv")
    assert (tree.spec, tree.site_root, tree.version) == ("image:it", SITE, "0.19.1")
    assert tree.platform == "linux/amd64"
    assert list(tree.folders()) == ["vllm-0.19.1.dist-info"]
    assert [tree.package(name) for name in ("six", "vllm", "none")] == ["1", "0.19.1", None]
    assert sorted(tree.paths()) == ["vllm/__init__.py", "vllm/_version.py"]
    assert set(tree.paths("")) > {"six.py", *tree.paths()}
    assert tree.is_released("vllm/a.py", b"1") is True
    assert tree.is_released("/srv/t.jinja", b"t") is None
    assert tree.directory == "/srv"
    has = [tree.has(path) for path in ("t.jinja", "/srv/t.jinja", "/srv", "none")]
    assert has == [True, True, False, False]
    assert tree.read("/srv/t.jinja") == b"t"
    for path in ("/etc/passwd", "/srv", "/srvt.jinja"):
        with pytest.raises(TreeError, match=r"an absolute path is read only inside the workspace"):
            tree.read(path)
    tree.close()
    assert base.closed


def test_an_image_that_says_nothing_of_its_vllm(tmp_path: Path) -> None:
    base = image_of(tmp_path, {f"{SITE}/vllm/__init__.py": b""})
    base.config = b'{"architecture": "arm64", "variant": "v8"}'
    tree = ImageTree(base, SITE, spec="spec")
    assert (tree.spec, tree.version, tree.platform, tree.directory) == (
        "spec",
        None,
        "linux/arm64",
        "/",
    )
    assert list(tree.folders()) == []
    assert tree.is_released("vllm/a.py", b"") is None


@pytest.mark.parametrize(
    ("files", "named", "message", "hint"),
    [
        (
            {"srv/x": b""},
            "/srv/",
            "/srv has no vllm/__init__.py, so it contains no vLLM",
            "run without --target-in-image to list the folders that have a vLLM",
        ),
        (
            {"srv/x": b""},
            None,
            "the image has no vLLM; there is no vllm/__init__.py in any of\n  /",
            ANOTHER,
        ),
        (
            {f"{SITE}/vllm.egg-link": b" /src \n."},
            None,
            f"vLLM is an editable install: /{SITE}/vllm.egg-link points to /src",
            "in the Dockerfile, use pip install . without -e, so vllm/ is in one place",
        ),
        (
            {f"{SITE}/__editable__.VLLM.pth": b""},
            None,
            f"vLLM is an editable install: /{SITE}/__editable__.VLLM.pth points to somewhere else",
            "in the Dockerfile, use pip install . without -e, so vllm/ is in one place",
        ),
        (
            {**VLLM, f"{VENV}/vllm/__init__.py": b""},
            None,
            f"the image has 2 vLLMs, and which one runs is unclear\n  /{VENV}\n  /{SITE}",
            f"name the vLLM that runs: --target-in-image /{VENV}; or build the image with only one vLLM",
        ),
    ],
)
def test_an_image_in_which_no_vllm_can_be_patched(
    tmp_path: Path, files: dict[str, bytes], named: str | None, message: str, hint: str
) -> None:
    base = image_of(tmp_path, files, Env=["PATH=/opt/venv/bin"])
    with pytest.raises(UsageError) as caught:
        find_in_image(base, named)
    assert (caught.value.message, caught.value.hint) == (f"it: {message}", hint)


def test_a_vllm_behind_a_link_is_no_place_to_patch(tmp_path: Path) -> None:
    base = image_of(tmp_path, {"src/vllm/__init__.py": b"", f"{SITE}/x": b""})
    (base.root / SITE / "vllm").symlink_to("/src/vllm")
    with pytest.raises(UsageError) as caught:
        find_in_image(base)
    assert caught.value.message == (
        f"it: /{SITE}/vllm is a symbolic link to /src/vllm, as of an editable install: "
        "the mods would change files elsewhere too"
    )
    hint = "in the Dockerfile, use pip install vllm, without -e and with real files"
    assert caught.value.hint == hint
    tree = ImageTree(base, SITE)
    with pytest.raises(TreeError) as refused:
        tree.read("vllm/__init__.py")
    assert refused.value.message == (
        "image:it: refusing to read vllm/__init__.py: vllm is a symbolic link to /src/vllm, and "
        "vllm-mods does not follow links"
    )
    assert refused.value.hint == (
        "install vLLM into the image with real files: uv pip install --link-mode copy, or without -e"
    )


@pytest.mark.slow
def test_of_several_vllms_the_one_with_a_lock_is_meant(tmp_path: Path) -> None:
    files = {**VLLM, f"{VENV}/vllm/__init__.py": b"", f"{SITE}/{pairing_lock.PLACE}": b""}
    base = image_of(tmp_path, files, Env=["PATH=/opt/venv/bin"])
    assert find_in_image(base) == SITE
    files = {f"{VENV}/{pairing_lock.PLACE}": b""}
    with pytest.raises(UsageError, match="the image has 2 vLLMs"):
        find_in_image(image_of(tmp_path, files, Env=["PATH=/opt/venv/bin"]))


def test_an_image_for_another_platform_is_closed_again(tmp_path: Path) -> None:
    place = Image([layer(dict(VLLM))]).layout(tmp_path / "l")
    cache = str(tmp_path / "cache")
    opened = open_base(f"oci:{place}", cache_dir=cache)
    with pytest.raises(UsageError, match=r"the image is for linux/\w+, not linux/s390x"):
        open_image(opened, "x", platform="linux/s390x", named=None)
    opened = open_base(f"oci:{place}", cache_dir=cache)
    tree = open_image(opened, "x", platform=None, named=f"/{SITE}/vllm")
    assert (tree.spec, tree.site_root) == ("x", SITE)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    site_of(folder)
    (folder / "vllm/link.py").symlink_to("__init__.py")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "x")
    return folder


@pytest.mark.slow
def test_what_a_revision_refuses_has_a_next_step(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    refusals = [
        ("no", f"{repository} has no revision no", f"git -C {repository} fetch --tags"),
        ("0123456", f"{repository} has no revision 0123456", f"git -C {repository} fetch origin 0123456"),
    ]  # fmt: skip
    for revision, message, hint in refusals:
        with pytest.raises(UsageError) as caught:
            open_tree(f"git:{repository}@{revision}")
        assert caught.value.message == f"git:{repository}@{revision}: {message}"
        assert caught.value.hint == hint
    with pytest.raises(UsageError) as caught:
        open_tree(f"git:{tmp_path}/plain@HEAD")
    why = f"git:{tmp_path}/plain@HEAD: {tmp_path}/plain is not a git repository: "
    assert caught.value.message.startswith(why)
    assert caught.value.hint == f"git -C {tmp_path}/plain status"
    tree = open_tree(f"git:{repository}@HEAD")
    assert isinstance(tree, revisions.GitTree)
    with pytest.raises(TreeError) as refused:
        tree.read("vllm/link.py")
    assert refused.value.message == f"git:{repository}@HEAD: vllm/link.py is a symbolic link"
    assert refused.value.hint == f"git show {tree.commit}:vllm/link.py"
    assert tree.identity == f"{tree.commit} None"
    assert sorted(tree.paths("")) == ["vllm/__init__.py"]


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("{0}", "no revision was given", "git:{0}@HEAD"),
        ("{0}@", "no revision was given", "git:{0}@HEAD"),
        ("/gone@x", "/gone: no such folder", "git:FOLDER@REV"),
        ("/gone", "/gone: no such folder", "git:FOLDER@REV"),
        (
            "git@github.com:a/b",
            "only a repository on this machine can be read",
            "git clone --filter=blob:none URL DIR, then git:DIR@REV",
        ),
    ],
)
def test_what_names_no_repository(tmp_path: Path, name: str, message: str, hint: str) -> None:
    spec = f"git:{name.format(tmp_path)}"
    with pytest.raises(VllmModsError) as caught:
        open_tree(spec)
    if name == "{0}@":
        assert caught.value.message.startswith(spec)
        return
    assert caught.value.message == f"{spec}: {message}"
    assert caught.value.hint == hint.format(tmp_path)


@pytest.mark.slow
def test_the_newest_build_of_a_clone(repository: Path) -> None:
    with pytest.raises(UsageError) as caught:
        revisions.newest_build(str(repository))
    newest = git(repository, "rev-parse", "HEAD")[:12]
    why = f"no v* tag is reachable from {newest}, so its version is unknown"
    assert caught.value.message == f"{repository}: {why}"
    assert caught.value.hint == f"git -C {repository} fetch --tags"
    git(repository, "tag", "v0.19.1")
    assert revisions.newest_build(str(repository)) is None
    git(repository, "commit", "-q", "--allow-empty", "-m", "y")
    short = git(repository, "rev-parse", "--short=7", "HEAD")
    assert revisions.newest_build(str(repository)) == f"0.19.2.dev1+g{short}"
    git(repository, "update-ref", "refs/remotes/origin/HEAD", "HEAD~1")
    assert revisions.newest_build(str(repository)) is None


SAFE = [
    ("core.alternateRefsCommand", "true"),
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.splitIndex", "false"),
    ("fetch.writeCommitGraph", "false"),
    ("gc.auto", "0"),
    ("http.lowSpeedLimit", "1"),
    ("maintenance.auto", "false"),
    ("http.lowSpeedTime", "60"),
]
ALWAYS = {
    "GIT_ALLOC_LIMIT": str(1 << 30),
    "GIT_LITERAL_PATHSPECS": "1",
    "LANGUAGE": "C",
    "LC_ALL": "C",
}
SILENT = {
    "GIT_ASKPASS": "",
    "GIT_SSH_COMMAND": "ssh",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
}


@pytest.mark.parametrize("logins", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_the_whole_environment_of_git(*, alone: bool, logins: bool) -> None:
    pairs = SAFE if logins else [*SAFE, ("credential.helper", "")]
    expected = {"PATH": "/bin", "GIT_SSL_CAINFO": "c", **ALWAYS}
    for number, (key, value) in enumerate(pairs):
        expected |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    expected["GIT_CONFIG_COUNT"] = str(len(pairs))
    expected["GIT_ALLOW_PROTOCOL"] = "https" if alone else "file"
    if alone:
        expected |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    else:
        expected["GIT_TRACE"] = "1"
    expected |= {} if logins else SILENT
    given = {"PATH": "/bin", "GIT_DIR": "x", "GIT_SSL_CAINFO": "c", "GIT_TRACE": "1"}
    environ = git_process.environment(given, alone=alone, logins=logins, transports="file")
    assert environ == expected


@pytest.mark.parametrize(
    ("given", "command"),
    [({"GIT_SSH_COMMAND": "a", "GIT_SSH": "b"}, "a"), ({"GIT_SSH": "b"}, "b"), ({}, "ssh")],
)
def test_the_ssh_that_the_user_names_is_used(given: dict[str, str], command: str) -> None:
    environ = git_process.environment(given)
    assert environ["GIT_SSH_COMMAND"] == command
    assert environ["GIT_ALLOW_PROTOCOL"] == "http:https:ssh"


@pytest.mark.slow
def test_a_git_that_is_not_there_or_never_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = git_process.run(str(tmp_path), ("status",), {"PATH": str(tmp_path)})
    assert done.code == -1
    assert done.why.endswith("No such file or directory: 'git'")
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    lower(monkeypatch, "CLONE_SECONDS", 0.05)
    start = time.monotonic()
    for terminal in (False, True):
        late = git_process.run(str(tmp_path), ("x",), {"PATH": str(tmp_path)}, terminal=terminal)
        assert (late.out, late.why) == (b"", "it did not finish within 0.05 seconds")
    assert time.monotonic() - start < 20
    program.write_text("#!/bin/sh\n/bin/cat; exit 7\n")
    silent = git_process.run(str(tmp_path), ("x",), {"PATH": str(tmp_path)}, given=b" in ")
    assert silent == (7, b" in ", "exit code 7")
    assert silent.text == "in"


@pytest.mark.parametrize(
    ("subject", "number"),
    [
        ("Fix it (#123)", 123),
        ("Fix it (#12) again (#123) ", 123),
        ("Merge pull request #77 from a/b", 77),
        ("A Merge pull request #77", None),
        ("Fix #123", None),
        ("Fix it (#123) more", None),
    ],
)
def test_the_pull_request_of_a_commit(subject: str, number: int | None) -> None:
    commit = revisions.Commit("0", (), "2026-01-01", subject, frozenset())
    assert commit.pull_request == number
