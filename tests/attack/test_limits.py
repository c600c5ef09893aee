"""Where reading ends: bombs, lies, depth and length. Each is refused in words, and soon."""

from __future__ import annotations

import ast
import contextlib
import gzip
import io
import random
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from lowering import lower
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant

from vllm_mods.base import limits, line_diff, untrusted
from vllm_mods.base.errors import DiffError, ManifestError, Refused, TreeError
from vllm_mods.base.model import Verdict
from vllm_mods.building import wheels
from vllm_mods.fit.summary import summarize
from vllm_mods.formats import (
    concrete_syntax,
    diff,
    manifest,
    mod_lock,
    pairing,
    receipt,
    syntax_tree,
    tars,
    zips,
)
from vllm_mods.formats.concrete_syntax import UnparsableError
from vllm_mods.formats.pairing_lock import LockedWheel
from vllm_mods.images import layer, oci
from vllm_mods.placing import locate, scopes
from vllm_mods.placing.answers import Lost
from vllm_mods.placing.target import Target
from vllm_mods.planning import planner
from vllm_mods.porting import textual
from vllm_mods.recipes import yaml_source
from vllm_mods.scripts import command_line
from vllm_mods.trees.archive import TarArchive, ZipArchive

MANY = 100_000
# What nests in Python: how to write it n times.
NESTED = {
    "brackets": lambda n: "(" * n + ")" * n,
    "brackets that stay open": lambda n: "[" * n,
    "signs": lambda n: "-" * n + "x",
    "sums": lambda n: "x" + "+x" * n,
    "attributes": lambda n: "x" + ".a" * n,
    "calls": lambda n: "x" + "()" * n,
    "not": lambda n: "not " * n + "x",
    "lambda": lambda n: "lambda:" * n + "x",
    "conditions": lambda n: "x if y else " * n + "x",
    "powers": lambda n: "x**" * n + "x",
    "and": lambda n: "x" + " and x" * n,
    "elif": lambda n: "if x:\n pass\n" + "elif y:\n pass\n" * n,
    "dotted imports": lambda n: "import a" + ".a" * n,
    "f-strings": lambda n: "f'{" * n,
}


# --- Python ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("depth", [1000, 20_000])
def test_python_that_is_nested_deeply_has_no_scopes_and_kills_nobody(kind: str, depth: int) -> None:
    data = (NESTED[kind](depth) + "\n").encode()
    with contextlib.suppress(UnparsableError):  # brackets alone leave nothing behind
        scopes.read_scopes(data)
    summarize(data)  # the standard library's own limit, as no summary
    tree = MemoryTree({"vllm/__init__.py": b"", "vllm/a.py": data})
    before = data.decode()
    patch = diff_of("vllm/a.py", before, before + "x = 1\n", context=1)
    (one,) = planner.plan([mod(variant(patch))], tree).mods
    # What the patch touches is not deep, and what stands there is this Python's to read.
    assert not one.verdict.writes or syntax_tree.module(data) is not None


@pytest.mark.parametrize("before", [b"", b"\n", b"# coding: utf-8\n"])
def test_a_long_line_is_asked_for_its_coding_once(before: bytes) -> None:
    began = time.process_time()
    assert len(syntax_tree.decoded(before + b"x" * 60_000)) == len(before) + 60_000
    assert time.process_time() - began < 1


@pytest.mark.slow
def test_what_this_python_cannot_read_is_tried_elsewhere() -> None:
    with pytest.raises(UnparsableError, match="LibCST crashes on it:"):
        scopes.read_scopes(b"(" * 20_000 + b"\n")
    with pytest.raises(UnparsableError, match="line 1"):
        scopes.read_scopes(b"print 'x'\n")
    with pytest.raises(UnparsableError, match="encoding"):
        scopes.read_scopes(b"# coding: nonsense\nx = 1\n")


def test_invalid_escapes_in_a_file_are_no_news() -> None:
    assert scopes.read_scopes(b'def f():\n    return "\\d"\n').at(2) == "f"


@pytest.mark.slow
def test_a_trial_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concrete_syntax, "_TRIAL", "slow_module")
    lower(monkeypatch, "TRIAL_SECONDS", 0.2)
    with pytest.raises(UnparsableError, match=r"within 0.2 seconds"):
        scopes.read_scopes(b"print 'x'\n" + b"(" * 900)


def test_files_of_vllm_are_far_from_the_limit() -> None:
    nested = "\n".join("    " * n + f"if x{n}:" for n in range(30)) + "\n" + "    " * 30 + "pass"
    syntax_tree.check_depth(ast.parse(nested))
    deep = b"def f():\n    return " + b"(" * 60 + b"1" + b")" * 60 + b"\n"
    assert scopes.read_scopes(deep).scopes


# --- zips -----------------------------------------------------------------------------


def made(*files: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as whole:
        for name, data in files:
            whole.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def read(data: bytes, name: str = "vllm/__init__.py") -> bytes | None:
    return ZipArchive(io.BytesIO(data), label="x.whl").read(name)


def test_a_file_that_unpacks_to_more_than_it_says() -> None:
    data = made(("vllm/__init__.py", b"0" * 5_000_000))
    lying = data.replace(struct.pack("<I", 5_000_000), struct.pack("<I", 10))
    with pytest.raises(TreeError, match=r"does not unpack to the 10 bytes stated|Bad CRC-32"):
        read(lying)


def test_a_file_that_says_that_it_unpacks_to_too_much() -> None:
    data = made(("vllm/__init__.py", b"0" * 5_000_000))
    with zips.opened(io.BytesIO(data)) as whole, pytest.raises(ValueError, match="the limit is"):
        zips.content(whole, zips.files(whole)[0], most=4_999_999)
    with pytest.raises(TreeError, match="unpacks to 4,294,967,294 bytes"):
        read(data.replace(struct.pack("<I", 5_000_000), struct.pack("<I", 0xFFFFFFFE)))


def test_files_that_share_their_bytes() -> None:
    data = made(("vllm/__init__.py", b"x"), ("vllm/a.py", b"y"))
    second = data.index(b"PK\3\4", 1)
    at = data.rindex(b"PK\1\2") + 42
    assert data[at : at + 4] == struct.pack("<I", second)
    both_first = data[:at] + struct.pack("<I", 0) + data[at + 4 :]
    with pytest.raises(TreeError, match="overlaps"):
        read(both_first)


def test_a_directory_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "ZIP_DIRECTORY", 100)
    for comment in (b"", b"c" * 1000):
        stream = io.BytesIO(made(*((f"{n}.py", b"") for n in range(9))))
        with zipfile.ZipFile(stream, "a") as whole:
            whole.comment = comment
        with pytest.raises(TreeError, match="its directory takes"):
            read(stream.getvalue())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"vllm/a.py", b"\0llm/a.py"),  # an entry without a name
        (b"vllm/a.py", b"../../a.p"),
        (b"vllm/a.py", b"/etc/a.py"),
        (b"vllm/a.py", b"vllm\\a.py"),
        (b"PK\3\4", b"PK\3\5"),
        (b"PK\1\2", b"PK\1\3"),
    ],
)
def test_a_broken_directory_is_one_kind_of_error(before: bytes, after: bytes) -> None:
    with pytest.raises(TreeError):
        read(made(("vllm/a.py", b"x"), ("vllm/__init__.py", b"")).replace(before, after))


WHEEL = LockedWheel("x", "1", "x-1-py3-none-any.whl", "0" * 64)
SITE = "usr/lib/python3.12/site-packages"
ROW = ("x-1.dist-info/RECORD", b"")


@pytest.mark.parametrize(
    "name", ["../x.py", "/etc/x.py", "x-1.data/purelib/../../x.py", "x-1.data/scripts/x", "a\\b.py"]
)
def test_a_wheel_puts_nothing_outside_of_the_site_root(name: str) -> None:
    why = "belongs outside site-packages|is not a plain relative path"
    with pytest.raises((Refused, TreeError), match=why):
        wheels.unpack(made((name, b"x"), ROW), WHEEL, SITE, epoch=0)


def test_a_wheel_that_is_broken_too_large_or_says_things_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = made(("x.py", b"x" * 100), ROW)
    for data in (b"no zip", whole[:-30], whole.replace(b"PK\1\2", b"PK\1\3")):
        with pytest.raises(TreeError, match="corrupt or unreadable:"):
            wheels.unpack(data, WHEEL, SITE, epoch=0)
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = made(("x.py", b"1"), ("x.py", b"2"), ROW)
    with pytest.raises(TreeError, match="appears twice"):
        wheels.unpack(twice, WHEEL, SITE, epoch=0)
    lower(monkeypatch, "WHEEL", 99)
    with pytest.raises(TreeError, match="it unpacks to more than 99 bytes"):
        wheels.unpack(whole, WHEEL, SITE, epoch=0)


# --- tars -----------------------------------------------------------------------------


def header(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info.tobuf(tarfile.GNU_FORMAT)


def sdist(tar: bytes) -> TarArchive:
    return TarArchive(io.BytesIO(gzip.compress(tar + bytes(1024), 1)), label="x.tar.gz")


def negative(name: str) -> bytes:
    """Make a header with a negative size, as GNU tar would write one (CVE-2025-8194)."""
    raw = bytearray(header(name))
    raw[124:136] = b"\xff" * 8 + (-1024 & 0xFFFFFFFF).to_bytes(4, "big")
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


@pytest.mark.parametrize(
    ("tar", "why"),
    [
        (header("vllm-1/../../x"), "not a plain relative path"),
        (header("/vllm-1/x"), "one folder at its top|not a plain relative path"),
        (header("vllm-1/x") + header("vllm-1/x"), "in the archive"),
        (header("vllm-1/x") + negative("vllm-1/y"), "has -1024 bytes"),
        (header("vllm-1/x") + header("p", tarfile.XHDTYPE, 1 << 40), "the limit is"),
        (header("vllm-1/x") + header("p", tarfile.GNUTYPE_LONGNAME, 1 << 33), "the limit is"),
        (header("vllm-1/x", size=1 << 40), "corrupt|cut short|unexpected end"),
    ],
)
def test_tars_that_escape_or_lie(tar: bytes, why: str) -> None:
    with pytest.raises(TreeError, match=why):
        sdist(tar).read("x")


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]
)
def test_links_and_devices_are_not_read(kind: bytes) -> None:
    with pytest.raises(TreeError, match=r"is a link|is not a regular file"):
        sdist(header("vllm-1/x", kind, link="/etc/passwd")).read("x")


def test_a_sdist_that_unpacks_to_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "SDIST", 1 << 20)
    with pytest.raises(TreeError, match="it unpacks to more than 1 MiB"):
        sdist(bytes(4 << 20))


def test_a_tar_with_too_many_members(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "TAR_MEMBERS", 10)
    file = io.BytesIO(header("a") * 20 + bytes(1024))
    with pytest.raises(tarfile.ReadError, match="more than 10 members"):
        list(tars.members(file))


def test_a_layer_that_is_broken_behind_its_headers() -> None:
    content = random.Random(0).randbytes(60_000)
    packed = gzip.compress(header("usr/vllm/a.py", size=60_000) + content)
    with pytest.raises(TreeError, match="broken or cut short"):
        layer.scan(io.BytesIO(packed[:30_000]), "layer")


# --- documents ------------------------------------------------------------------------


def test_json_that_is_nested_deeply_or_holds_half_a_character() -> None:
    for data in (
        b"[" * MANY,
        b'{"a":' * MANY,
        b'"\\ud800"',
        b'{"\\udfff": 1}',
        b"1" * 5000,
        b"\xff",
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011  (what is said is json's own)
            untrusted.json_of(data)
        assert not isinstance(caught.value, RecursionError)
    assert untrusted.json_of(b'"\\ud83d\\ude00 \\udcff"') == "\U0001f600 \udcff"
    assert untrusted.json_of(b"\xef\xbb\xbf[1]") == [1]


@pytest.mark.parametrize(
    "text", ["a = " + "[" * MANY, "a = " + "{a = " * 9000, "a = " + "1" * 5000]
)
def test_a_manifest_that_is_nested_deeply(text: str) -> None:
    with pytest.raises(ManifestError, match=r"not a manifest: it is nested too deeply|not TOML"):
        manifest.from_toml(text.encode(), "mod.toml")


def test_locks_and_receipts_that_are_nested_deeply() -> None:
    for parse, kind in ((mod_lock.parse, ManifestError), (receipt.parse, Refused)):
        with pytest.raises(kind, match="nested too deeply"):
            parse(b"[" * MANY, "x")


def test_patterns_that_cannot_be_compiled() -> None:
    for pattern in ("(" * 5000, "a{1,99999999999}", "("):
        text = f"[evidence]\nlog = '{pattern}'\n"
        with pytest.raises(ManifestError, match=r"evidence\.log: not a regular expression"):
            manifest.from_toml(text.encode(), "mod.toml")


def test_a_path_with_a_zero_in_it() -> None:
    with pytest.raises(ManifestError, match="is not a path"):
        manifest.from_toml(b'[[variant]]\npatches = ["\\u0000"]\n', "mod.toml")


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 5000, 'a: "\\ud800"', "? " * 5000])
def test_yaml_that_is_nested_deeply_or_holds_half_a_character(text: str) -> None:
    with pytest.raises(yaml_source.YamlError):
        yaml_source.load(text)


def test_a_configuration_of_another_shape() -> None:
    for inner in ('"config": []', '"config": {"Env": [1]}', '"config": {"Labels": 1}', '"os": 1'):
        config = f'{{{inner}, "rootfs": {{"diff_ids": []}}}}'
        with pytest.raises(TreeError, match="not follow the OCI specification:"):
            oci.diff_ids(config.encode(), "x")
    raws: tuple[object, ...] = (
        1,
        [],
        {"digest": "sha256:00", "size": float("inf")},
        {"digest": "x", "size": -1},
    )
    for raw in raws:
        with pytest.raises((KeyError, TypeError, ValueError)):
            oci.descriptor(raw)


# --- diffs, texts, scripts ----------------------------------------------------------------


def test_numbers_of_thousands_of_digits_in_a_hunk() -> None:
    text = f"--- a/x\n+++ b/x\n@@ -1,1 +1,{'1' * 5000} @@\n-a\n+b\n"
    with pytest.raises(DiffError, match="header has no line numbers"):
        diff.parse(text.encode(), "x.patch")


@pytest.mark.parametrize("name", ["vllm/a.py", "vllm/a.txt"])
def test_a_text_that_stands_in_a_hundred_thousand_places(name: str) -> None:
    tree = MemoryTree({"vllm/__init__.py": b"", name: b"x = 1\n" * MANY})
    head = f"--- a/{name}\n+++ b/{name}\n"
    for old in ("x = 1", "x = 2"):
        hunk = f"@@ -5,3 +5,4 @@\n x = 1\n {old}\n+y = 1\n x = 1\n"
        (one,) = planner.plan([mod(variant((head + hunk).encode()))], tree).mods
        wanted = Verdict.MISPLACED if old == "x = 1" else Verdict.CONFLICT
        assert one.verdict is wanted


def test_one_line_of_a_million_letters() -> None:
    data = b"x" * 1_000_000
    tree = MemoryTree({"vllm/__init__.py": b"", "vllm/a.txt": data})
    patch = b"--- a/vllm/a.txt\n+++ b/vllm/a.txt\n@@ -1 +1 @@\n-%b\n\\ No\n+y\n" % data
    (one,) = planner.plan([mod(variant(patch))], tree).mods
    assert one.changes[0].after == b"y\n"


def test_lines_without_an_anchor_are_matched_only_while_that_is_quick() -> None:
    before, after = [b"a\n", b"b\n"] * 10_000, [b"b\n", b"a\n", b"a\n"] * 7_000
    pairs = line_diff.matching(before, after)
    assert all(before[i] == after[k] for i, k in pairs)
    assert line_diff.matching([b"a\n"] * 9 + [b"b\n"], [b"b\n"] + [b"a\n"] * 9)


def test_a_text_in_more_places_than_anybody_could_read_of_belongs_to_none() -> None:
    (file,) = diff.parse(b"--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n-b\n+c\n a\n", "x")
    (lost,) = locate.place(file, Target(b"a\nb\n" * 5_000 + b"a\n", None))
    assert isinstance(lost, Lost)
    assert (lost.code, len(lost.lines)) == ("ambiguous", limits.PLACES + 1)


def test_a_quoted_path_as_long_as_a_patch() -> None:
    with pytest.raises(DiffError, match="no closing quote"):
        diff.parse(b'--- "a/' + b"x" * 1_000_000 + b"\n+++ b/x\n", "x")


@pytest.mark.slow
def test_conflict_markers_in_the_texts_themselves() -> None:
    marks = [b"<" * 40 + b"\n", b"=" * 60 + b"\n", b">" * 50 + b"\n", b"|" * 40 + b"\n"]
    base, ours = [*marks, b"a\n"], [*marks, b"b\n"]
    assert textual.merge(base, ours, base) == [tuple(ours)]
    (kept, clash) = textual.merge(base, ours, [*marks, b"c\n"])
    assert kept == tuple(marks)
    assert clash == ((b"b\n",), (b"a\n",), (b"c\n",))


def test_a_command_that_is_too_long() -> None:
    with pytest.raises(command_line.ShellError, match="the limit is"):
        command_line.read("a " * MANY)


# --- answers of servers -----------------------------------------------------------------


def test_digits_of_other_scripts_are_no_numbers() -> None:
    assert [untrusted.number_of(text) for text in ("12", "", "²", "١", "-1", "9" * 30)] == [
        12, None, None, None, None, None,
    ]  # fmt: skip


# --- templates ----------------------------------------------------------------------------


@pytest.mark.slow
def test_templates_are_rendered_in_a_process_of_their_own(tmp_path: Path) -> None:
    code = """
import sys
from vllm_mods.cli import run
code = run(["template", "render", *sys.argv[1:]])
raise SystemExit(code or "jinja2" in sys.modules)
"""
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}!")
    (tmp_path / "r.json").write_text('{"messages": [{"role": "user", "content": "hi"}]}')
    files = [str(tmp_path / name) for name in ("t.jinja", "r.json")]
    done = subprocess.run([sys.executable, "-c", code, *files], check=False, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hi!", b"")


def test_what_is_nested_deeply_in_toml_is_no_manifest() -> None:
    """What is read of it is written down again, in a lock or a pairing, by functions that recurse."""
    with pytest.raises(ManifestError, match="nested too deeply"):
        pairing.parse(b"schema = 1\ndefaults = " + b"[" * 150 + b"]" * 150, "x.toml")
