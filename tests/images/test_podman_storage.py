"""Images of podman, by a program of that name: which documents are read, and what of a mount."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from typing import TYPE_CHECKING

import pytest
from lowering import lower
from making_images import Image, digest, layer

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.images.model import resolve
from vllm_mods.images.open import open_base

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_mods.images.model import Base, ImageEntry

IMAGE = Image([layer({"a": b"a"})], {"Env": ["PATH=/usr/bin"]})
REFERENCE = "podman:some/image:1"


class Podman:
    """A podman whose commands print what lies in files of their names; ``calls`` has each of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.mount = folder, folder / "root", folder / "mount"
        (folder / "podman").write_text(
            f'#!/bin/sh\ncd {folder}\necho "$@" >> calls\n'
            'case "$1 $2" in "image inspect") f=inspect;; "image mount") f=mounted;; info*) f=info;;'
            " *) exit 0;; esac\ncat $f.errors >&2 2>/dev/null && exit 125; cat $f\n"
        )
        (folder / "podman").chmod(0o755)
        self.says("mounted", str(self.mount))
        self.driver(dir=f"{self.root}/overlay/0123/diff")
        self.keeps(self.root / "overlay-images/7")

    def driver(self, **data: str) -> None:
        self.says("inspect", json.dumps({"id": "7", "data": data or None}))

    def says(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def keeps(self, place: Path) -> None:
        """Put the documents of the image into a folder, under names as podman gives them."""
        place.mkdir(parents=True)
        (place / "manifest").write_bytes(IMAGE.blobs()[0])
        key = base64.b64encode(digest(IMAGE.config).encode()).decode()
        (place / f"={key}").write_bytes(IMAGE.config)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Podman:
    folder = tmp_path / "engine"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return Podman(folder)


@pytest.fixture
def mounted(podman: Podman) -> Iterator[Base]:
    """Return an image whose files are on the disk; two of its links lead out of it."""
    (podman.folder / "secret").mkdir()
    (podman.folder / "secret/x").write_text("of this machine")
    for path in ("srv/site", "srv/tmp"):
        (podman.mount / path).mkdir(parents=True)
    (podman.mount / "srv/site/a.py").write_text("A = 1\n")
    (podman.mount / "out").symlink_to(podman.folder / "secret")
    (podman.mount / "file").symlink_to(podman.folder / "secret/x")
    (podman.mount / "srv/tmp").chmod(0o1777)
    (podman.mount / "srv/site/a.py").chmod(0o640)
    os.mkfifo(podman.mount / "pipe", 0o600)
    for path in ("srv/site/a.py", "srv/tmp", "srv/site", "srv", "."):
        os.utime(podman.mount / path, (1.75, 7.75))
    base = open_base(REFERENCE)
    yield base
    base.close()


def test_podman_says_what_an_image_is(podman: Podman) -> None:
    base = open_base(REFERENCE)
    manifest = IMAGE.blobs()[0]
    assert (base.where, base.reference) == ("podman", REFERENCE)
    assert (base.manifest, base.manifest_digest) == (manifest, digest(manifest))
    assert (base.config, base.config_digest) == (IMAGE.config, digest(IMAGE.config))
    assert base.diff_ids == (digest(IMAGE.layers[0]),)
    assert base.layers is not None
    assert [blob.digest for blob in base.layers] == list(base.diff_ids)
    base.close()
    (call,) = podman.calls
    assert call.startswith("image inspect --format ")
    assert call.endswith(" some/image:1")


@pytest.mark.parametrize(
    ("data", "images"),
    [
        ({"UpperDir": "{}/overlay/0/diff", "dir": "/x/vfs/0"}, "overlay-images"),
        ({"UpperDir": "", "dir": "{}/vfs/dir/0"}, "overlay-images"),
        ({"dir": "{}/vfs/dir/0"}, "vfs-images"),
        ({}, "overlay-images"),
        ({}, "vfs-images"),
    ],
)
def test_the_storage_is_where_its_layers_are_or_where_podman_says(
    podman: Podman, data: dict[str, str], images: str
) -> None:
    root = podman.folder / "other"
    podman.keeps(root / images / "7")
    podman.driver(**{key: place.format(root) for key, place in data.items()})
    podman.says("info", json.dumps({"store": {"graphRoot": str(root)}}))
    podman.root.rename(podman.folder / "away")
    assert open_base(REFERENCE).config == IMAGE.config
    assert podman.calls[1:] == ([] if data else ["info --format json"])


def entry_of(base: Base, path: str) -> ImageEntry:
    entry = base.entry(path)
    assert entry is not None
    return entry


def test_files_are_those_of_the_mount(mounted: Base, podman: Podman) -> None:
    file = entry_of(mounted, "srv/site/a.py")
    owner = (os.getuid(), os.getgid())
    assert file == ("srv/site/a.py", "file", 0o640, *owner, 7, "", 6)
    assert entry_of(mounted, "srv/tmp") == ("srv/tmp", "dir", 0o1777, *owner, 7, "", 0)
    assert entry_of(mounted, "").kind == "dir"
    pipe = entry_of(mounted, "pipe")
    assert (pipe.kind, pipe.size) == ("other", 0)
    link = entry_of(mounted, "file")
    assert (link.kind, link.target, link.size) == ("link", f"{podman.folder}/secret/x", 0)
    assert mounted.read("srv/site/a.py") == b"A = 1\n"
    for path in ("srv", "pipe", "srv/none", "none/x", "srv/site/a.py/x"):
        assert mounted.read(path) is None, path
    for path in ("srv/none", "none/x", "srv/site/a.py/x"):
        assert mounted.entry(path) is None, path


def test_a_folder_has_everything_below_it(mounted: Base) -> None:
    below = ["srv/site", "srv/site/a.py", "srv/tmp"]
    assert sorted(entry.path for entry in mounted.paths("srv")) == below
    everything = sorted(entry.path for entry in mounted.paths(""))
    assert everything == ["file", "out", "pipe", "srv", *below]
    for path in ("srv/site/a.py", "none", "out"):
        assert list(mounted.paths(path)) == [], path


def test_links_in_a_mount_do_not_lead_out(mounted: Base, podman: Podman) -> None:
    assert mounted.entry("out/x") is None
    assert mounted.read("out/x") is None
    assert mounted.read("file") is None
    assert resolve(mounted, "out/x") == f"{podman.folder}/secret/x".lstrip("/")


def test_an_image_is_mounted_to_be_read_and_then_no_more(mounted: Base, podman: Podman) -> None:
    mounted.read("srv/site/a.py")
    mounted.entry("srv")
    mounted.close()
    mounted.close()
    assert podman.calls[1:] == ["image mount 7", "image unmount 7"]


HINT = "run the command as root or in `podman unshare`"


def test_a_path_that_this_machine_does_not_have_is_no_absent_one(mounted: Base) -> None:
    name = "x" * 300
    for call in (mounted.entry, mounted.read, lambda path: [*mounted.paths(path)]):
        with pytest.raises(TreeError) as caught:
            call(f"srv/{name}")
        assert caught.value.message == f"{REFERENCE}: /srv/{name}: File name too long"
        assert caught.value.hint == HINT


def test_a_folder_that_may_not_be_listed_is_named(
    mounted: Base, podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def listed(place: str) -> object:
        if place.endswith("srv/site"):
            raise PermissionError(13, "Permission denied", place)
        return scandir(place)

    monkeypatch.setattr(os, "scandir", listed)
    with pytest.raises(TreeError) as caught:
        list(mounted.paths("srv"))
    assert caught.value.message == f"{REFERENCE}: /srv/site: Permission denied"
    assert caught.value.hint == HINT
    assert podman.calls


def test_a_file_larger_than_any_is_not_read(mounted: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "UNPACKED_FILE", 5)
    with pytest.raises(TreeError, match=r"^srv/site/a\.py has more than 5 bytes"):
        mounted.read("srv/site/a.py")


AGAIN = "podman info  # shows whether its storage works"


def test_an_image_that_podman_does_not_have(podman: Podman) -> None:
    podman.says("inspect.errors", "Error: some/image:1: image not known")
    with pytest.raises(UsageError) as caught:
        open_base(REFERENCE)
    assert caught.value.message == f"{REFERENCE}: podman has no image some/image:1"
    assert caught.value.hint == "podman pull some/image:1"


@pytest.mark.parametrize(
    ("name", "words", "message", "hint"),
    [
        ("inspect", "no space", "podman image: no space", "podman info"),
        ("info", "no space", "podman info: no space", "podman info"),
        (
            "mounted",
            "cannot mount in rootless mode",
            "podman image: cannot mount in rootless mode",
            "podman unshare vllm-mods …  # mounts a rootless store",
        ),
    ],
)
def test_a_podman_that_fails(
    podman: Podman, name: str, words: str, message: str, hint: str
) -> None:
    podman.says(f"{name}.errors", words)
    if name == "info":
        podman.driver()
    with pytest.raises(TreeError) as caught, contextlib.closing(open_base(REFERENCE)) as base:
        base.read("a")
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_podman_that_prints_no_json(podman: Podman) -> None:
    podman.says("inspect", "7 overlay")
    with pytest.raises(TreeError, match="`podman image` prints no JSON: Extra data") as caught:
        open_base(REFERENCE)
    assert caught.value.hint == AGAIN


def test_a_storage_without_the_documents_of_an_image(podman: Podman) -> None:
    podman.root.rename(podman.folder / "away")
    place = podman.root / "vfs-images/7/manifest"
    with pytest.raises(TreeError) as caught:
        open_base(REFERENCE)
    assert (caught.value.message, caught.value.hint) == (
        f"{place}: No such file or directory",
        AGAIN,
    )


def test_a_document_larger_than_any_is_not_read(
    podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "DOCUMENT", 5)
    with pytest.raises(
        TreeError, match=f"^{podman.root}/overlay-images/7/manifest has more than 5"
    ):
        open_base(REFERENCE)
