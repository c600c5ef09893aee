"""Wheels that mods need: which are chosen for an image, what pip is asked, what a wheel may hold."""

from __future__ import annotations

import io
import stat
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest
from lowering import lower

from vllm_mods.base.cache import Cache
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, TreeError
from vllm_mods.building import wheels
from vllm_mods.building.wheels import WheelTarget
from vllm_mods.formats.pairing_lock import LockedWheel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TARGET = WheelTarget("3.12", "x86_64", {"torch": "2.9.0"})
RECORD = "x-1.dist-info/RECORD"


def packed(files: Mapping[str, bytes] | Sequence[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items() if hasattr(files, "items") else files:
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data)
    return out.getvalue()


def wheel(name: str, *needs: str) -> bytes:
    lines = "".join(f"Requires-Dist: {need}\n" for need in needs)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{lines}\nText\n"
    return packed({f"{name}-1.dist-info/METADATA": metadata.encode(), RECORD: b""})


class Pip:
    """A Python whose pip gives the wheels of ``index``, and notes what it was told."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.index = folder, folder / "index"
        self.index.mkdir(parents=True)
        program = folder / "python"
        program.write_text(
            f'#!/bin/sh\necho "$@" > {folder}/command\ncat > {folder}/asked\n'
            f"[ -e {folder}/errors ] && {{ cat {folder}/errors >&2; exit 1; }}\n"
            'while [ "$1" != --dest ]; do shift; done\n'
            f"cp {folder}/index/* $2/\n"
        )
        program.chmod(0o755)

    def gives(self, **given: bytes) -> None:
        for name, data in given.items():
            (self.index / f"{name}-1-py3-none-any.whl").write_bytes(data)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pip:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "pip/python"))
    return Pip(tmp_path / "pip")


def test_pip_is_asked_for_the_images_python_and_platform_and_not_for_ours(pip: Pip) -> None:
    pip.gives(x=wheel("x"))
    wheels.resolve(["x>=1", "torch", "x>=1", "y; python_version < '3.11'"], TARGET)
    words = pip.text("command").split()
    place = words.index("--dest")
    options = (
        "-P -m pip download --quiet --no-deps --no-input --disable-pip-version-check "
        "--only-binary=:all: --python-version 3.12 --implementation cp "
        "--abi=cp312 --abi=abi3 --abi=none"
    )
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(35, 16, -1)]
    assert words[:place] == [
        *options.split(),
        *platforms,
        "--platform=linux_x86_64",
        "--platform=any",
    ]
    assert words[place + 2 :] == ["-r", "/dev/stdin"]
    assert pip.text("asked") == "x>=1\n"


def test_what_is_chosen_is_locked_by_name_and_kept(pip: Pip, tmp_path: Path) -> None:
    data = {"y": wheel("y", "x", "torch>=2"), "x": wheel("x")}
    pip.gives(**data)
    chosen = wheels.resolve(["y", "x"], TARGET)
    names = {name: f"{name}-1-py3-none-any.whl" for name in data}
    assert chosen == tuple(
        LockedWheel(name, "1", names[name], sha256(data[name]) or "") for name in ("x", "y")
    )
    assert [Cache(str(tmp_path / "cache")).get(one.sha256) for one in chosen] == [
        data["x"],
        data["y"],
    ]
    (pip.folder / "errors").touch()
    assert wheels.fetch(chosen[0], TARGET) == data["x"]


def test_a_wheel_that_needs_what_nobody_brings_is_refused(pip: Pip) -> None:
    pip.gives(x=wheel("x", "torch", "numpy>1", "six", "odd; extra == 'o'"))
    with pytest.raises(Refused) as caught:
        wheels.resolve(["x"], TARGET)
    names = "x-1-py3-none-any.whl needs numpy>1, six, which neither the base nor the mod provides"
    assert caught.value.message == f"{names}; nothing was built"
    hint = "use a base that has them, or add them to `python` in the mod's mod.toml"
    assert caught.value.hint == hint


def test_a_wheel_that_needs_another_torch_is_refused(pip: Pip) -> None:
    pip.gives(x=wheel("x", "torch>3"))
    with pytest.raises(Refused) as caught:
        wheels.resolve(["x"], TARGET)
    assert caught.value.message == (
        "the mod needs torch>3, but the base has torch 2.9.0; nothing was built"
    )
    hint = "use a base with torch>3: `RUN pip install 'torch>3'` in its Dockerfile"
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("errors", "why"),
    [
        ("WARNING: a\nERROR: first\nERROR: No matching x\n", "No matching x"),
        (f"{'y' * 600}no module pip\n", f"{'y' * 487}no module pip"),
    ],
)
def test_a_pip_that_finds_nothing(pip: Pip, errors: str, why: str) -> None:
    (pip.folder / "errors").write_text(errors)
    with pytest.raises(TreeError) as caught:
        wheels.resolve(["x>=1", "y"], TARGET)
    head = "pip finds no wheel of x>=1, y for Python 3.12 on x86_64: "
    assert caught.value.message == head + why
    assert caught.value.hint == "pip config list  # vllm-mods uses its index-url, proxy and cert"


LOCKED = LockedWheel("x", "1", "x-1-py3-none-any.whl", sha256(wheel("x")) or "")


def test_a_locked_wheel_is_fetched_by_its_hash(pip: Pip) -> None:
    pip.gives(x=wheel("x"))
    assert wheels.fetch(LOCKED, TARGET) == wheel("x")
    assert pip.text("asked") == f"x==1 --hash=sha256:{LOCKED.sha256}\n"


def test_another_wheel_than_the_locked_one_is_refused(pip: Pip) -> None:
    pip.gives(y=wheel("y"), z=wheel("z"))
    with pytest.raises(TreeError) as caught:
        wheels.fetch(LOCKED, TARGET)
    others = "y-1-py3-none-any.whl, z-1-py3-none-any.whl"
    assert (
        caught.value.message == f"{LOCKED.filename} is no longer in the index, which has {others}"
    )
    assert caught.value.hint == "vllm-mods lock PAIRING --check"
    pip.gives(x=wheel("x", "y"))
    with pytest.raises(TreeError) as caught:
        wheels.fetch(LOCKED, TARGET)
    other = sha256(wheel("x", "y"))
    why = f"its sha256 is {other}, but the lock says {LOCKED.sha256}"
    assert caught.value.message == f"{LOCKED.filename}: {why}"
    assert caught.value.hint == "pip config list  # vllm-mods uses its index-url, proxy and cert"


@pytest.mark.parametrize(
    ("site_root", "platform", "expected"),
    [
        ("usr/lib/python3.12/site-packages", "linux/amd64", ("3.12", "x86_64")),
        ("opt/python3.10", "linux/arm64/v8", ("3.10", "aarch64")),
        ("lib/python3.9/x", "linux/ppc64le", ("3.9", "ppc64le")),
        ("lib/python3.9/x", "linux/s390x", ("3.9", "s390x")),
    ],
)
def test_the_python_that_wheels_are_for(
    site_root: str, platform: str, expected: tuple[str, str]
) -> None:
    wanted = wheels.target(site_root, platform, ["A_b-1.0.dist-info", "other"])
    assert wanted == (*expected, {"a-b": "1.0"})


@pytest.mark.parametrize(
    ("site_root", "platform"),
    [("usr/lib/python3/dist-packages", "linux/amd64"), ("lib/python3.12/x", "linux/riscv64")],
)
def test_an_image_of_which_nobody_knows_what_fits(site_root: str, platform: str) -> None:
    with pytest.raises(Refused) as caught:
        wheels.target(site_root, platform, [])
    why = "a mod needs wheels, but the Python or the platform for them is unknown"
    assert caught.value.message == f"/{site_root} on {platform}: {why}"
    hint = "install the mod's requirements in the base, then lock the pairing again"
    assert caught.value.hint == hint


def test_a_requirement_that_is_none() -> None:
    with pytest.raises(Refused, match=r"^'x>>1' is not a requirement \(PEP 508\): "):
        wheels.resolve(["x>>1"], TARGET)


def test_a_pre_release_that_is_installed_counts() -> None:
    wanted = TARGET._replace(installed={"torch": "3.0rc1"})
    assert wheels.resolve(["Torch>2"], wanted) == ()


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("x.py", "x.py"),
        ("x/y.py", "x/y.py"),
        ("x-1.data/purelib/a/b.py", "a/b.py"),
        ("x-1.data/platlib/c.so", "c.so"),
    ],
)
def test_where_a_file_of_a_wheel_goes(name: str, place: str) -> None:
    entries = wheels.unpack(packed({name: b"1", RECORD: b""}), LOCKED, "site", epoch=7)
    assert {entry.path for entry in entries} == {
        f"site/{place}",
        f"site/{RECORD}",
        "site/x-1.dist-info/INSTALLER",
    }


@pytest.mark.parametrize("name", ["x-1.data/scripts/a", "x-1.data/headers/a", "x-1.data/purelib"])  # fmt: skip
def test_a_file_of_a_wheel_that_goes_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(Refused) as caught:
        wheels.unpack(packed({name: b"1", RECORD: b""}), LOCKED, "site", epoch=7)
    why = f"contains {name}, which belongs outside site-packages; vllm-mods does not install such a wheel"
    assert caught.value.message == f"{LOCKED.filename} {why}"
    assert (
        caught.value.hint
        == "use a base image that has the package: `RUN pip install x==1` in its Dockerfile"
    )


@pytest.mark.parametrize(
    ("files", "count"), [([("x.py", b"")], 0), ([(RECORD, b""), ("y-1.dist-info/RECORD", b"")], 2)]
)
def test_a_wheel_has_one_record(files: list[tuple[str, bytes]], count: int) -> None:
    with pytest.raises(Refused) as caught:
        wheels.unpack(packed(files), LOCKED, "site", epoch=7)
    message = f"{LOCKED.filename} has {count} RECORD files; a wheel has exactly one"
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"no zip", "corrupt or unreadable: File is not a zip file"),
        (packed([("../a", b""), (RECORD, b"")]), "'../a' is not a plain relative path"),
    ],
)
def test_a_wheel_that_is_none(data: bytes, why: str) -> None:
    with pytest.raises(TreeError) as caught:
        wheels.unpack(data, LOCKED, "site", epoch=7)
    assert caught.value.message == f"{LOCKED.filename}: {why}"
    assert caught.value.hint


def test_two_files_of_a_wheel_for_one_place_are_refused() -> None:
    twice = packed([("x-1.data/purelib/a", b""), ("a", b""), (RECORD, b"")])
    with pytest.raises(Refused, match="has two files for a; nothing was built"):
        wheels.unpack(twice, LOCKED, "site", epoch=7)


def test_a_wheel_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "WHEEL", 10)
    within = packed({"a": b"12345", "b": b"12345", RECORD: b""})
    assert len(wheels.unpack(within, LOCKED, "site", epoch=7)) == 4
    with pytest.raises(TreeError, match="unpacks to more than 10 bytes"):
        wheels.unpack(packed({"a": b"12345", "b": b"123456", RECORD: b""}), LOCKED, "site", epoch=7)
