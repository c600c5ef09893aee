"""From a pairing and a base to a lock and an image, without an engine."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
import zipfile
from typing import TYPE_CHECKING
from unittest.mock import patch

import mod_making as making
import pytest
import small_site
from folder_base import FolderBase, lay

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, TreeError
from vllm_mods.base.model import TemplateFile, Variant
from vllm_mods.building import building, resolving, wheels
from vllm_mods.formats import pairing, pairing_lock, receipt
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.pairing_lock import LockedWheel
from vllm_mods.trees.image import ImageTree

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.base.model import Mod

SITE = "usr/local/lib/python3.12/dist-packages"
PATCH = making.diff_of("vllm/a.py", "A = 1\n", "A = 2\n")
TEMPLATE = TemplateFile("t", "t.jinja", "templates/t/template.jinja", b"{{ messages }}")
PATCHING = making.mod(making.variant(PATCH, python=("tabulate>=0.9",)), name="patching")
WRITING = making.mod(Variant(id="all", vllm="", templates=(TEMPLATE,)), name="writing")
PAIRING = Pairing(
    name="small",
    summary="s",
    model="org/small",
    base="folder:base",
    command="vllm serve org/small --chat-template t.jinja --port {port}",
    defaults={"port": 8000},
    env={"A": "1"},
    mods=("patching",),
    templates=("t",),
)
WHEEL = LockedWheel("tabulate", "0.9", "tabulate-0.9-py3-none-any.whl", "d" * 64)


@pytest.fixture
def image(tmp_path: Path) -> FolderBase:
    site = tmp_path / "image" / SITE
    site.mkdir(parents=True)
    small_site.build(site)
    return FolderBase(tmp_path / "image")


def tree_of(base: FolderBase) -> ImageTree:
    tree = ImageTree(base, SITE, workspace=resolving.workspace(base))
    tree.version = "0.19.1"
    return tree


def resolve(base: FolderBase, *mods: Mod, epoch: int = 0) -> resolving.Resolved:
    with patch.object(wheels, "resolve", return_value=(WHEEL,)) as chooses:
        found = resolving.resolve(PAIRING, mods or (PATCHING, WRITING), tree_of(base), epoch=epoch)
    for requirements, target in (call.args for call in chooses.call_args_list):
        assert (requirements, target[:2]) == (["tabulate>=0.9"], ("3.12", "x86_64"))
    return found


def drafted(base: FolderBase, *mods: Mod, epoch: int = 0) -> building.Drafted:
    return building.draft(base, resolve(base, *mods, epoch=epoch))


def test_the_lock_has_everything_that_decides(image: FolderBase) -> None:
    lock = drafted(image, epoch=7).lock
    site = image.root / SITE
    assert lock.base == pairing_lock.LockedBase(
        "folder:base", image.config_digest, image.diff_ids, "linux/amd64", None
    )
    record = (site / small_site.RECORD).read_bytes()
    assert lock.vllm == ("0.19.1", SITE, hashlib.sha256(record).hexdigest())
    assert [(one.name, one.verdict, one.variant) for one in lock.mods] == [
        ("patching", "applies", "one"),
        ("writing", "applies", "all"),
    ]
    assert lock.mods[0].files == (
        ("vllm/a.py", small_site.sha(b"A = 1\n"), small_site.sha(b"A = 2\n")),
    )
    place = f"/{SITE}/.vllm-mods/templates/t.jinja"
    assert lock.templates == ((place, small_site.sha(TEMPLATE.data)),)
    assert lock.wheels == (WHEEL,)
    assert lock.command == f"export A=1\nvllm serve org/small --chat-template {place} --port 8000"
    assert lock.epoch == 7
    assert pairing_lock.parse(pairing_lock.dump(lock), "x") == lock


@pytest.mark.parametrize(
    ("where", "reference", "name"),
    [
        ("docker", "docker:my-vllm:0.21.0", "my-vllm:0.21.0"),
        ("docker", "my-vllm:0.21.0", "my-vllm:0.21.0"),
        ("podman", "podman:docker.io/vllm/vllm-openai:v0.21.0", "vllm/vllm-openai:v0.21.0"),
        ("registry", "registry:docker.io/library/vllm:1", "vllm:1"),
        ("registry", "registry:ghcr.io/me/vllm:1", "ghcr.io/me/vllm:1"),
        ("oci-layout", "oci:/home/me/layout", "folder:base"),
    ],
)
def test_the_base_is_named_as_it_was_used(
    image: FolderBase, where: str, reference: str, name: str
) -> None:
    image.where, image.reference = where, reference
    lock = drafted(image, WRITING).lock
    assert lock.base.ref == name
    data = pairing_lock.dump(lock)
    assert building.labels(lock, data, {})["org.opencontainers.image.base.name"] == name


def test_a_template_goes_where_the_image_says(image: FolderBase) -> None:
    image.configure({"Env": ["WORKSPACE_DIR=/srv/space"]})
    (image.root / "srv/space").mkdir(parents=True)
    made = drafted(image, WRITING)
    assert made.lock.templates[0].path == "/srv/space/t.jinja"
    assert "--chat-template /srv/space/t.jinja" in made.lock.command
    built = building.build(image, made, pairing_lock.dump(made.lock))
    lay(built.layer, image.root)
    assert (image.root / "srv/space/t.jinja").read_bytes() == TEMPLATE.data


def test_a_mod_that_does_not_fit_refuses_the_lock(image: FolderBase) -> None:
    (image.root / SITE / "vllm/a.py").write_bytes(b"A = 3\n")
    with pytest.raises(
        Refused, match=r"folder:base: not every mod applies to vLLM 0\.19\.1\n  patch"
    ):
        resolve(image)


def test_the_image_holds_what_apply_writes_and_the_lock(image: FolderBase) -> None:
    made = drafted(image, epoch=7)
    data = pairing_lock.dump(made.lock)
    built = building.build(image, made, data)
    assert [one.path for one in made.entries if ".wh." in one.path] == [
        f"{SITE}/vllm/__pycache__/.wh.a.{name}.pyc" for name in ("cpython-311", "cpython-312.opt-2")
    ]
    lay(built.layer, image.root)
    site = image.root / SITE
    assert (site / "vllm/a.py").read_bytes() == b"A = 2\n"
    assert (site / pairing_lock.PLACE).read_bytes() == data
    there = receipt.parse((site / receipt.RECEIPT).read_bytes())
    assert [mod.name for mod in there.mods] == ["patching", "writing"]
    config = json.loads(built.config)
    assert config["created"] == "1970-01-01T00:00:07Z"
    assert config["config"]["Labels"]["vllm-mods.lock"] == f"sha256:{sha256(data)}"
    assert config["config"]["Labels"]["vllm-mods.mods"] == "patching@1.0.0 writing@1.0.0"
    assert pairing_lock.tag(made.lock, data) == f"small:0.19.1-{sha256(data)[:12]}"


def test_a_base_that_has_the_mods_gets_the_lock_alone(image: FolderBase) -> None:
    first = drafted(image, PATCHING)
    lay(building.build(image, first, b"{}").layer, image.root)
    again = drafted(image, PATCHING)
    assert again.lock.mods[0].verdict == "applied"
    assert again.lock.vllm.record == first.lock.vllm.record
    built = building.build(image, again, b"{}")
    with tarfile.open(fileobj=io.BytesIO(built.layer)) as layer:
        files = [one.name for one in layer if one.isfile()]
    assert files == [f"{SITE}/{pairing_lock.PLACE}"]


def test_where_the_base_comes_from_is_told_as_it_tells_it(image: FolderBase) -> None:
    source = {"org.opencontainers.image.source": "https://example.org/vllm"}
    labels = {**source, "other": "1"}
    image.configure({"Labels": labels})
    image.manifest_digest = f"sha256:{'e' * 64}"
    lock = drafted(image, WRITING).lock
    assert lock.base.manifest is None  # the same image has another one elsewhere, or none
    said = building.labels(lock, b"{}", labels)
    assert said.items() >= source.items()
    assert "other" not in said
    assert "org.opencontainers.image.base.digest" not in said
    kept = lock._replace(base=lock.base._replace(manifest=image.manifest_digest))
    said = building.labels(kept, b"{}", {})
    assert said["org.opencontainers.image.base.digest"] == image.manifest_digest


def wheel(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFREG | (0o755 if name.endswith(".sh") else 0o644)) << 16
            archive.writestr(info, data)
    return out.getvalue()


def test_a_wheel_is_unpacked_as_an_installer_leaves_it() -> None:
    info = "tabulate-0.9.dist-info"
    record = b"tabulate.py,,\ntabulate-0.9.dist-info/RECORD,,\n"
    files = {
        "tabulate.py": b"x = 1\n",
        "tabulate/run.sh": b"#!/bin/sh\n",
        "tabulate-0.9.data/purelib/more.py": b"y = 1\n",
        f"{info}/METADATA": b"Name: tabulate\n",
        f"{info}/RECORD": record,
    }
    nodes = {one.path: one for one in wheels.unpack(wheel(files), WHEEL, "site", epoch=3)}
    assert {path.removeprefix("site/"): (one.mode, one.mtime) for path, one in nodes.items()} == {
        "tabulate.py": (0o644, 3),
        "tabulate/run.sh": (0o755, 3),
        "more.py": (0o644, 3),
        f"{info}/METADATA": (0o644, 3),
        f"{info}/INSTALLER": (0o644, 3),
        f"{info}/RECORD": (0o644, 3),
    }
    written = nodes[f"site/{info}/RECORD"].data
    assert written is not None
    assert small_site.row(f"{info}/INSTALLER", b"vllm-mods\n") in written


@pytest.mark.parametrize("name", ["tabulate-0.9.data/scripts/run", "tabulate-0.9.data/data/etc/x"])
def test_a_wheel_that_reaches_outside_is_refused(name: str) -> None:
    files = {name: b"", "tabulate-0.9.dist-info/RECORD": b""}
    with pytest.raises(Refused, match="belongs outside site-packages"):
        wheels.unpack(wheel(files), WHEEL, "site", epoch=0)


def test_what_the_image_has_already_is_not_chosen_again() -> None:
    target = wheels.target(SITE, "linux/arm64", ["Torch-2.9.0+cu129.dist-info", "numpy.egg-info"])
    expected = wheels.WheelTarget("3.12", "aarch64", {"torch": "2.9.0+cu129"})
    assert target == expected
    assert wheels.resolve(["torch>=2.8", "tomli; python_version < '3.11'"], target) == ()
    with pytest.raises(
        Refused, match=r"the mod needs torch>=3, but the base has torch 2\.9\.0\+cu129"
    ):
        wheels.resolve(["torch>=3"], target)


@pytest.mark.network
def test_a_wheel_is_chosen_for_the_image_and_fetched_by_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "one"))
    target = wheels.target("usr/lib/python3.12/site-packages", "linux/arm64", ())
    (chosen,) = wheels.resolve(["markupsafe==3.0.2"], target)
    assert "cp312" in chosen.filename
    assert "aarch64" in chosen.filename
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "two"))
    data = wheels.fetch(chosen, target)
    assert hashlib.sha256(data).hexdigest() == chosen.sha256
    names = {one.path for one in wheels.unpack(data, chosen, "site", epoch=0)}
    assert "site/markupsafe/__init__.py" in names
    with pytest.raises(TreeError, match="pip finds no wheel"):
        wheels.fetch(chosen._replace(sha256="0" * 64), target)
    with pytest.raises(Refused, match=r"jinja2.* needs MarkupSafe"):
        wheels.resolve(["jinja2==3.1.6"], target)


def test_what_a_lock_has_chosen_is_not_chosen_again(image: FolderBase) -> None:
    locked = resolve(image).lock._replace(tool="vllm-mods 0.1", wheels=(WHEEL, WHEEL))

    with patch.object(wheels, "resolve", side_effect=AssertionError):
        again = resolving.resolve(
            PAIRING, (PATCHING, WRITING), tree_of(image), epoch=9, locked=locked
        ).lock
    assert (again.tool, again.wheels, again.epoch) == ("vllm-mods 0.1", (WHEEL, WHEEL), 9)
    assert again.mods == locked.mods


def test_mods_that_need_no_package_ask_for_none(image: FolderBase) -> None:
    lock = resolve(image, WRITING).lock
    assert lock.wheels == ()
    assert lock.tool == receipt.TOOL
    assert lock.pairing_digest == pairing.digest(PAIRING)
    assert (lock.pairing, lock.model, lock.revision) == ("small", "org/small", None)


def test_mods_that_do_not_go_in_are_named_with_the_command_that_tells_why(
    image: FolderBase,
) -> None:
    (image.root / SITE / "vllm/a.py").write_bytes(b"A = 3\n")
    with pytest.raises(Refused) as caught:
        resolve(image)
    assert caught.value.hint == "vllm-mods check patching writing --target image:folder:base"
    assert caught.value.plan is not None
    assert not caught.value.plan.ok


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ([], None),
        (["WORKSPACE_DIR=/srv/space"], "/srv/space"),
        (["WORKSPACE_DIR=link/x"], "/srv/x"),
        (["WORKSPACE_DIR=/"], None),
    ],
)
def test_the_workspace_of_an_image(image: FolderBase, env: list[str], place: str | None) -> None:
    (image.root / "link").symlink_to("srv")
    image.configure({"Env": env})
    assert resolving.workspace(image) == place


def test_labels_say_what_an_image_is_of(image: FolderBase) -> None:
    lock = drafted(image, PATCHING, WRITING, epoch=7).lock._replace(revision="r")
    data = b"lock"
    stated = building.labels(lock, data, {"org.opencontainers.image.revision": "1", "x": "y"})
    oci = "org.opencontainers.image"
    assert stated == {
        f"{oci}.revision": "1",
        f"{oci}.title": "small",
        f"{oci}.version": f"0.19.1-{sha256(data)[:12]}",
        f"{oci}.created": "1970-01-01T00:00:07Z",
        f"{oci}.base.name": "folder:base",
        "vllm-mods.pairing": "small",
        "vllm-mods.model": "org/small",
        "vllm-mods.lock": f"sha256:{sha256(data)}",
        "vllm-mods.mods": "patching@1.0.0 writing@1.0.0",
        "vllm-mods.revision": "r",
    }


def test_a_lock_lists_every_entry_of_the_layer(image: FolderBase) -> None:
    listed = {each.path: each for each in drafted(image, PATCHING, epoch=7).lock.image.layer}
    place = f"{SITE}/{pairing_lock.PLACE}"
    owner = (os.getuid(), os.getgid())
    assert listed[place] == (place, "lock", 0o644, *owner, 7, None)
    file = listed[f"{SITE}/vllm/a.py"]
    assert file == (f"{SITE}/vllm/a.py", "file", 0o644, *owner, 7, small_site.sha(b"A = 2\n"))
    folder = listed[f"{SITE}/vllm"]
    assert (folder.kind, folder.sha256) == ("folder", None)
