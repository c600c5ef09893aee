"""mod.toml: every problem at once, each with its key path."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from vllm_mods.base import limits
from vllm_mods.base.errors import EXIT_USAGE, ManifestError
from vllm_mods.base.model import (
    BinaryFile,
    FetchedFile,
    ImageFile,
    Mod,
    OverlayFile,
    PatchFile,
    TemplateFile,
    TextReplacement,
    Variant,
    When,
)
from vllm_mods.formats import manifest, toml_writer

GOOD = """\
schema = 1
name = "my-mod"
version = "1.0.0"
summary = "s"
license = "MIT"
default = true
requires = ["other"]

[upstream]
issues = ["vllm-project/vllm#1"]
status = "merged"

[evidence]
log = 'Loaded \\d+'

[serve]
args = ["--x"]

[hardware]
compute_capability = ["9.0", "12.1"]

[[variant]]
id = "a"
vllm = ">=0.20,<0.22"
patches = ["a/x.patch"]
root = "vllm/deep/"
overlay = [{ source = "o.py", path = "vllm/o.py" }]
python = ["flash-qla>=0.1; python_version > '3.10'"]
allow = [{ code = "fit-call", scope = "A.f", reason = "because" }]
"""


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        manifest.from_toml(text.encode(), "mod.toml")
    assert caught.value.exit_code == EXIT_USAGE
    return caught.value.problems


def test_everything_the_design_names_is_read() -> None:
    read = manifest.from_toml(GOOD.encode(), "mod.toml")
    (variant,) = read.variants
    assert (read.name, read.default, read.requires) == ("my-mod", True, ("other",))
    assert (read.upstream_status, read.evidence) == ("merged", (("log", r"Loaded \d+"),))
    assert (variant.patches[0].root, variant.overlay[0].path) == ("vllm/deep", "vllm/o.py")
    assert variant.allow[0].reason == "because"


def test_all_problems_are_reported_at_once_with_their_key_path() -> None:
    found = problems(
        """\
schema = 2
name = "My Mod"
versoin = "1.0.0"
summary = 3
license = ""
requires = ["ok", 4]
[evidence]
log = "("
[upstream]
status = "maybe"
[hardware]
compute_capability = [9.0]
[[variant]]
id = "a"
vllm = "0.20"
patches = ["../x.patch", "/abs.patch"]
overlay = [{ source = "o.py", path = "../etc/passwd", mode = 3 }]
[[variant]]
id = "a"
vllm = ">=1"
"""
    )
    text = "\n".join(found)
    for piece in (
        "schema: this version",
        "name: expected lower case",
        "version: is required",
        "versoin: unknown key; did you mean 'version'?",
        "summary: expected a string, found an integer",
        "license: is empty",
        "requires[1]: expected a string, found an integer",
        "evidence.log: not a regular expression",
        "upstream.status: expected one of",
        "hardware.compute_capability[0]: expected a string",
        "variant[0].vllm: '0.20' is not a version specifier",
        "variant[0].patches[0]: '../x.patch' points outside",
        "variant[0].patches[1]: expected a relative path",
        "variant[0].overlay[0].path: '../etc/passwd' points outside",
        "variant[0].overlay[0].mode: unknown key",
        "variant: two variants have the id 'a'",
    ):
        assert piece in text


def test_a_variant_that_does_nothing_is_a_problem() -> None:
    text = GOOD.split("patches =", maxsplit=1)[0]
    assert problems(text) == (
        "variant[0]: a variant needs patches, an overlay, replacements or templates",
    )


def test_a_mod_without_variants_is_a_problem() -> None:
    assert problems(GOOD.split("[[variant]]", maxsplit=1)[0]) == (
        "variant: a mod needs at least one [[variant]]",
    )


def test_malformed_toml_says_where() -> None:
    (problem,) = problems("schema = \n")
    assert "line 1" in problem


def test_a_manifest_that_is_not_utf_8() -> None:
    with pytest.raises(ManifestError, match="not UTF-8"):
        manifest.from_toml(b'name = "\xff"', "mod.toml")


def test_variables_of_a_mod_are_text_with_a_name_and_no_secrets() -> None:
    read = manifest.from_toml((GOOD + '\n[env]\nVLLM_A = "1"\n').encode(), "mod.toml")
    assert read.env == (("VLLM_A", "1"),)
    found = problems(
        GOOD + '[env]\nHF_TOKEN = "x"\nmy_key = "x"\nA = 1\n"A-B" = "1"\nC = "\\u0000"\n'
    )
    assert found == (
        "env.HF_TOKEN: looks like a secret, and mods are published: pass it when the container starts",
        "env.my_key: looks like a secret, and mods are published: pass it when the container starts",
        "env.A-B: is not the name of an environment variable",
        "env.C: contains a NUL, which no variable can have",
        "env.A: expected a string, found an integer",
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('package = "transformers"', "variant[0].version: is required"),
        ('version = ">=5"', "variant[0].version: is the version of another package: name it in `package`"),
        ('package = "vllm"\nversion = "5"', "variant[0].version: is the version of another package: name it in `package`"),
        ('package = "-x"\nversion = ">=5"', "variant[0].package: expected the name of a distribution, found '-x'"),
        ('package = "x"\nversion = "5"', "variant[0].version: '5' is not a version specifier such as '>=0.20'"),
    ],
)  # fmt: skip
def test_another_package_has_a_range_of_its_own(lines: str, said: str) -> None:
    assert said in problems(f"{GOOD}{lines}\n")
    read = manifest.from_toml(
        f'{GOOD}package = "transformers"\nversion = ">=5"\n'.encode(), "mod.toml"
    )
    assert (read.variants[0].package, read.variants[0].package_version) == ("transformers", ">=5")


HASH = "a" * 64
FULL = f"""\
schema = 1
name = "my-mod"
version = "1.0.0"
summary = "s"
license = "MIT"
vllm = ">=0.20,<0.25"
until = "it is in there"
requires = ["other"]
conflicts = ["third"]
after = ["fourth"]
outside = ["x.py"]

[upstream]
issues = ["vllm-project/vllm#1"]

[evidence]
behaviour = "("
instead = "b"

[serve]
args = ["--x"]

[env]
A = "1"

[hardware]
compute_capability = ["9.0"]

[[when]]
fails = "it dies"
config = {{ model_type = ["x", 1, true] }}
tensors = {{ "*.A_log" = ["F32"] }}

[[files]]
source = "tool.sh"
path = "/opt/tool.sh"
mode = "0755"
replaces = ["{HASH}"]

[[files]]
source = "x"
path = "/opt/x"

[[variant]]
id = "a"
vllm = ">=0.20"
patches = ["a.patch", "b.patch"]
optional = ["b.patch"]
replace = [{{ path = "vllm/a.py", old = "a", new = "b", count = 2 }}, {{ path = "vllm/b.py", old = "a", new = "c" }}]
fetch = [{{ url = "https://h.org/x?y", sha256 = "{HASH}", file = "f/x" }}]
templates = [{{ name = "chat", file = "chat.jinja" }}]
python = ["flash-qla>=0.1"]

[[variant]]
id = "b"
vllm = ">=0.21"
package = "vllm"
overlay = [{{ source = "o.py", path = "vllm/o.py", replaces = ["{HASH}"] }}]
binary = [{{ source = "x.so", path = "vllm/x.so.1", sha256 = "{HASH}", platform = "linux/arm64" }}]
"""


def test_each_key_of_a_manifest_has_its_field() -> None:
    read = manifest.from_toml(FULL.encode(), "mod.toml")
    first = Variant(
        id="a",
        vllm=">=0.20",
        patches=(PatchFile("a.patch", b""), PatchFile("b.patch", b"", "", optional=True)),
        replace=(
            TextReplacement("vllm/a.py", "a", "b", 2),
            TextReplacement("vllm/b.py", "a", "c", 1),
        ),
        fetch=(FetchedFile("https://h.org/x?y", HASH, "f/x", b""),),
        templates=(TemplateFile("chat", "chat.jinja", source="", data=b""),),
        python=("flash-qla>=0.1",),
    )
    second = Variant(
        id="b",
        vllm=">=0.21",
        overlay=(OverlayFile("o.py", "vllm/o.py", b"", (HASH,)),),
        binary=(
            BinaryFile(
                source="x.so",
                path="vllm/x.so.1",
                sha256=HASH,
                platform="linux/arm64",
                data=b"",
                replaces=(),
            ),
        ),
    )
    assert read == Mod(
        name="my-mod",
        version="1.0.0",
        summary="s",
        license="MIT",
        directory="",
        digest="",
        vllm=">=0.20,<0.25",
        until="it is in there",
        requires=("other",),
        conflicts=("third",),
        after=("fourth",),
        outside=("x.py",),
        upstream_issues=("vllm-project/vllm#1",),
        upstream_status="none",
        evidence=(("instead", "b"), ("behaviour", "(")),
        serve_args=("--x",),
        env=(("A", "1"),),
        compute_capability=("9.0",),
        when=(
            When(
                config=(("model_type", ("x", 1, True)),),
                tensors=(("*.A_log", ("F32",)),),
                fails="it dies",
            ),
        ),
        files=(
            ImageFile(
                path="/opt/tool.sh", source="tool.sh", data=b"", mode=0o755, replaces=(HASH,)
            ),
            ImageFile(path="/opt/x", source="x", data=b"", mode=0o644, replaces=()),
        ),
        variants=(first, second),
    )


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (', new = "c"', "", "variant[0].replace[1].new: is required"),
        ('new = "c"', 'new = "a"', "variant[0].replace[1].old: expected text that differs from `new`"),
        ("count = 2", "count = 0", f"variant[0].replace[0].count: expected a number from 1 to {limits.HUNKS}"),
        ("count = 2", f"count = {int(limits.HUNKS) + 1}",
         f"variant[0].replace[0].count: expected a number from 1 to {limits.HUNKS}"),
        ('until = "it is in there"', "", "vllm: it has an upper bound: give the reason as until = '…'"),
        (">=0.20,<0.25", ">=0.20", "until: gives the reason for the upper bound of `vllm`, but `vllm` has none"),
        ("/opt/x", "/opt/tool.sh", "files: two files have the path /opt/tool.sh"),
        ("/opt/x", "/x", "files[1].path: '/x' is not the absolute path of a file in a folder"),
        ('"0755"', '"755"', "files[0].mode: expected permission bits such as '0644', found '755'"),
        (f'["{HASH}"]', '["x"]', "files[0].replaces[0]: expected a sha256 in hexadecimal, found 'x'"),
        ('["other"]', '["my-mod"]', "requires: a mod cannot name itself here"),
        ('["third"]', '["my-mod"]', "conflicts: a mod cannot name itself here"),
        ('["fourth"]', '["my-mod"]', "after: a mod cannot name itself here"),
        ('["fourth"]', '["A"]', "after[0]: expected the name of a mod, found 'A'"),
        ('["9.0"]', '["9"]', "hardware.compute_capability[0]: expected a capability such as '9.0', found '9'"),
        ("[hardware]", "[hardware]\nx = 1", "hardware.x: unknown key"),
        ('fails = "it dies"\nconfig = { model_type = ["x", 1, true] }\ntensors = { "*.A_log" = ["F32"] }', "",
         "when[0]: names no key of config.json and no tensor, so it matches every model"),
        ('["x", 1, true]', "[[]]",
         "when[0].config.model_type[0]: expected text, a number, true or false, found an array"),
        ('optional = ["b.patch"]', 'optional = ["c.patch"]',
         "variant[0].optional: 'c.patch' is not one of its patches"),
        ("https://h.org/x?y", "https://me:x@h.org/x",
         "variant[0].fetch[0].url: expected an https URL without a login, found 'https://me:x@h.org/x'"),
        ("chat.jinja", "a/chat.jinja", "variant[0].templates[0].file: 'a/chat.jinja' is not a plain file name"),
        ('["flash-qla>=0.1"]', '["-x"]', "variant[0].python[0]: expected a PEP 508 requirement, found '-x'"),
        ("vllm/x.so.1", "vllm/x.py",
         "variant[1].binary[0].path: expected the path of a library, NAME.so, found 'vllm/x.py'"),
        ("vllm/x.so.1", "../x.so",
         "variant[1].binary[0].path: expected the path of a library, NAME.so, found '../x.so'"),
        ("linux/arm64", "linux/x",
         "variant[1].binary[0].platform: expected one of linux/amd64, linux/arm64, found 'linux/x'"),
        ("1.0.0", "1.x", "version: expected a version such as 1.0.0, found '1.x'"),
        ('"o.py"', '"a\\\\o.py"', "variant[1].overlay[0].source: expected a relative path with '/', found 'a\\\\o.py'"),
        ('"o.py"', '"a\\u0000"', "variant[1].overlay[0].source: 'a\\x00' is not a path"),
        ('id = "b"', 'id = "a"', "variant: two variants have the id 'a'"),
        (">=0.21", ">=0.21,<x", "variant[1].vllm: '>=0.21,<x' is not a version specifier such as '>=0.20'"),
    ],
)  # fmt: skip
def test_what_a_key_may_not_say(old: str, new: str, problem: str) -> None:
    assert old in FULL
    assert problem in problems(FULL.replace(old, new))


REQUIRED = {
    (): ("name", "version", "summary", "license"),
    ("files", 1): ("path", "source"),
    ("variant", 1): ("id", "vllm"),
    ("variant", 0, "replace", 1): ("path", "old", "new"),
    ("variant", 0, "fetch", 0): ("url", "sha256", "file"),
    ("variant", 0, "templates", 0): ("name", "file"),
    ("variant", 1, "overlay", 0): ("source", "path"),
    ("variant", 1, "binary", 0): ("source", "path", "sha256", "platform"),
    ("variant", 0, "allow", 0): ("code", "reason"),
}


@pytest.mark.parametrize("place", REQUIRED, ids=str)
def test_a_key_that_has_no_default_is_required(place: tuple[str | int, ...]) -> None:
    for key in REQUIRED[place]:
        raw = tomllib.loads(FULL)
        raw["variant"][0]["allow"] = [{"code": "fit-call", "reason": "because"}]
        table: Any = raw
        for step in place:
            table = table[step]
        assert table.pop(key)
        with pytest.raises(ManifestError) as caught:
            manifest.from_toml("\n".join(toml_writer.rows(raw)).encode(), "mod.toml")
        where = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in (*place, key))
        assert f"{where[1:]}: is required" in caught.value.problems


def test_two_libraries_for_one_path_are_for_two_platforms() -> None:
    row = FULL[FULL.index("binary = [") + 10 : FULL.rindex("]")]
    other = row.replace("arm64", "amd64")
    assert manifest.from_toml(FULL.replace(row, f"{row}, {other}").encode(), "mod.toml")
    assert problems(FULL.replace(row, f"{row}, {row}")) == (
        "variant[1].binary: two files are named vllm/x.so.1 for linux/arm64",
    )
