"""Names inside a tree, and what names and metadata say of a version; where in an image a file may lie."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode

import pytest

from vllm_mods.base.errors import TreeError
from vllm_mods.formats import image_paths, platforms, tree_names


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/a", "is absolute"),
        ("", "points outside the tree"),
        ("a/../b", "points outside the tree"),
        ("a\0b", "points outside the tree"),
        ("a//b", "is not a plain relative path"),
        ("./a", "is not a plain relative path"),
        ("/..", "is absolute"),
    ],
)
def test_a_path_that_is_no_file_of_a_tree_is_refused_with_the_reason(path: str, why: str) -> None:
    assert tree_names.split("vllm/a.py", "spec") == ["vllm", "a.py"]
    with pytest.raises(TreeError) as caught:
        tree_names.split(path, "spec")
    assert caught.value.message == f"spec: refusing to read {path!r}: the path {why}"
    assert caught.value.hint == (
        "paths in patches start at the site root, e.g. vllm/config/model.py"
    )


@pytest.mark.parametrize(
    ("path", "is_plain"), [("a/b", True), ("a\\b", False), ("../a", False), ("/a", False)]
)
def test_a_name_of_an_archive_is_plain(path: str, *, is_plain: bool) -> None:
    assert tree_names.is_plain(path) is is_plain


@pytest.mark.parametrize(
    ("path", "is_reserved"),
    [
        (".vllm-mods/receipt.json", True),
        ("a/.VLLM-Mods", True),
        ("a\\.vllm-mods\\b", True),
        ("a/.x.py.vllm-mods17", True),
        ("a/.x.py.vllm-mods17/b", True),
        (".vllm\u200b-mods/x", True),  # marks that do not show
        ("\uff0evllm-mods/x", True),  # another form
        (".vllm\u0301-mods/x", True),
        ("a/vllm-mods", False),
        ("a/.x.py.vllm-mods", False),
        ("a/x.py.vllm-mods17", False),
        ("äöü", False),
    ],
)
def test_a_name_that_the_tool_keeps_for_itself(path: str, *, is_reserved: bool) -> None:
    assert tree_names.is_reserved(path) is is_reserved


FOLDERS = ("vllm-0.19.1.dist-info", "Flash_Attn-2.dist-info", "flash.attn-3.dist-info", "vllm")


def test_a_distribution_is_told_by_its_folder() -> None:
    assert tree_names.dist_info("vllm-0.19.1+cu1.dist-info") == ("vllm", "0.19.1+cu1")
    for folder in (
        "vllm",
        "vllm-x.dist-info",
        "vllm-1.dist-info/x",
        "vllm-1-2.dist-info",
        "x-1\ny.dist-info",
    ):
        assert tree_names.dist_info(folder) is None
    assert tree_names.dist_infos(FOLDERS) == {
        "vllm-0.19.1.dist-info": ("vllm", "0.19.1"),
        "Flash_Attn-2.dist-info": ("Flash_Attn", "2"),
        "flash.attn-3.dist-info": ("flash.attn", "3"),
    }
    assert tree_names.version_of(FOLDERS, "VLLM") == "0.19.1"
    assert tree_names.version_of(FOLDERS[:2], "flash-attn") == "2"
    assert tree_names.version_of(FOLDERS, "flash-attn") is None  # which one?
    assert tree_names.version_of(FOLDERS, "torch") is None


def test_the_owner_of_a_path_comes_first() -> None:
    folders = ["b-1.dist-info", "a-1.dist-info", "Flash_Attn-2.dist-info"]
    assert tree_names.owners_first(folders, "flash-attn/x.py") == [
        "Flash_Attn-2.dist-info",
        "a-1.dist-info",
        "b-1.dist-info",
    ]


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b"__version__ = version = '0.19.1'\n", "0.19.1"),
        (b'# x\n__version__: str = "0.20.0rc1"\n', "0.20.0rc1"),
        (b"__version__ = \"0.20'\n", None),
        (b"  __version__ = '1'\n", None),
        (b"", None),
        (None, None),
    ],
)
def test_the_version_that_a_module_assigns(data: bytes | None, version: str | None) -> None:
    assert tree_names.module_version(data) == version


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b"Name: vllm\r\nVersion: 0.19.1\r\n\r\nVersion: 2\r\n", "0.19.1"),
        (b"Name: vllm\nVersion:\t0.19.1 \n", "0.19.1"),
        (b"Name: vllm\n\nVersion: 2\n", None),
        (None, None),
    ],
)
def test_the_version_that_metadata_state(data: bytes | None, version: str | None) -> None:
    assert tree_names.pkg_info_version(data) == version


def stated(data: bytes, algorithm: str = "sha256", padding: str = "") -> str:
    digest = urlsafe_b64encode(hashlib.new(algorithm, data).digest()).decode().rstrip("=")
    return f"{algorithm}={digest}{padding}"


@pytest.mark.parametrize(
    ("recorded", "agrees"),
    [
        (stated(b"x"), True),
        (stated(b"x", padding="="), True),
        (stated(b"x", "sha384"), True),
        (stated(b"x", "sha512"), True),
        (stated(b"y"), False),
        (stated(b"x", "md5"), None),
        ("sha256=", None),
        ("", None),
    ],
)
def test_a_file_is_compared_with_its_row(recorded: str, *, agrees: bool | None) -> None:
    rows = f"b.py,,\na.py,{recorded},1\n".encode()
    assert tree_names.recorded_hash(rows, "a.py") == recorded
    assert tree_names.hash_agrees(recorded, b"x") is agrees
    assert tree_names.is_recorded(rows, "a.py", b"x") is agrees
    assert tree_names.is_recorded(rows, "c.py", b"x") is None
    assert tree_names.recorded_hash(rows, "c.py") is None


def test_a_recorded_sha256_in_hexadecimal() -> None:
    assert tree_names.sha256_of(stated(b"x")) == hashlib.sha256(b"x").hexdigest()
    for recorded in (stated(b"x", "sha512"), "sha256=AAAA", "sha256=A", "", "sha512=" + "A" * 43):
        assert tree_names.sha256_of(recorded) is None


@pytest.mark.parametrize(
    ("tags", "platform"),
    [
        ("Tag: cp38-abi3-manylinux_2_31_x86_64\n", "linux/amd64"),
        ("Tag: cp38-abi3-manylinux2014_aarch64\r\n", "linux/arm64"),
        ("Tag: cp38-abi3-linux_x86_64\nTag: cp38-abi3-manylinux1_x86_64\n", "linux/amd64"),
        ("Tag: cp38-abi3-linux_x86_64\nTag: cp38-abi3-linux_aarch64\n", None),
        ("Tag: py3-none-any\n", None),
        ("Tag: cp38-abi3-macosx_11_x86_64\n", None),
    ],
)
def test_the_platform_of_a_wheel(tags: str, platform: str | None) -> None:
    assert platforms.of_wheel(f"Wheel-Version: 1.0\n{tags}".encode()) == platform
    assert platforms.of_wheel(None) is None


def test_the_platform_of_machine_code() -> None:
    assert platforms.NAMES == ("linux/amd64", "linux/arm64")
    for machine, platform in ((0x3E, "linux/amd64"), (0xB7, "linux/arm64"), (0x28, None)):
        code = b"\x7fELF\x02\x01".ljust(18, b"\0") + machine.to_bytes(2, "little") + b"rest"
        assert platforms.of_code(code) == platform
        assert platforms.of_code(b"MZ" + code[2:]) is None
        assert platforms.of_code(code[:4] + b"\x01\x01" + code[6:]) is None  # of 32 bits


PLAIN = "is not the absolute path of a file in a folder"
LAYER = "marks a deleted file in a layer, and a mod can only add files"
ENGINE = "is replaced by the engine when a container starts"
PYTHON = "is one of Python's own files: use patches, an overlay or `outside` for packages"
RIGHTS = "controls permissions or what runs at startup"
EVERY = "is a system file that every program needs"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/opt/tool.sh", None),
        ("/etc/nccl.conf", None),
        ("/usr/lib/libfast.so", None),
        ("opt/tool", PLAIN),
        ("/tool", PLAIN),
        ("/opt/../x", PLAIN),
        ("/opt//x", PLAIN),
        ("/opt/a\\b", "is a path that systems read differently"),
        ("/opt/a\nb", "is a path that systems read differently"),
        ("/opt/.vllm-mods/x", "is reserved for vllm-mods"),
        ("/opt/.wh.x", LAYER),
        ("/opt/.wh.x/y", LAYER),
        ("/proc/x", ENGINE),
        ("/etc/hosts", ENGINE),
        ("/usr/lib/python3.12/x.py", PYTHON),
        ("/opt/site-packages/x", PYTHON),
        ("/opt/sitecustomize.py", PYTHON),
        ("/opt/x.pth", PYTHON),
        ("/etc/passwd", RIGHTS),
        ("/etc/sudoers.d/x", RIGHTS),
        ("/etc/ld.so.conf.d/x", RIGHTS),
        ("/etc/rc.local", RIGHTS),
        ("/root/.ssh/x", RIGHTS),
        ("/home/me/.bashrc", RIGHTS),
        ("/usr/lib/systemd/x", RIGHTS),
        ("/usr/lib/libc.so.6", EVERY),
        ("/usr/lib/ld-linux.so.2", EVERY),
        ("/usr/lib/libpython3.12.so.1", EVERY),
    ],
)
def test_where_in_an_image_a_mod_may_put_a_file(path: str, why: str | None) -> None:
    assert image_paths.objection(path) == why
