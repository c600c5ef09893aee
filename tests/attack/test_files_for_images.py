"""Files that a mod brings for images: only where they take nothing over, and nothing of it is silent."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import small_site
from making_images import Image, from_disk, layer
from paired import NAME, Caller

import vllm_mods as vm
from vllm_mods.formats import image_paths
from vllm_mods.formats.receipt import RECEIPT

if TYPE_CHECKING:
    from pathlib import Path

SITE = "usr/local/lib/python3.12/dist-packages"
CONF = "/etc/nccl.conf"
# What the base has: by path, its content, or where a link leads.
BASE: dict[str, Any] = {
    "etc/passwd": b"root:x:0:0::/root:/bin/sh\n",
    "etc/there.conf": b"old\n",
    "usr/lib/x86_64-linux-gnu/libnccl.so.2": b"\x7fELF old",
    "usr/bin/nvcc": b"#!/bin/sh\n",
    "opt/folder/a": b"",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return small_site.build(tmp_path / "site", {**small_site.FILES, "vllm/a.py": b"A = 1\n"})


@pytest.fixture
def call(
    tmp_path: Path, site: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Caller:
    made = Caller(tmp_path, capfd)
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(made.library))
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    root = tmp_path / "root"
    for path, data in BASE.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    os.symlink("usr/lib", root / "lib")
    os.symlink("/etc", root / "settings")
    os.symlink("/usr/local/lib/python3.12", root / "python")
    os.symlink("/opt/folder", root / "opt/link")
    there = {f"{SITE}/{path}": thing for path, thing in from_disk(site).items()}
    image = Image(
        [layer({**from_disk(root), **there})],
        {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/bin:/bin"]},
        "base:1",
    )
    made.base = f"oci:{image.layout(tmp_path / 'based', 'gzip')}"
    return made


def brings(
    call: Caller, path: str, more: str = "", mod: str = "patching", data: str = "new\n"
) -> None:
    folder = call.library / f"patches/{mod}"
    (folder / "own").write_text(data)
    text = (folder / "mod.toml").read_text()
    (folder / "mod.toml").write_text(f'{text}[[files]]\npath = "{path}"\nsource = "own"\n{more}\n')


@pytest.mark.slow
def test_an_image_has_it_and_verify_holds_it(call: Caller, tmp_path: Path) -> None:
    brings(call, CONF, 'mode = "0640"')
    call("lock", NAME, "--base", call.base)
    (entry,) = (
        one
        for one in json.loads(call.lock.read_bytes())["image"]["layer"]
        if one["path"] == CONF[1:]
    )
    assert (entry["mode"], entry["uid"], entry["sha256"]) == (0o640, 0, small_site.sha(b"new\n"))
    call("build", NAME, "--base", call.base, "--output", f"oci:{tmp_path}/made")
    call("image", "verify", f"oci:{tmp_path}/made", "--lock", call.lock)
    tree: Any = vm.open_tree(f"image:oci:{tmp_path}/made")
    assert tree.base.read("etc/nccl.conf") == b"new\n"
    assert tree.base.read("etc/passwd") == BASE["etc/passwd"]


@pytest.mark.slow
def test_apply_refuses_it_and_leaves_it_out_only_when_told_to(call: Caller, site: Path) -> None:
    brings(call, CONF)
    before = small_site.snapshot(site)
    for more in ([], ["--dry-run"]):
        said = call("apply", "patching", "--target", site, *more, code=3)
        assert f"patching: {CONF} is outside Python's packages" in said.err
        assert "--without-files" in said.err
    assert small_site.snapshot(site) == before
    with pytest.raises(vm.Refused, match="only an image can hold it"):
        vm.apply(vm.Library(call.library).mods("patching"), site)
    said = call("check", "patching", "--target", site)
    assert "image-only" in said.out
    said = call("apply", "patching", "--target", site, "--without-files")
    assert "; not written" in said.err
    assert (site / "vllm/a.py").read_bytes() == b"A = 2\n"
    assert CONF not in (site / RECEIPT).read_text()
    call("apply", "patching", "--target", site)  # it is in: nothing is left to be refused
    call("revert", "--target", site)
    assert small_site.snapshot(site) == before


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/etc/passwd-", "/etc/shadow", "/etc/group", "/etc/sudoers.d/x", "/etc/pam.d/x",
     "/etc/ld.so.preload", "/etc/ld.so.conf.d/x.conf", "/etc/ld.so.cache", "/etc/profile.d/x.sh",
     "/etc/environment", "/etc/bash.bashrc", "/etc/ssh/sshd_config", "/etc/cron.d/x", "/etc/crontab",
     "/etc/init.d/x", "/etc/ssl/certs/x.pem", "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf",
     "/root/.ssh/authorized_keys", "/home/me/.bashrc", "/root/.netrc", "/proc/x", "/sys/x", "/dev/x",
     "/lib/x86_64-linux-gnu/libc.so.6", "/usr/local/lib/libc.so.6", "/opt/x/libpthread.so.0",
     "/lib64/ld-linux-x86-64.so.2", "/usr/lib/libpython3.12.so.1.0", "/opt/libnss_files.so.2",
     "/usr/lib/python3.12/sitecustomize.py", "/usr/lib/python3/dist-packages/x.pth", "/opt/x.pth",
     "/usr/local/lib/python3.12/json/__init__.py", "/opt/venv/lib/python3.12/site-packages/vllm/a.py",
     "/etc/.wh.passwd", "/etc/.wh..wh..opq", "/.wh.etc/x", "/opt/.vllm-mods/pairing.lock",
     "etc/x", "/etc/../etc/passwd", "/etc//passwd", "/etc/./x", "/etc/x/", "/x", "/", "", "/etc/a\nb", "/a\\b/c"],
)  # fmt: skip
def test_these_paths_are_no_mods(path: str) -> None:
    assert image_paths.objection(path)


@pytest.mark.parametrize(
    "path",
    [CONF, "/opt/nccl/lib/libnccl.so.2", "/usr/lib/x86_64-linux-gnu/libnccl.so.2", "/etc/nccl.conf.d/a",
     "/usr/share/vllm/a.json", "/workspace/a.py", "/usr/local/bin/helper", "/etc/passwords.conf", "/opt/python/a"],
)  # fmt: skip
def test_these_are(path: str) -> None:
    assert image_paths.objection(path) is None


def test_a_manifest_with_such_a_path_is_refused_by_its_key(call: Caller) -> None:
    brings(call, "/etc/passwd", 'mode = "4755"')
    said = call("show", "patching", code=2)
    assert "files[0].path: '/etc/passwd' controls permissions" in said.err
    assert "files[0].mode: expected permission bits such as '0644', found '4755'" in said.err


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/settings/passwd", "/settings/passwd (in the image: /etc/passwd) controls"),
        ("/settings/there.conf", "replace /etc/there.conf"),
        ("/etc/there.conf", "replace /etc/there.conf"),
        ("/lib/x86_64-linux-gnu/libnccl.so.2", "/usr/lib/x86_64-linux-gnu/libnccl.so.2"),
        ("/usr/local/lib/libnccl.so.2", "/usr/lib/x86_64-linux-gnu/libnccl.so.2"),
        ("/usr/local/sbin/nvcc", "replace /usr/bin/nvcc"),
        ("/opt/folder", "is a folder in this image"),
        ("/opt/link", "is a link in this image"),
        ("/etc/there.conf/x", "but the mod needs a folder there;"),
        (
            "/python/x.txt",
            "/python/x.txt (in the image: /usr/local/lib/python3.12/x.txt) is one of",
        ),
    ],
)
def test_what_would_take_over_something_of_the_base_is_not_built(
    call: Caller, path: str, says: str
) -> None:
    brings(call, path)
    said = call("lock", NAME, "--base", call.base, code=3)
    assert says in " ".join(said.err.split())
    assert not call.lock.exists()


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/etc/there.conf", "/usr/local/lib/libnccl.so.2"])
def test_what_the_mod_names_it_replaces(call: Caller, tmp_path: Path, path: str) -> None:
    old = b"old\n" if path.startswith("/etc") else BASE["usr/lib/x86_64-linux-gnu/libnccl.so.2"]
    brings(call, path, f'replaces = ["{small_site.sha(old)}"]')
    call("lock", NAME, "--base", call.base)
    call("build", NAME, "--base", call.base, "--output", f"oci:{tmp_path}/made")
    tree: Any = vm.open_tree(f"image:oci:{tmp_path}/made")
    assert tree.base.read(path[1:]) == b"new\n"
    # what was built is a base like any other
    call("lock", NAME, "--base", f"oci:{tmp_path}/made", "--output", tmp_path / "again.lock")


@pytest.mark.slow
def test_two_mods_with_different_files_for_one_path(call: Caller) -> None:
    brings(call, CONF)
    brings(call, CONF, mod="writing", data="other\n")
    said = call("lock", NAME, "--base", call.base, code=3)
    assert f"`patching` and `writing` have different files for {CONF}" in said.err


@pytest.mark.slow
def test_an_overlay_hides_nothing_of_an_image_by_its_name(call: Caller) -> None:
    folder = call.library / "patches/patching"
    (folder / "own").write_text("")
    with (folder / "mod.toml").open("a") as file:
        file.write('overlay = [{ source = "own", path = "vllm/.wh.b.py" }]\n')
    said = call("lock", NAME, "--base", call.base, code=3)
    assert "marks a deleted file in a layer," in said.err
