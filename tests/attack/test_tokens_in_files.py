"""A token in what is passed on (a pairing, a mod, a recipe, an export): refused by what it looks like, wherever it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from git_host import mod
from paired import NAME, library

from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.cli import run
from vllm_mods.formats import container, manifest, pairing
from vllm_mods.formats.pairing import Pairing
from vllm_mods.recipes import recipe_yaml
from vllm_mods.running.service import StartOptions, service

if TYPE_CHECKING:
    from pathlib import Path

# put together here, so that nobody who looks for tokens finds these
TOKENS = {
    "hf_…": "hf_" + "aB3dE6gH9" * 4,
    "sk-…": "sk-" + "proj-aB3dE6gH9_" * 3,
    "ghp_…": "ghp_" + "aB3dE6gH9" * 4,
    "github_pat_…": "github_pat_" + "11AB3dE6gH_9" * 4,
    "-----BEGIN … PRIVATE KEY-----": "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
}
PAIRING = """\
schema = 1
name = "pair"
summary = "s"
model = "org/model"
base = "base:1"
command = "vllm serve org/model --served-model-name {title}"
[defaults]
title = "t"
[env]
"""
MOD = mod("m")["patches/m/mod.toml"]
RECIPE = """\
recipe_version: "1"
name: small
container: base:1
model: org/model
command: vllm serve org/model
"""


def problems(data: str) -> str:
    with pytest.raises(ManifestError) as refused:
        pairing.parse(data.encode(), "pair.toml")
    return str(refused.value)


PLACES = {
    "env.WANDB": ("[env]", "[env]\nWANDB = 'x={}'"),
    "defaults.title": ('title = "t"', "title = '{}'"),
    "command": ("--served-model-name", "--served-model-name '{}'"),
    "revision": ("command = ", "revision = '{}'\ncommand = "),
    "summary": ('summary = "s"', "summary = 'see {}'"),
}
# A revision with a blank in it is none, whatever it looks like.
STANDING = [
    (kind, at) for kind in TOKENS for at in PLACES if " " not in TOKENS[kind] or at != "revision"
]


@pytest.mark.parametrize(("kind", "at"), STANDING)
def test_no_pairing_has_one(kind: str, at: str) -> None:
    before, after = PLACES[at]
    said = problems(PAIRING.replace(before, after.format(TOKENS[kind])))
    assert f"{at}: contains what looks like a secret ({kind})" in said
    assert TOKENS[kind] not in said


def test_nor_has_a_mod_or_a_recipe() -> None:
    token = TOKENS["hf_…"]
    for more, at in (
        (f'[env]\nA = "{token}"\n', "env.A"),
        (f'[serve]\nargs = ["--x", "{token}"]\n', "serve.args[1]"),
    ):
        with pytest.raises(ManifestError, match="looks like a secret") as refused:
            manifest.from_toml((MOD + more).encode(), "mod.toml")
        assert at in str(refused.value)
    for more in (f"env: {{WANDB: {token}}}\n", f"build_args: [{token}]\n"):
        with pytest.raises(ManifestError, match=r"looks like a secret \(hf_…\)"):
            recipe_yaml.read(RECIPE + more, "r.yaml", known=())


@pytest.mark.parametrize("kind", TOKENS)
def test_what_starts_a_container_has_none(kind: str) -> None:
    wanted = Pairing("x", "s", "org/m", "base", "vllm serve org/m")
    given = {"image": "x", "command": "x", "cache": "/"}
    for changed in (
        {"arguments": ("--served-model-name", TOKENS[kind])},
        {"command": f"WANDB='{TOKENS[kind]}' vllm serve org/m"},
    ):
        with pytest.raises(UsageError, match="looks like a secret") as refused:
            service(wanted, StartOptions(), **(given | changed))
        assert "--env-file" in (refused.value.hint or "")
        assert TOKENS[kind] not in str(refused.value)
    with pytest.raises(UsageError, match="looks like a secret"):
        service(wanted._replace(env={"A": TOKENS[kind]}), StartOptions(), **given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="looks like a secret"):
        service(wanted, StartOptions(image=f"r:{TOKENS[kind]}"), **given)  # type: ignore[arg-type]


def test_no_image_is_made_of_one_that_a_mod_brings_or_that_is_put_together() -> None:
    token = TOKENS["ghp_…"]
    wanted = Pairing("x", "s", "org/m", "base", "vllm serve {model} --title {a}{b}")
    halves = wanted._replace(defaults={"a": token[:9], "b": token[9:]})
    (why,) = container.problems(halves)
    assert why.startswith("command: contains what looks like a secret (ghp_…)")
    # a mod whose mod.lock vouches for its manifest is read without a look at its texts
    (why,) = container.problems(halves._replace(defaults={"a": "a", "b": "b"}, env={"A": token}))
    assert why.startswith("env.A: contains what looks like a secret (ghp_…)")


def test_an_export_has_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = library(tmp_path, "base:1") / f"pairings/{NAME}.toml"
    place.write_text(place.read_text() + f'[env]\nWANDB = "{TOKENS["sk-…"]}"\n')
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(tmp_path))
    assert run(["export", NAME]) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert TOKENS["sk-…"] not in said.err


@pytest.mark.parametrize(
    "text",
    [
        "org/sk-llama-3.1-8b-instruct-awq",
        "llama-sk-instruct-8b-v1-quantised",
        "hf_transformers_and_more_of_it",
        "--hf-overrides",
        "hf_xet",
        "eyJhIjoxfQ.",
        "a -----BEGIN CERTIFICATE-----",
        "ghp_",
    ],
)
def test_names_that_only_begin_so_are_taken(text: str) -> None:
    pairing.parse(PAIRING.replace('title = "t"', f'title = "{text}"').encode(), "pair.toml")
