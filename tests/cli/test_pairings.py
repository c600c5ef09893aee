"""Pairings on the command line: import, export, list, show, and --pairing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mod_making import diff_of, write_mod
from recipe_texts import PASTED, SOUND, SOUND_ARGV
from small_site import snapshot

from vllm_mods.formats import pairing as pairings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Any]

TEMPLATE = (
    '[[variant]]\nid = "t"\nvllm = ">=0.19"\ntemplates = [{ name = "tiny", file = "tiny.jinja" }]\n'
)
PAIRING = """\
schema = 1
name = "desk"
summary = "A small one"
model = "example/m"
base = "example/vllm:1"
vllm = "{vllm}"
mods = ["limit", "fast"]
templates = ["tiny"]
command = '''
vllm serve {{model}} --port {{port}} \\
  --chat-template tiny.jinja
'''
[defaults]
port = 8000
[env]
A = "x y"
"""


@pytest.fixture
def paired(library: Path) -> Path:
    """Add a template, the mod that brings it, and a pairing to the library."""
    (library / "templates/tiny").mkdir(parents=True)
    (library / "templates/tiny/template.jinja").write_text("{{ messages }}")
    folder = library / "patches/tiny"
    folder.mkdir()
    (folder / "mod.toml").write_text(
        f'schema = 1\nname = "tiny"\nversion = "1.0.0"\nsummary = "s"\nlicense = "MIT"\n{TEMPLATE}'
    )
    (library / "pairings").mkdir()
    (library / "pairings/desk.toml").write_text(PAIRING.format(vllm="0.19.1"))
    return library


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    path = tmp_path / "sound.yaml"
    path.write_text(SOUND)
    return path


# --- --pairing --------------------------------------------------------------


@pytest.mark.slow
def test_a_pairing_stands_for_its_mods_in_order(call: Call, site: Path, paired: Path) -> None:
    answer = call("check", "--pairing", "desk", "--target", site, "--json")
    assert answer.code == 0
    assert [mod["name"] for mod in answer.json["mods"]] == ["limit", "fast", "tiny"]
    assert answer.err == ""
    write_mod(paired, "more", diff_of("vllm/a.py", "A = 1\n", "A = 2\n"))
    answer = call("check", "more", "limit", "--pairing", "desk", "--target", site, "--json")
    assert [mod["name"] for mod in answer.json["mods"]] == ["limit", "fast", "tiny", "more"]


def test_a_pairing_is_applied_and_its_command_printed(call: Call, site: Path, paired: Path) -> None:
    expected = (
        "serve with (pairing desk):\nexport A='x y'\nvllm serve example/m --port 8000 \\\n"
        f"  --chat-template {site}/.vllm-mods/templates/tiny.jinja\n"
    )
    answer = call("apply", "--pairing", "desk", "--target", site)
    assert answer.code == 0, answer.err
    assert answer.out.endswith(expected)
    assert (site / ".vllm-mods/templates/tiny.jinja").read_text() == "{{ messages }}"
    again = call("apply", "--pairing", "desk", "--target", site)
    assert "nothing to do" in again.out
    assert again.out.endswith(expected)
    assert paired.is_dir()


def test_the_template_is_named_where_the_workspace_is(
    call: Call, site: Path, paired: Path, tmp_path: Path
) -> None:
    place = tmp_path / "work space"
    place.mkdir()
    answer = call("apply", "--pairing", "desk", "--target", site, "--workspace", place, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["serve"].endswith(f"--chat-template '{place}/tiny.jinja'")
    assert (place / "tiny.jinja").is_file()
    assert paired.is_dir()


def test_a_tree_of_another_version_is_told(call: Call, site: Path, paired: Path) -> None:
    (paired / "pairings/desk.toml").write_text(PAIRING.format(vllm=">=0.21"))
    answer = call("check", "--pairing", "desk", "--target", site)
    assert answer.code == 0
    assert answer.err.startswith("note: pairing desk is for vLLM >=0.21, but this tree is ")


def test_a_pairing_without_mods_takes_no_default_ones(
    call: Call, site: Path, library: Path
) -> None:
    (library / "pairings").mkdir()
    text = PAIRING.format(vllm="0.19.1").replace('"limit", "fast"', "").replace('"tiny"]', "]")
    (library / "pairings/desk.toml").write_text(text)
    before = snapshot(site)
    answer = call("apply", "--pairing", "desk", "--target", site)
    assert (answer.code, snapshot(site)) == (0, before)
    assert "nothing to do" in answer.out
    assert "vllm serve example/m" in answer.out


def test_a_matrix_of_a_pairing(call: Call, site: Path, paired: Path) -> None:
    answer = call("matrix", "--pairing", "desk", "--tree", site, "--json")
    assert {cell["mod"] for cell in answer.json["cells"]} == {"limit", "fast", "tiny"}
    assert paired.is_dir()


@pytest.mark.parametrize("command", ["check", "apply"])
def test_an_unknown_pairing_is_refused(call: Call, site: Path, paired: Path, command: str) -> None:
    before = snapshot(site)
    answer = call(command, "--pairing", "desc", "--target", site)
    assert answer.code == 2
    assert "no pairing named `desc`" in answer.err
    assert "did you mean `desk`?" in answer.err
    assert snapshot(site) == before
    assert paired.is_dir()


# --- list, show -------------------------------------------------------------


def test_pairings_are_listed(call: Call, paired: Path) -> None:
    entries = {entry["name"]: entry for entry in call("list", "--json").json["pairings"]}
    assert entries["desk"]["mods"] == ["limit", "fast"]
    assert entries["desk"]["file"] == str(paired / "pairings/desk.toml")
    assert "qwen3.5-122b-hybrid" in entries
    assert "example/m with limit, fast, tiny" in call("list").out


def test_a_faulty_pairing_is_listed_as_such(call: Call, paired: Path) -> None:
    (paired / "pairings/bad.toml").write_text("schema = 1\n")
    answer = call("list", "--json")
    assert answer.code == 2
    assert answer.json["faulty"][0]["where"] == str(paired / "pairings/bad.toml")
    assert "desk" in [entry["name"] for entry in answer.json["pairings"]]


def test_a_pairing_is_shown(call: Call, paired: Path) -> None:
    answer = call("show", "desk", "--json").json
    assert answer["kind"] == "pairing"
    assert answer["arguments"] == [
        "vllm", "serve", "example/m", "--port", "8000", "--chat-template", "tiny.jinja"
    ]  # fmt: skip
    text = call("show", "desk").out
    assert "  image       example/vllm:1\n" in text
    assert "vllm serve example/m --port 8000" in text
    assert paired.is_dir()


def test_a_name_of_a_mod_and_a_pairing_is_not_guessed_at(call: Call, paired: Path) -> None:
    text = PAIRING.format(vllm="0.19.1").replace('"desk"', '"fast"')
    (paired / "pairings/fast.toml").write_text(text)
    answer = call("show", "fast")
    assert answer.code == 2
    assert "is the name of a mod and of a pairing" in answer.err


# --- import, export ---------------------------------------------------------


def test_a_recipe_becomes_a_pairing_of_a_library(
    call: Call, sound: Path, paired: Path, tmp_path: Path
) -> None:
    answer = call(
        "import", sound, "--library", paired, "--mod", "mods/fix-tiny-template=tiny", "--name", "it"
    )
    assert answer.code == 0, answer.err
    assert answer.out == ""
    assert f"wrote {paired}/pairings/it.toml\n" in answer.err
    shown = call("show", "it", "--json").json
    assert tuple(shown["arguments"]) == SOUND_ARGV
    assert shown["mods"] == ["fast", "tiny"]
    out = tmp_path / "out.yaml"
    assert call("export", "it", "--output", out).code == 0
    again = call("import", out, "--name", "it", "--mod", "mods/fix-tiny-template=tiny")
    assert again.out == (paired / "pairings/it.toml").read_text()


def test_without_a_place_the_pairing_is_printed(call: Call, sound: Path) -> None:
    answer = call("import", sound)
    assert answer.code == 1
    assert pairings.arguments(pairings.parse(answer.out.encode(), "-")) == SOUND_ARGV
    assert f"{sound}:18: error: mods[1]: mods/fix-tiny-template: there is no mod" in answer.err
    assert (
        f"{sound}:27: note: defaults.draft: no {{placeholder}} uses it [unused-default]\n"
        in answer.err
    )


def test_the_answer_as_json(call: Call, sound: Path) -> None:
    answer = call("import", sound, "--json")
    assert answer.code == 1
    assert (answer.json["schema"], answer.json["kind"], answer.json["ok"]) == (1, "recipe", False)
    assert answer.json["name"] == "tiny-7b-int4"
    found = next(one for one in answer.json["findings"] if one["level"] == "error")
    assert (found["code"], found["line"], found["scope"]) == ("unknown-mod", 18, "mods[1]")


def test_a_pasted_recipe_is_refused_with_its_line(
    call: Call, tmp_path: Path, library: Path
) -> None:
    path = tmp_path / "pasted.txt"
    path.write_text(PASTED)
    answer = call("import", path, "--library", library)
    assert answer.code == 2
    assert "line 20: not YAML" in answer.err
    assert not (library / "pairings").exists()


def test_a_name_that_is_taken_is_refused(call: Call, sound: Path, paired: Path) -> None:
    answer = call("import", sound, "--library", paired, "--name", "desk")
    assert answer.code == 2
    assert str(paired / "pairings/desk.toml") in answer.err
    assert "--name" in answer.err


def test_an_empty_folder_becomes_a_library(call: Call, sound: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    assert call("import", sound, "--library", new).code == 1
    assert (new / "pairings/tiny-7b-int4.toml").is_file()


def test_what_is_no_recipe_is_refused(call: Call, tmp_path: Path) -> None:
    binary = tmp_path / "x"
    binary.write_bytes(b"\x80")
    large = tmp_path / "large"
    large.write_bytes(b"# " * (1 << 18))
    for path, says in (
        (large, "has more than 256 KiB, the limit for a recipe"),
        (binary, "is not a recipe: byte 0 is not UTF-8"),
        (tmp_path / "none", "cannot be read: No such file"),
    ):
        answer = call("import", path)
        assert answer.code == 2
        assert f"error: {path} {says}" in answer.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--mod", "x"], "--mod x is not PATH=NAME"),
        (["--mod", "mods/fast=nothing"], "there is no mod named `nothing`"),
        (["--library", "/nowhere"], "/nowhere is not a folder"),
        (["--name", "A b"], "'A b' cannot name a pairing"),
    ],
)
def test_a_wrong_call_is_refused(call: Call, sound: Path, arguments: list[str], says: str) -> None:
    answer = call("import", sound, *arguments)
    assert answer.code == 2
    assert says in answer.err
    assert "Traceback" not in answer.err


def test_a_place_that_cannot_be_written_is_refused(call: Call, sound: Path, tmp_path: Path) -> None:
    (tmp_path / "pairings").write_text("mine")
    (tmp_path / "patches").mkdir()
    answer = call("import", sound, "--library", tmp_path)
    assert answer.code == 3
    assert "tiny-7b-int4.toml cannot be written: File exists" in answer.err


def test_a_pairing_is_written_as_a_recipe(call: Call, paired: Path, tmp_path: Path) -> None:
    answer = call("export", "desk")
    assert answer.code == 0
    assert "- mods/limit\n- mods/fast\n- mods/tiny\n" in answer.out
    assert answer.err.count("the recipe names the folder") == 3
    path = tmp_path / "r.yaml"
    path.write_text(answer.out)
    there = pairings.parse((paired / "pairings/desk.toml").read_bytes(), "desk")
    again = pairings.parse(call("import", path).out.encode(), "again")
    assert pairings.rendered(again) == pairings.rendered(there)
    assert again._replace(recipe=None, defaults=there.defaults) == there
