"""The small steps on files that a transaction is made of, each alone."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest
from lowering import lower
from small_site import OLD

from vllm_mods.base.errors import Refused
from vllm_mods.site import site
from vllm_mods.site.site import Look, Site

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Make a file with a mode, an mtime and an attribute of its own."""
    made = tmp_path / "file"
    made.write_bytes(b"content")
    made.chmod(0o640)
    try:
        os.setxattr(made, "user.note", b"mine")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error}")
    os.utime(made, ns=(OLD, OLD))
    return made


def failing(code: int) -> Callable[..., None]:
    def fail(*_arguments: object, **_options: object) -> None:
        raise OSError(code, os.strerror(code), "somewhere")

    return fail


def look(root: Path, *workspaces: Path) -> Look:
    return Look(Site(str(root), tuple(map(str, workspaces))), {})


# --- a second name ------------------------------------------------------------------------------


def test_a_second_name_is_the_same_file(file: Path, tmp_path: Path) -> None:
    site.preserve(str(file), str(tmp_path / "other"))
    assert file.samefile(tmp_path / "other")


def same_but_another(file: Path, other: Path) -> bool:
    """Tell whether one is a copy of the other with all its metadata."""
    infos = [path.lstat() for path in (file, other)]
    owners = [(info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns) for info in infos]
    notes = [os.getxattr(path, "user.note") for path in (file, other)]
    contents = [path.read_bytes() for path in (file, other)]
    pairs = (owners, notes, contents)
    return not file.samefile(other) and all(one == two for one, two in pairs)


def test_a_private_second_name_is_a_copy_with_all_metadata(file: Path, tmp_path: Path) -> None:
    site.preserve(str(file), str(tmp_path / "other"), private=True)
    assert same_but_another(file, tmp_path / "other")


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOSYS])
def test_where_no_link_can_be_made_it_is_a_copy(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(os, "link", failing(code))
    site.preserve(str(file), str(tmp_path / "other"))
    assert same_but_another(file, tmp_path / "other")


def test_a_link_that_fails_otherwise_is_an_error(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        site.preserve(str(file), str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_a_copy_is_on_the_disk_before_it_counts(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}"))
    )
    site.preserve(str(file), str(tmp_path / "other"), private=True)
    assert synced == [str(tmp_path / "other")]


def test_a_link_keeps_a_symbolic_link_as_it_is(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    site.preserve(str(tmp_path / "link"), str(tmp_path / "other"))
    assert os.readlink(tmp_path / "other") == str(file)


# --- writing ------------------------------------------------------------------------------------


def test_a_file_is_never_written_over_nor_through_a_link(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place in (file, tmp_path / "link"):
        with pytest.raises(FileExistsError):
            site.write(str(place), b"new", like=file.stat())
    assert file.read_bytes() == b"content"
    assert not (tmp_path / "nowhere").exists()


def test_what_is_written_has_the_mode_of_another_or_its_own(file: Path, tmp_path: Path) -> None:
    site.write(str(tmp_path / "like"), b"x", like=file.stat())
    site.write(str(tmp_path / "own"), b"x", like=file.stat(), mode=0o4711, mtime_ns=OLD)
    assert stat.S_IMODE((tmp_path / "like").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o4711
    assert (tmp_path / "own").stat().st_mtime_ns == OLD
    assert (tmp_path / "like").stat().st_mtime_ns != OLD
    assert os.listxattr(tmp_path / "like") == []


def test_nobody_reads_a_file_before_it_is_whole(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    write = os.write

    def watched(descriptor: int, data: bytes) -> int:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return write(descriptor, data[:1])

    monkeypatch.setattr(os, "write", watched)
    site.write(str(tmp_path / "new"), b"abc", like=file.stat(), mode=0o666)
    assert modes == [0o600 & ~umask()] * 3
    assert (tmp_path / "new").read_bytes() == b"abc"


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_label_that_the_system_gives_is_not_required(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "listxattr", lambda *_, **__: ["security.selinux"])
    monkeypatch.setattr(os, "getxattr", lambda *_, **__: b"label")
    monkeypatch.setattr(os, "setxattr", failing(errno.EACCES))
    site.write(str(tmp_path / "new"), b"x", like=file.stat(), attributes_of=str(file))
    monkeypatch.setattr(os, "listxattr", lambda *_, **__: ["user.note"])
    with pytest.raises(PermissionError):
        site.write(str(tmp_path / "other"), b"x", like=file.stat(), attributes_of=str(file))


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_where_there_are_no_attributes_none_are_kept(
    file: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    assert site.attributes(str(file)) == ["user.note"]
    monkeypatch.setattr(os, "listxattr", failing(code))
    assert site.attributes(str(file)) == []


def test_attributes_that_cannot_be_read_are_an_error(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "listxattr", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        site.attributes(str(file))


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("changed", [True, False])
def test_an_owner_that_cannot_be_given_is_an_error_where_it_was_somebodys(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, root: bool, changed: bool
) -> None:
    """A new file's owner is only its folder's: a group member makes it with an owner of his own."""
    info = file.stat()
    fields = [*info[:10]]
    fields[stat.ST_GID] += 1
    other = os.stat_result(fields)
    monkeypatch.setattr(os, "fchown", failing(errno.EPERM))
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    place, old = str(tmp_path / "new"), str(file) if changed else None
    if root or changed:
        with pytest.raises(PermissionError) as caught:
            site.write(place, b"x", like=other, attributes_of=old)
        assert caught.value.filename == place
    else:
        site.write(place, b"x", like=other, attributes_of=old)
        assert (tmp_path / "new").read_bytes() == b"x"


@pytest.mark.parametrize("root", [True, False])
def test_a_folder_whose_owner_cannot_be_given_is_an_error_for_root_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, root: bool
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(0o700)
    info = folder.stat()
    monkeypatch.setattr(os, "chown", failing(errno.EPERM))
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    site.settle_folder(str(folder), owner=(info.st_uid, info.st_gid), mode=0o711)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o711
    for owner in ((info.st_uid + 1, info.st_gid), (info.st_uid, info.st_gid + 1)):
        if root:
            with pytest.raises(PermissionError):
                site.settle_folder(str(folder), owner=owner)
        else:
            site.settle_folder(str(folder), owner=owner)
    assert stat.S_IMODE(folder.stat().st_mode) == (0o711 if root else 0o755)


# --- reading ------------------------------------------------------------------------------------


def test_reading_follows_no_link_and_misses_nothing(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    assert site.read(str(file)) == b"content"
    assert site.read(str(tmp_path / "none")) is None
    assert site.read(str(file / "below")) is None
    assert site.digest(str(tmp_path / "none")) is None
    assert site.status(str(file / "below")) is None
    with pytest.raises(OSError, match="Too many levels"):
        site.read(str(tmp_path / "link"))


def test_a_file_larger_than_any_that_is_read_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "UNPACKED_FILE", 7)
    assert site.read(str(file)) == b"content"
    lower(monkeypatch, "UNPACKED_FILE", 6)
    with pytest.raises(Refused, match=f"^{file} has more than 6 ") as caught:
        site.read(str(file))
    assert caught.value.hint == f"ls -la {file}"


@pytest.mark.usefixtures("file")
def test_what_lies_in_a_tree_is_looked_at_by_its_path_there(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("b", "a"):
        (tmp_path / "folder" / name).touch()
    (tmp_path / "folder/c").symlink_to("nowhere")
    looked = look(tmp_path)
    assert (looked.mode("file"), looked.read("file")) == (0o640, b"content")
    assert (looked.mode("none"), looked.read("none")) == (None, None)
    assert looked.names("folder") == ["a", "b", "c"]
    assert looked.names("none") == []


# --- bringing to the disk -----------------------------------------------------------------------


def test_each_file_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / str(n) for n in range(3)]
    for one in files:
        one.touch()
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}"))
    )
    site.sync(map(str, files))
    assert synced == [str(one) for one in files]


def test_a_disk_that_fails_while_syncing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    descriptors = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        site.sync([str(tmp_path / "file")] * 6)
    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL))
    site.sync([str(tmp_path)])  # a folder on a network file system
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_link_is_not_synced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError, match="Too many levels"):
        site.sync([str(tmp_path / "link")])


# --- who may ------------------------------------------------------------------------------------


def test_others_may_not_change_what_is_not_theirs(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(Refused, match=f"^file belongs to user {owner}, but you are user") as caught:
        site.check_writable("file", file.stat(), look(tmp_path))
    assert caught.value.hint == f"run the command as its owner or as root: stat -c %U {file}"
    with pytest.raises(Refused, match=f"^new is in {tmp_path}, which belongs to user") as caught:
        site.check_writable("new", None, look(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    site.check_writable("file", file.stat(), look(tmp_path))


def test_read_only_is_a_wish_that_root_has_to_heed_too(file: Path, tmp_path: Path) -> None:
    file.chmod(0o444)
    with pytest.raises(Refused, match=r"^file is read-only \(mode 0444\)") as caught:
        site.check_writable("file", file.stat(), look(tmp_path))
    assert caught.value.hint == f"chmod u+w {file}"
    file.chmod(0o644)
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(Refused, match=r"is in .*, which is read-only \(mode 0555\)") as caught:
            site.check_writable("deep/er/new", None, look(tmp_path))
    finally:
        tmp_path.chmod(0o755)
    assert caught.value.hint == f"chmod u+w {tmp_path}"
    site.check_writable("deep/er/new", None, look(tmp_path))


def test_a_file_with_other_names_is_refused_unless_links_may_break(
    file: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").hardlink_to(file)
    with pytest.raises(Refused, match="file has 2 hard links") as caught:
        site.check_writable("file", file.stat(), look(tmp_path), keep_links=True)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("without --keep-links ")
    site.check_writable("file", file.stat(), look(tmp_path))


# --- where --------------------------------------------------------------------------------------


def test_a_path_in_a_workspace_is_looked_at_there(tmp_path: Path) -> None:
    root, workspace = tmp_path / "root", tmp_path / "work"
    for folder in (root, workspace):
        folder.mkdir()
    (workspace / "t").write_bytes(b"t")
    looked = look(root, workspace)
    assert looked.file(f"{workspace}/t") is not None
    assert looked.file(f"{workspace}/none") is None
    assert looked.file(f"{workspace}/deep/none") is None
    with pytest.raises(Refused, match="outside the workspace") as caught:
        looked.file(f"{tmp_path}/elsewhere/t")
    assert caught.value.hint == f"--workspace {workspace}"
    with pytest.raises(Refused, match=r"workspace \(none\)") as caught:
        look(root).file(f"{tmp_path}/elsewhere/t")
    assert caught.value.hint == f"--workspace {tmp_path}/elsewhere"


def test_the_whole_disk_is_no_workspace(tmp_path: Path) -> None:
    looked = Look(Site(str(tmp_path), ("/",)), {})
    for path in ("/etc/passwd", "//etc/passwd"):
        with pytest.raises(Refused, match="outside the workspace"):
            looked.file(path)


def test_missing_folders_are_told_from_the_outside_in(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert look(tmp_path).missing("a/b/c/file") == ("a/b", "a/b/c")
    assert look(tmp_path).missing("a/file") == ()
    assert look(tmp_path).missing("file") == ()
    assert look(tmp_path).parent("a/b/c/file")[0] is None


def test_a_file_or_a_link_is_no_folder(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(Refused, match=f"^file/x: {file} is a file, not a folder") as caught:
        look(tmp_path).file("file/x")
    assert caught.value.hint == f"ls -la {file}"
    with pytest.raises(Refused, match=f"^link/x: link is a symbolic link to {tmp_path},") as caught:
        look(tmp_path).file("link/x")
    assert caught.value.hint == f"name the real tree as the target: {tmp_path}"


def test_what_is_our_own_is_no_target_but_templates_are(tmp_path: Path) -> None:
    where = Site(str(tmp_path / "site"), (str(tmp_path / "space"),))
    for path in (".vllm-mods", ".vllm-mods/receipt.json", f"{tmp_path}/space/.vllm-mods/x"):
        with pytest.raises(Refused, match="the files of vllm-mods;") as caught:
            site.check_target(where, path)
        assert caught.value.hint == "remove the path from the mod"
    for path in ("vllm/a.py", ".vllm-mods/templates/t.jinja", f"{tmp_path}/space/t.jinja"):
        site.check_target(where, path)


@pytest.mark.parametrize("path", ["vllm//a.py", "vllm/", "./a.py", "vllm/../a.py", "vllm/a\0.py"])
def test_a_path_that_is_not_plain_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(Refused, match="not a plain path") as caught:
        Look(Site(str(tmp_path)), {}).file(path)
    assert caught.value.hint
