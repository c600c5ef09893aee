"""The layer on a base is what ``apply`` would have written there, and nothing but that."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from typing import TYPE_CHECKING

import pytest
import small_site
from folder_base import FolderBase, lay
from small_site import verify, write

from vllm_mods.base.errors import Refused
from vllm_mods.base.model import FileChange
from vllm_mods.building import layer, tarball
from vllm_mods.building.content import content
from vllm_mods.building.tarball import TarEntry
from vllm_mods.formats import receipt
from vllm_mods.site import transaction
from vllm_mods.site.state_folder import read_state
from vllm_mods.site.transitions import Transition
from vllm_mods.trees.folder import FolderTree
from vllm_mods.trees.receipt_tree import Pristine

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.formats.receipt import Receipt

SITE = "usr/local/lib/python3.12/dist-packages"
RECORD = f"{SITE}/{small_site.RECORD}"
EPOCH = 1_700_000_000
A, B = small_site.FILES["vllm/a.py"], small_site.FILES["vllm/b.py"]


@pytest.fixture
def image(tmp_path: Path) -> FolderBase:
    root = tmp_path / "image"
    site = root / SITE
    site.mkdir(parents=True)
    small_site.build(site)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    return FolderBase(root)


def transition(*changes: FileChange) -> Transition:
    return Transition(
        changes=changes,
        before=(),
        mods=(small_site.entry("one", *changes),),
        vllm="0.19.1",
        sources=(("one", b"1"),),
    )


CHANGES = transition(
    write("vllm/a.py", A, b"A = 2\n"),
    write("vllm/b.py", B, None),
    write("vllm/new/n.py", None, b"N = 1\n", 0o755),
)


KEPT = f"{SITE}/{receipt.original(small_site.RECORD)}"


def layer_of(base: FolderBase, wanted: Transition, site: str = SITE) -> bytes:
    there = read_state(str(base.root / site)).receipt
    nodes, gone = content(base, site, there, wanted, epoch=EPOCH)
    return tarball.write(layer.entries(base, nodes, gone, epoch=EPOCH))


def seen(root: Path) -> dict[str, tuple[object, ...]]:
    """What can be told of everything below a folder, to the second."""
    return {
        str(path.relative_to(root)): (
            oct(path.lstat().st_mode),
            int(path.lstat().st_mtime),
            path.read_bytes() if path.is_file() else None,
        )
        for path in root.rglob("*")
    }


def members(archive: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {one.name: one for one in opened}


def test_it_is_what_apply_writes(image: FolderBase, tmp_path: Path) -> None:
    applied = tmp_path / "applied"
    shutil.copytree(image.root, applied, symlinks=True)
    transaction.commit(str(applied / SITE), CHANGES, source_date_epoch=EPOCH)
    before = seen(image.root)
    made = layer_of(image, CHANGES)
    assert seen(image.root) == before
    lay(made, image.root)
    assert seen(image.root) == seen(applied)
    assert not (image.root / SITE / small_site.PYC).exists()


def test_a_record_comes_back_as_it_was(image: FolderBase) -> None:
    untouched = image.root / SITE / small_site.RECORD
    os.utime(untouched, (EPOCH - 7, EPOCH - 7))
    before = seen(image.root)
    lay(layer_of(image, CHANGES), image.root)
    assert verify(str(image.root / SITE)) == ()
    there = read_state(str(image.root / SITE)).receipt
    assert there is not None
    site = image.root / SITE
    assert Pristine(FolderTree(str(site)), there).read(small_site.RECORD) == before[RECORD][-1]
    transaction.commit(str(site), back(there, site))
    found = seen(image.root)
    for one in (before, found):  # removed from the image for good
        for path in [path for path in one if "__pycache__" in path]:
            del one[path]
    assert found == before


def test_a_record_that_was_edited_since_is_left_as_it_is(image: FolderBase) -> None:
    lay(layer_of(image, CHANGES), image.root)
    site = image.root / SITE
    with (site / small_site.RECORD).open("ab") as file:
        file.write(b"more.py,,\n")
    before = seen(image.root)
    found = {(one.code, one.path) for one in verify(str(site))}
    assert found == {("changed-since", small_site.RECORD)}
    there = read_state(str(site)).receipt
    assert there is not None
    with pytest.raises(Refused, match="RECORD was changed"):
        transaction.commit(str(site), back(there, site))
    assert seen(image.root) == before


def back(there: Receipt, site: Path) -> Transition:
    """Everything out again."""
    changes = [
        write(one.path, (site / one.path).read_bytes() if one.after else None, None)
        for one in there.files
        if one.kind == receipt.FILE
    ]
    return Transition(
        changes=tuple(changes),
        restored=frozenset(one.path for one in changes),
        before=there.mods,
        mods=(),
        vllm=there.vllm,
    )


@pytest.mark.parametrize("in_image", [False, True])
def test_another_mod_goes_in_on_top_of_such_a_layer(image: FolderBase, *, in_image: bool) -> None:
    site = image.root / SITE
    untouched = (site / small_site.RECORD).read_bytes()
    lay(layer_of(image, CHANGES), image.root)
    there = read_state(str(site)).receipt
    assert there is not None
    second = write("vllm/sub/c.py", small_site.FILES["vllm/sub/c.py"], b"C = 2\n")
    mods = (*there.mods, small_site.entry("two", second))
    more = Transition((second,), there.mods, mods, "0.19.1", sources=(("two", b"2"),))
    if in_image:
        lay(layer_of(image, more), image.root)
    else:
        transaction.commit(str(site), more)
    assert (image.root / KEPT).read_bytes() == untouched
    assert (image.root / KEPT).stat().st_mtime == small_site.OLD // 10**9
    assert verify(str(site)) == ()
    now = read_state(str(site)).receipt
    assert now is not None
    transaction.commit(str(site), back(now, site))
    assert (site / small_site.RECORD).read_bytes() == untouched


def test_the_second_mod_keeps_the_first_ones_originals(image: FolderBase, tmp_path: Path) -> None:
    transaction.commit(str(image.root / SITE), CHANGES, source_date_epoch=EPOCH)
    applied = tmp_path / "applied"
    shutil.copytree(image.root, applied, symlinks=True)
    there = read_state(str(applied / SITE)).receipt
    assert there is not None
    second = write("vllm/a.py", b"A = 2\n", b"A = 3\n")
    more = Transition(
        changes=(second,),
        before=there.mods,
        mods=(*there.mods, small_site.entry("two", second)),
        vllm="0.19.1",
        sources=(("two", b"2"),),
    )
    transaction.commit(str(applied / SITE), more, source_date_epoch=EPOCH)
    lay(layer_of(image, more), image.root)
    assert seen(image.root) == seen(applied)
    assert (image.root / SITE / receipt.original("vllm/a.py")).read_bytes() == A


def test_only_what_changes_is_in_it(image: FolderBase) -> None:
    found = members(layer_of(image, CHANGES))
    files = {name for name, one in found.items() if one.isfile()}
    inside = {name.removeprefix(f"{SITE}/") for name in files}
    pyc = "vllm/__pycache__/a.cpython-312.opt-2.pyc"
    assert inside == {
        "vllm/a.py",
        "vllm/.wh.b.py",
        "vllm/new/n.py",
        "vllm/__pycache__/.wh.a.cpython-311.pyc",
        "vllm/__pycache__/.wh.a.cpython-312.opt-2.pyc",
        small_site.RECORD,
        receipt.RECEIPT,
        ".vllm-mods/mods/one.json",
        receipt.original("vllm/a.py"),
        receipt.original("vllm/b.py"),
        receipt.original(small_site.PYC),
        receipt.original(pyc),
        receipt.original(small_site.RECORD),
    }


def test_every_folder_on_the_way_is_as_the_base_has_it(image: FolderBase) -> None:
    image.modes |= {"usr": 0o2775, SITE: 0o1777}
    image.owners |= {"usr": (0, 8), "usr/local": (5, 6), SITE: (1000, 1001)}
    found = members(layer_of(image, CHANGES))
    folders = [one for one in found.values() if one.isdir()]
    for one in folders:
        there = image.entry(one.name)
        if there is not None:
            assert (one.mode, one.uid, one.gid, one.mtime) == there[2:6], one.name
        else:
            assert one.mode == 0o755
            assert one.mtime == EPOCH
    for name, one in found.items():
        parent = os.path.dirname(name)
        assert not parent or parent in found, f"{name} comes without {parent}"
        assert not parent or list(found).index(parent) < list(found).index(name)
        assert one.isdir() or one.isreg()
    assert (found[f"{SITE}/.vllm-mods"].uid, found[f"{SITE}/.vllm-mods"].gid) == (1000, 1001)
    assert (found[f"{SITE}/{receipt.RECEIPT}"].uid, found["usr"].mode) == (1000, 0o2775)


def test_files_keep_their_owner_and_mode(image: FolderBase) -> None:
    image.owners |= {f"{SITE}/vllm/b.py": (7, 8)}
    found = members(layer_of(image, transition(write("vllm/b.py", B, b"B = 2\n"))))
    changed, original = found[f"{SITE}/vllm/b.py"], found[f"{SITE}/{receipt.original('vllm/b.py')}"]
    assert (changed.mode, changed.uid, changed.gid, changed.mtime) == (0o4755, 7, 8, EPOCH)
    assert (original.mode, original.uid, original.gid) == (0o4755, 7, 8)
    assert original.mtime == int((image.root / SITE / "vllm/b.py").stat().st_mtime)


def test_a_mode_is_set_when_all_is_written(
    image: FolderBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing to a file takes its setuid bit away, from everybody but root."""
    sizes = {}
    real = os.chmod

    def chmod(place: str, mode: int, **given: bool) -> None:
        sizes[mode] = os.stat(place).st_size
        real(place, mode, **given)

    monkeypatch.setattr(os, "chmod", chmod)
    layer_of(image, transition(write("vllm/b.py", B, b"B = 2\n")))
    assert sizes[0o4755] == len(B)


def test_a_path_through_a_link_of_the_base_goes_where_it_leads(image: FolderBase) -> None:
    (image.root / "lib").symlink_to("usr/lib")
    (image.root / "usr/lib").mkdir()
    (image.root / "srv").symlink_to("/var/srv")
    (image.root / "var/srv").mkdir(parents=True)
    nodes = [TarEntry("lib/a", b"1", 0o644, EPOCH), TarEntry("srv/new/b", b"2", 0o644, EPOCH)]
    found = members(tarball.write(layer.entries(image, nodes, ["lib/gone"], epoch=EPOCH)))
    assert set(found) == {
        "usr",
        "usr/lib",
        "usr/lib/a",
        "usr/lib/.wh.gone",
        "var",
        "var/srv",
        "var/srv/new",
        "var/srv/new/b",
    }


def test_a_file_in_the_way_is_refused(image: FolderBase) -> None:
    (image.root / "srv").write_bytes(b"")
    with pytest.raises(Refused, match="folder:base: /srv is a file, but the mod needs a folder"):
        layer.entries(image, [TarEntry("srv/a", b"", 0o644, 0)], [], epoch=0)


def test_a_template_in_a_workspace_is_recorded_where_the_image_has_it(image: FolderBase) -> None:
    (image.root / "workspace").mkdir()
    wanted = transition(write("/workspace/t.jinja", None, b"{{ x }}"))
    made = layer_of(image, wanted)
    lay(made, image.root)
    assert (image.root / "workspace/t.jinja").read_bytes() == b"{{ x }}"
    there = read_state(str(image.root / SITE)).receipt
    assert there is not None
    assert there.workspace == "/workspace"
    assert there.file("/workspace/t.jinja") is not None
    assert b"vllm-mods-" not in made


@pytest.mark.parametrize("change", ["edited", "link", "read-only", "folder", "outside"])
def test_what_apply_refuses_is_refused_with_the_images_places(
    image: FolderBase, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    path = image.root / SITE / "vllm/a.py"
    wanted = CHANGES
    if change == "edited":
        path.write_bytes(b"A = 5\n")
    elif change == "link":
        path.unlink()
        path.symlink_to("b.py")
    elif change == "read-only":
        path.chmod(0o444)
    elif change == "folder":
        (path.parent / "new").write_bytes(b"")
    else:
        wanted = transition(write("../x.py", None, b""))
    with pytest.raises(Refused) as refused:
        layer_of(image, wanted)
    assert str(scratch) not in f"{refused.value.message} {refused.value.hint}"
    assert not os.listdir(scratch)


def test_a_folder_without_the_write_bit_is_laid_out_and_swept(image: FolderBase) -> None:
    image.modes |= {"usr/local": 0o555}
    assert members(layer_of(image, CHANGES))["usr/local"].mode == 0o555


def test_the_same_twice_in_another_place(image: FolderBase, tmp_path: Path) -> None:
    first = layer_of(image, CHANGES)
    copy = tmp_path / "elsewhere"
    shutil.copytree(image.root, copy, symlinks=True)
    old = os.umask(0o077)
    try:
        assert layer_of(FolderBase(copy), CHANGES) == first
    finally:
        os.umask(old)


WHITEOUT = "marks a deleted file in a layer, so no file in an image can have that name"


def test_what_a_layer_cannot_hold_is_refused_with_a_next_step(image: FolderBase) -> None:
    (image.root / "srv").write_bytes(b"")
    for path, message, hint in (
        (
            "a/.wh.b/c",
            f"/a/.wh.b/c {WHITEOUT}; nothing was built",
            "remove the path from the mod",
        ),
        (
            "srv/a",
            "folder:base: /srv is a file, but the mod needs a folder there; nothing was built",
            "remove the path from the mod, or build on another base",
        ),
    ):
        with pytest.raises(Refused) as caught:
            layer.entries(image, [TarEntry(path, b"", 0o644)], [], epoch=0)
        assert (caught.value.message, caught.value.hint) == (message, hint)


def test_entries_are_sorted_by_their_parts_each_with_an_owner(image: FolderBase) -> None:
    image.owners |= {"tmp": (7, 8), "usr": (0, 9)}
    nodes = [
        TarEntry("tmp/new/b", b"1", 0o600, 3),
        TarEntry("tmp/new", None, 0o700, 4, (5, 6)),
        TarEntry("tmp/new-er", b"2", 0o600, 3),
        TarEntry("top/x", b"", 0o644),
    ]
    entries = layer.entries(image, nodes, ["usr/gone"], epoch=9)
    below = image.entry("tmp")
    usr = image.entry("usr")
    assert below is not None
    assert usr is not None
    assert entries == (
        TarEntry("tmp", None, 0o1777, below.mtime, (7, 8)),
        TarEntry("tmp/new", None, 0o700, 4, (5, 6)),
        TarEntry("tmp/new/b", b"1", 0o600, 3, (5, 6)),
        TarEntry("tmp/new-er", b"2", 0o600, 3, (7, 8)),
        TarEntry("top", None, 0o755, 9, (0, 0)),
        TarEntry("top/x", b"", 0o644, 0, (0, 0)),
        TarEntry("usr", None, usr.mode, usr.mtime, (0, 9)),
        TarEntry("usr/.wh.gone", b"", 0, 9),
    )


def test_a_disk_without_room_for_the_slice_is_said(
    image: FolderBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    mkdir = os.mkdir

    def full(place: str, *mode: int) -> None:
        if place.endswith(SITE):
            raise OSError(28, "No space left on device")
        mkdir(place, *mode)

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(Refused) as caught:
        layer_of(image, CHANGES)
    assert caught.value.message.startswith(f"{tmp_path}/vllm-mods-")
    assert caught.value.message.endswith(": No space left on device; nothing was built")
    hint = "TMPDIR=/another/disk vllm-mods build …  # the folder for temporary files"
    assert caught.value.hint == hint
