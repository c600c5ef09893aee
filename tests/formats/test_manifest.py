"""mod.toml: every problem at once, each with its key path."""

from __future__ import annotations

import pytest

from vllm_mods.base.errors import EXIT_USAGE, ManifestError
from vllm_mods.formats import manifest

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
        "variant[0].patches[0]: '../x.patch' leads out",
        "variant[0].patches[1]: expected a relative path",
        "variant[0].overlay[0].path: '../etc/passwd' leads out",
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
        "env.HF_TOKEN: looks like a secret, and a mod is passed on: give it when the container is started",
        "env.my_key: looks like a secret, and a mod is passed on: give it when the container is started",
        "env.A-B: is not the name of an environment variable",
        "env.C: has a NUL, which no environment has",
        "env.A: expected a string, found an integer",
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('package = "transformers"', "variant[0].version: is required"),
        ('version = ">=5"', "variant[0].version: is that of another package: say which, `package`"),
        ('package = "vllm"\nversion = "5"', "variant[0].version: is that of another package: say which, `package`"),
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
