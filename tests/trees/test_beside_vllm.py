"""Archives and the packages beside vLLM: what is refused in its words, and which version is read."""

from __future__ import annotations

import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

import mod_making as making
import pytest
from lowering import lower
from package_server import SOURCES, make_sdist, make_wheel

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.trees import other_packages
from vllm_mods.trees.archive import ArchiveTree, TarArchive, ZipArchive, open_archive
from vllm_mods.trees.index import ReleaseFile
from vllm_mods.trees.other_packages import OtherPackages

if TYPE_CHECKING:
    from pathlib import Path

REBUILD = "download it again: this is not what vLLM's wheels or sdists contain"


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> io.BytesIO:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return stream


def tarred(*names: str, kind: bytes = tarfile.REGTYPE) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            if name.endswith("odd.py"):
                member.type = kind
            else:
                member.size = 4
            archive.addfile(member, io.BytesIO(b"data"))
    stream.seek(0)
    return stream


LINK = zipfile.ZipInfo("vllm/link.py")
LINK.external_attr = 0o120777 << 16


def test_what_no_wheel_has_is_said() -> None:
    archive = ZipArchive(zipped((LINK, b"a.py"), ("a.py", b"1")), label="x.whl")
    assert archive.names == {"vllm/link.py", "a.py"}
    assert archive.read("none") is None
    with pytest.raises(TreeError) as caught:
        archive.read("vllm/link.py")
    message = "x.whl: vllm/link.py is a symbolic link or a device"
    assert (caught.value.message, caught.value.hint) == (message, REBUILD)
    for name, why in (("../a", "'../a' is not a plain relative path"),):
        with pytest.raises(TreeError) as caught:
            ZipArchive(zipped((name, b"")), label="x.whl")
        assert (caught.value.message, caught.value.hint) == (f"x.whl: {why}", REBUILD)
    with pytest.raises(TreeError) as caught:
        ZipArchive(io.BytesIO(b"none"), label="x.whl")
    message = "x.whl: corrupt or unreadable: File is not a zip file"
    assert (caught.value.message, caught.value.hint) == (message, REBUILD)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (tarfile.SYMTYPE, "is a link"),
        (tarfile.LNKTYPE, "is a link"),
        (tarfile.FIFOTYPE, "is not a regular file"),
    ],
)
def test_what_is_no_file_of_an_sdist_is_said(kind: bytes, what: str) -> None:
    archive = TarArchive(tarred("v/a.py", "v/odd.py", kind=kind), label="x.tar.gz")
    assert (archive.read("a.py"), archive.read("none")) == (b"data", None)
    with pytest.raises(TreeError) as caught:
        archive.read("odd.py")
    assert (caught.value.message, caught.value.hint) == (f"x.tar.gz: odd.py {what}", REBUILD)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("v/a", "w/b"), "an sdist has one top-level folder, and this file has 2"),
        ((), "an sdist has one top-level folder, and this file has 0"),
        (("v/a", "v/a"), "'v/a' appears twice in the archive"),
        (("v/../a",), "'v/../a' is not a plain relative path"),
    ],
)
def test_an_sdist_that_is_none(names: tuple[str, ...], why: str) -> None:
    with pytest.raises(TreeError) as caught:
        open_archive("sdist", tarred(*names), "x.tar.gz")
    assert (caught.value.message, caught.value.hint) == (f"x.tar.gz: {why}", REBUILD)


def test_an_sdist_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "UNPACKED_FILE", 4)
    assert TarArchive(tarred("v/a"), label="x").read("a") == b"data"
    lower(monkeypatch, "UNPACKED_FILE", 3)
    with pytest.raises(TreeError) as caught:
        TarArchive(tarred("v/a"), label="x").read("a")
    message = "x: a has 4 bytes; the limit is 3 bytes"
    assert (caught.value.message, caught.value.hint) == (message, REBUILD)
    lower(monkeypatch, "SDIST", 10 << 10)
    assert TarArchive(tarred("v/a"), label="x").names == {"a"}
    lower(monkeypatch, "SDIST", (10 << 10) - 1)
    with pytest.raises(TreeError, match="x: corrupt or unreadable: it unpacks to more than 10,239"):
        TarArchive(tarred("v/a"), label="x")


def tree_of(data: bytes, kind: str = "wheel", others: OtherPackages | None = None) -> ArchiveTree:
    tree = ArchiveTree(open_archive(kind, io.BytesIO(data), "x"), spec="x")
    tree.others = others
    return tree


def test_what_an_archive_says_of_itself() -> None:
    wheel = tree_of(make_wheel(bulk={}))
    sdist = tree_of(make_sdist(), "sdist")
    assert (wheel.version, sdist.version) == ("0.19.1", "0.19.1")
    assert (wheel.metadata() or b"").startswith(b"Name: vllm\n")
    assert (sdist.metadata() or b"").startswith(b"Metadata-Version: ")
    assert (wheel.platform, sdist.platform) == (None, None)
    bare = tree_of(zipped(*SOURCES.items()).getvalue())
    assert (bare.version, bare.metadata()) == ("0.19.1", None)
    two = {**SOURCES, "a-1.dist-info/WHEEL": b"", "b-2.dist-info/WHEEL": b""}
    assert tree_of(zipped(*two.items()).getvalue()).version == "0.19.1"
    tagged = {**SOURCES, "vllm-3.dist-info/WHEEL": b"Tag: cp38-abi3-manylinux_2_31_x86_64\n"}
    assert tree_of(zipped(*tagged.items()).getvalue()).platform == "linux/amd64"
    assert sorted(wheel.paths()) == sorted(SOURCES)
    assert set(wheel.folders()) == {"vllm", "vllm-0.19.1.dist-info"}
    with pytest.raises(UsageError) as caught:
        tree_of(zipped(("a", b"")).getvalue())
    message = "x has no vLLM: it has no vllm/__init__.py"
    assert (caught.value.message, caught.value.hint) == (message, "name a vllm wheel or sdist")


class Project:
    """Releases of one distribution: files as they are told, each an archive of one package."""

    def __init__(self, *files: ReleaseFile, package: str = "six") -> None:
        self.all, self.package = files, package

    def files(self) -> tuple[ReleaseFile, ...]:
        return self.all

    def archive(self, version: str) -> ZipArchive:
        data = zipped((f"{self.package}/a.py", version.encode()))
        return ZipArchive(data, label=version)


def release(version: str, day: str | None = "2026-01-01", **more: str) -> ReleaseFile:
    uploaded = day and f"{day}T00:00:00Z"
    return ReleaseFile(f"six-{version}.whl", "u", version, "wheel", uploaded=uploaded, **more)  # type: ignore[arg-type]


def beside(
    project: Project, needs: str = "six", day: str | None = "2026-02-01T00:00:00Z", **named: str
) -> OtherPackages:
    metadata = f"Name: vllm\nRequires-Dist: {needs}\n".encode()
    return OtherPackages(lambda _: project, lambda: metadata, day, named)


@pytest.mark.parametrize(
    ("files", "needs", "version"),
    [
        ((release("1"), release("2")), "six", "2"),
        ((release("1"), release("2"), release("3rc1")), "six", "2"),
        ((release("3rc1"), release("3rc2")), "six", "3rc2"),
        ((release("1"), release("2")), "six<2", "1"),
        ((release("1"), release("2", "2026-02-02")), "six", "1"),
        ((release("1"), release("2", "2026-02-01")), "six", "2"),
        ((release("1"), release("2", yanked="x")), "six", "1"),
        ((release("1"), release("2", requires_python=">=3.99")), "six", "1"),
        ((release("1"), release("2", requires_python="odd")), "six", "1"),
        ((release("1"), release("2", "2026-02-02")), "six==2", "2"),
        ((release("1", None),), "six==1", "1"),
    ],
)
def test_a_package_is_the_newest_that_was_there_on_the_day(
    files: tuple[ReleaseFile, ...], needs: str, version: str
) -> None:
    package = beside(Project(*files), needs).package("Six")
    assert package is not None
    assert (package.name, package.version) == ("six", version)
    assert package.archive.read("six/a.py") == version.encode()


def test_a_version_that_is_named_goes_before_what_vllm_says() -> None:
    package = beside(Project(release("1"), release("2", None)), "six<2", SIX="2").package("six")
    assert package is not None
    assert package.version == "2"
    assert beside(Project(), "other").package("six") is None


@pytest.mark.parametrize(
    ("project", "needs", "day", "why"),
    [
        (Project(release("1")), "six>1", "2026-02-01T00:00:00Z", "six: no release that was available on 2026-02-01T00:00:00Z is in >1"),
        (Project(release("1")), "six==2", "2026-02-01T00:00:00Z", "six: no release is in ==2"),
        (Project(release("1", None)), "six", "2026-02-01T00:00:00Z", "the version of six at the time of this vLLM is unknown, because the index states no upload dates"),
        (Project(release("1")), "six==1.*", None, "six: no release"),
    ],
)  # fmt: skip
def test_a_package_of_which_no_version_is_known(
    project: Project, needs: str, day: str | None, why: str
) -> None:
    if day is None:
        why = "the version of six at the time of this vLLM is unknown, because the index states no upload dates"
    with pytest.raises(TreeError) as caught:
        beside(project, needs, day).package("six")
    assert (caught.value.message, caught.value.hint) == (why, "--with six==VERSION")


def test_a_path_is_of_the_package_that_it_begins_with() -> None:
    others = beside(Project(release("1")))
    wheel = tree_of(make_wheel(bulk={}), others=others)
    assert wheel.read("six/a.py") == b"1"
    assert wheel.owner("six/a.py") == ("six", "1")
    assert wheel.owner("vllm/none.py") is None
    assert wheel.package("six") == "1"
    assert list(wheel.paths("six")) == ["six/a.py"]
    assert [wheel.read(path) for path in ("none/a.py", "a-b/c", "vllm/none.py")] == [None] * 3
    twin = wheel.apart()
    assert twin.read("six/a.py") == b"1"
    assert twin.others is not others
    assert tree_of(make_wheel(bulk={})).package("six") is None
    odd = beside(Project(release("1"), package="inside"))
    assert odd.holding("inside/x.py") is None
    assert odd.package("six") is not None
    assert odd.holding("inside/x.py") is odd.package("six")


def test_the_distributions_that_mods_change() -> None:
    patch = making.diff_of("vllm/a.py", "A = 1\n", "A = 2\n")
    plain = making.mod(making.variant(patch))
    assert other_packages.changed_distributions([plain]) == set()
    outside = making.mod(making.variant(patch, package="Big_One"), outside=("six/a.py", "mod.py"))
    names = other_packages.changed_distributions([plain, outside])
    assert names >= {"big-one", "six", "six-python", "mod", "mod-python"}
    assert other_packages.check_versions({"SIX": "1"}, [outside]) == {"six": "1"}
    with pytest.raises(UsageError) as caught:
        other_packages.check_versions({"other": "1"}, [plain, outside])
    assert caught.value.message == "--with other==1: none of mod, mod changes that package"
    assert caught.value.hint == "the mods change Big_One beside vLLM"
    with pytest.raises(UsageError) as caught:
        other_packages.check_versions({"other": "1"}, [plain])
    assert caught.value.hint == "run without --with: the mods change nothing beside vLLM"
    tops = making.mod(making.variant(patch), outside=("six/a.py", "b/c.py"))
    with pytest.raises(UsageError) as caught:
        other_packages.check_versions({"other": "1"}, [tops])
    assert caught.value.hint == "the mods change b, six beside vLLM"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a", "expected one version"),
        ("a==1.*", "expected one version"),
        ("a==1,==2", "expected one version"),
        ("a>=5", "expected one version"),
        ("==1", None),
        ("a b==1", None),
    ],
)
def test_a_version_that_is_none_is_refused(text: str, why: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        other_packages.parse_versions((text,))
    assert caught.value.message.startswith(f"--with {text}: {why or ''}")
    assert caught.value.hint == "--with NAME==VERSION"


def test_versions_are_read_by_name() -> None:
    assert other_packages.parse_versions((" a == 1 ", "b==2")) == {"a": "1", "b": "2"}


def test_where_a_file_lies_is_not_kept_open(tmp_path: Path) -> None:
    place = tmp_path / "x.tar.gz"
    place.write_bytes(make_sdist())
    with place.open("rb") as file:
        archive = open_archive("sdist", file, "x")
        assert file.closed
    archive.load(())
    assert archive.read("vllm/__init__.py") == b""
