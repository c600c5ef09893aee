"""The vLLM in an image: where it is found, and which images are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from making_images import Image, Link, Thing, layer
from small_site import FILES, row

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.images.open import open_base
from vllm_mods.trees.image import ImageTree, find_site_root
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from pathlib import Path

SITE = "usr/local/lib/python3.12/dist-packages"
VLLM: dict[str, Thing] = {
    **FILES,
    "vllm/_version.py": b"__version__ = version = '0.19.1'\n",
    "vllm-0.19.1.dist-info/RECORD": row("vllm/a.py", FILES["vllm/a.py"]),
}


def at(folder: str, things: dict[str, Thing] | None = None) -> dict[str, Thing]:
    return {f"{folder}/{path}": thing for path, thing in (things or VLLM).items()}


def opened(
    tmp_path: Path,
    *layers: dict[str, Thing],
    environ: tuple[str, ...] = (),
    folder: str = "/",
    **more: str,
) -> ImageTree:
    env = ["PATH=/usr/local/bin:/usr/bin", *environ]
    settings = {"Env": env, "WorkingDir": folder, **more}
    image = Image([layer(one) for one in layers], settings)
    spec = f"image:oci:{image.layout(tmp_path / 'l')}"
    tree = open_tree(spec, cache_dir=str(tmp_path / "cache"))
    assert isinstance(tree, ImageTree)
    return tree


@pytest.mark.parametrize(
    ("folder", "environ", "working"),
    [
        (SITE, (), "/"),
        (SITE, ("PYTHONPATH=/usr/local/lib",), "/"),  # which is looked in as a prefix's, too
        ("usr/lib/python3/dist-packages", (), "/"),
        ("opt/venv/lib/python3.11/site-packages", (), "/"),
        ("srv/env/lib/python3.10/site-packages", ("PATH=/srv/env/bin:/usr/bin",), "/"),
        ("srv/env/lib/python3.10/site-packages", ("VIRTUAL_ENV=/srv/env",), "/"),
        ("srv/code", ("PYTHONPATH=/nowhere:/srv/code",), "/"),
        ("srv/code", (), "/srv/code"),
        ("app/x/.venv/lib/python3.13/site-packages", (), "/app/x"),
        ("usr/lib64/python3.12/site-packages", (), "/"),
        ("root/.local/lib/python3.12/site-packages", (), "/"),
        ("srv/me/.local/lib/python3.12/site-packages", ("HOME=/srv/me",), "/"),
        ("srv/base/lib/python3.12/site-packages", ("PYTHONUSERBASE=/srv/base",), "/"),
        ("root/.local/share/uv/tools/vllm/lib/python3.12/site-packages", (), "/"),
        ("opt/data/uv/tools/vllm/lib/python3.12/site-packages", ("XDG_DATA_HOME=/opt/data",), "/"),
        ("opt/tools/vllm/lib/python3.12/site-packages", ("UV_TOOL_DIR=/opt/tools",), "/"),
    ],
)
def test_it_is_found_wherever_the_image_has_it(
    tmp_path: Path, folder: str, environ: tuple[str, ...], working: str
) -> None:
    tree = opened(tmp_path, at(folder), environ=environ, folder=working)
    assert tree.site_root == folder
    assert tree.version == "0.19.1"
    assert tree.read("vllm/a.py") == b"A = 1\n"
    assert set(tree.paths()) == {path for path in VLLM if path.startswith("vllm/")}
    assert tree.is_released("vllm/a.py", b"A = 1\n") is True
    assert tree.is_released("vllm/a.py", b"A = 2\n") is False
    assert tree.is_released("vllm/b.py", b"") is None


def test_it_is_found_behind_a_link_and_once_only(tmp_path: Path) -> None:
    links: dict[str, Thing] = {"opt/venv": Link("/srv/env"), "lib": Link("usr/lib")}
    tree = opened(tmp_path, at("srv/env/lib/python3.12/site-packages"), links)
    assert tree.site_root == "srv/env/lib/python3.12/site-packages"


@pytest.mark.parametrize("user", ["somebody", "1007", "1007:100"])
def test_it_is_found_in_the_home_of_the_images_user(tmp_path: Path, user: str) -> None:
    place = "srv/some/.local/lib/python3.12/site-packages"
    passwd = b"root:x:0:0:root:/root:/bin/sh\nsomebody:x:1007:100::/srv/some:/bin/sh\n"
    tree = opened(tmp_path, {**at(place), "etc/passwd": passwd}, User=user)
    assert tree.site_root == place


@pytest.mark.parametrize("line", ["/srv/vllm-site", "../../../../../srv/vllm-site"])
def test_it_is_found_behind_a_pth_file(tmp_path: Path, line: str) -> None:
    text = f"# ours\nimport os; os.getpid()\n/nowhere\n{line}\n".encode()
    tree = opened(tmp_path, {**at("srv/vllm-site"), f"{SITE}/more.pth": text})
    assert tree.site_root == "srv/vllm-site"
    # A site-packages comes before what its .pth files name.
    both = opened(tmp_path / "2", {**at("srv/v"), **at(SITE), f"{SITE}/more.pth": b"/srv/v\n"})
    assert both.site_root == SITE


@pytest.mark.parametrize("named", ["/opt/odd", "/opt/odd/", "/opt/odd/vllm", "/opt/link"])
def test_of_several_one_is_named(tmp_path: Path, named: str) -> None:
    things = {**at(SITE), **at("opt/odd"), "opt/link": Link("odd")}
    image = Image([layer(things)], {"Env": ["PYTHONPATH=/opt/odd"]})
    base = open_base(f"oci:{image.layout(tmp_path / 'l')}", cache_dir=str(tmp_path / "cache"))
    assert find_site_root(base, named) == "opt/odd"
    with pytest.raises(UsageError, match=rf"(?s)has 2 vLLMs.*/opt/odd.*/{SITE}") as caught:
        find_site_root(base)
    assert "--target-in-image /opt/odd" in str(caught.value.hint)
    with pytest.raises(UsageError, match="/opt has no vllm/"):
        find_site_root(base, "/opt")


def test_paths_that_no_patch_may_have(tmp_path: Path) -> None:
    things = at(SITE, {**VLLM, "vllm/linked.py": Link("/etc/passwd"), "flash": Link("/opt/flash")})
    tree = opened(tmp_path, things, {"etc/passwd": b"secret", "opt/flash/x.py": b"x"})
    assert tree.read("vllm/none.py") is None
    assert tree.read("vllm/a.py/b") is None
    for path in ("vllm/linked.py", "flash/x.py"):
        with pytest.raises(TreeError, match="is a symbolic link to"):
            tree.read(path)
    for path in ("../etc/passwd", "vllm//a.py", "/etc/passwd", "vllm/../x"):
        with pytest.raises(TreeError, match="refusing to read"):
            tree.read(path)
    with pytest.raises(TreeError, match="is not a regular file"):
        tree.read("vllm/sub")


@pytest.mark.parametrize(
    ("things", "said"),
    [
        ({"etc/x": b""}, r"the image has no vLLM"),
        ({**at(SITE), **at("opt/venv/lib/python3.12/site-packages")}, "(?s)has 2 vLLMs.*opt/venv"),
        ({f"{SITE}/vllm": Link("/src/vllm"), **at("src")}, "vllm is a symbolic link to /src/vllm"),
        (
            {f"{SITE}/__editable__.vllm-0.19.1.pth": b"/src/vllm-checkout\n", **at("src")},
            "editable install: .*points to /src/vllm-checkout",
        ),
        ({f"{SITE}/vllm.egg-link": b"/src\n."}, "editable install: .*points to /src"),
        ({f"{SITE}/vllm/a.py": b"", f"{SITE}/torch/__init__.py": b""}, f"(?s)no vLLM.*{SITE}"),
    ],
)
def test_images_that_are_refused(tmp_path: Path, things: dict[str, Thing], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        opened(tmp_path, things)
    assert caught.value.hint
