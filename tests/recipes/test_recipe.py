"""Recipes read into pairings, and written again."""

from __future__ import annotations

import pytest
import yaml  # noqa: TID251  (what launchers read them with)
from lowering import lower
from recipe_texts import PASTED, SOUND, SOUND_ARGV, SUPERSET

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import Level
from vllm_mods.formats import pairing as pairings
from vllm_mods.recipes import recipe_yaml, yaml_source
from vllm_mods.recipes.recipe_yaml import write

KNOWN = ("fast", "tiny-template")
MODS = {"mods/fix-tiny-template": "tiny-template"}
LEAST = """\
recipe_version: "1"
name: Least
container: image
command: vllm serve example/m
"""


def read(text: str, **more: object) -> recipe_yaml.ImportedRecipe:
    return recipe_yaml.read(text, "r.yaml", **{"known": KNOWN, **more})  # type: ignore[arg-type]


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        read(text)
    return caught.value.problems


def said(text: str, **more: object) -> list[tuple[str, str, int | None]]:
    return [(f.level.value, f.code, f.line) for f in read(text, **more).findings]


def launched(text: str, **overrides: object) -> str:
    """Render a command as the launcher of version 1 does: PyYAML and ``str.format``."""
    raw = yaml.safe_load(text)
    values: dict[str, object] = {**(raw.get("defaults") or {}), **overrides}
    made: str = raw["command"].format(**values)
    return made.strip().removesuffix("\\").strip()


def test_a_sound_recipe_is_read_with_nothing_lost() -> None:
    imported = read(SOUND, mods=MODS)
    pairing = imported.pairing
    assert imported.ok
    assert pairing.name == "tiny-7b-int4"
    assert pairing.summary == "A small model for trying things out"
    assert pairing.model == "example/Tiny-7B-int4"
    assert pairing.base == "vllm-node"
    assert pairing.topology == "solo"
    assert pairing.mods == ("fast", "tiny-template")
    assert pairing.defaults["max-num-seqs"] == 4
    assert pairing.env == {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "INFO"}
    assert pairings.arguments(pairing) == SOUND_ARGV
    assert pairings.rendered(pairing) == launched(SOUND, tensor_parallel=1)
    kept = pairing.recipe
    assert kept is not None
    assert kept.keys == {"build_args": ["--exp"]}
    assert kept.mods == {"fast": "mods/fast", "tiny-template": "mods/fix-tiny-template"}


def test_what_is_to_be_known_of_it_is_said() -> None:
    assert said(SOUND, mods=MODS) == [("note", "kept", 12), ("note", "unused-default", 27)]


def test_a_mod_that_is_not_there_is_kept_and_said() -> None:
    imported = read(SOUND)
    (found,) = [one for one in imported.findings if one.level is Level.ERROR]
    assert not imported.ok
    assert (found.code, found.line) == ("unknown-mod", 18)
    assert "--mod mods/fix-tiny-template=NAME" in found.message
    assert imported.pairing.mods == ("fast", "fix-tiny-template")


def test_a_mod_may_be_named_without_its_folder() -> None:
    mods = {"fix-tiny-template": "tiny-template"}
    assert read(SOUND, mods=mods).pairing.mods == ("fast", "tiny-template")


@pytest.mark.parametrize("text", [SOUND, SUPERSET, LEAST])
def test_what_is_written_reads_the_same(text: str) -> None:
    pairing = read(text, mods={}).pairing
    again = read(write(pairing), mods={}).pairing
    assert again == pairing


def test_a_pairing_of_ours_is_written_for_launchers_and_comes_back() -> None:
    pairing = pairings.Pairing(
        name="ours",
        summary="s",
        model="example/m",
        revision="abc",
        base="image",
        vllm=">=0.21",
        mods=("fast",),
        templates=("tiny-template",),
        defaults={"port": 1},
        env={"A": "true"},
        command="vllm serve {model} --revision {revision} --port {port}\n",
    )
    text = write(pairing)
    assert launched(text) == pairings.rendered(pairing)
    again = read(text).pairing
    assert yaml.safe_load(text)["mods"] == ["mods/fast", "mods/tiny-template"]
    assert again._replace(recipe=None, defaults=pairing.defaults) == pairing
    assert read(write(again)).pairing == again


def test_the_superset_as_far_as_it_means_something() -> None:
    imported = read(SUPERSET)
    pairing = imported.pairing
    assert (pairing.name, pairing.revision, pairing.topology) == ("tiny", "0123abc", "any")
    assert pairings.arguments(pairing)[:5] == (
        "vllm", "serve", "example/Tiny-7B-int4", "--port", "8000"
    )  # fmt: skip
    assert pairing.recipe is not None
    assert pairing.recipe.keys["min_nodes"] == 2
    assert pairing.recipe.keys["metadata"]["quantized"] is True
    errors = [(one.scope, one.line) for one in imported.findings if one.level is Level.ERROR]
    assert errors == [("recipe_version", 1), ("pre_exec", 9)]


def test_what_is_empty_and_what_shells_change_is_said_with_its_line() -> None:
    text = (
        f"{LEAST}mods: []\ndefaults:\n  a:\n  b: 2026-01-02\nenv:\n  X: true\n  Y: $HOME\n"
        "cluster_only: true\nsolo_only: false\nother:\n  c:\n  d: [1, null]\n"
    )
    imported = read(text)
    assert [(one.code, one.scope, one.line) for one in imported.findings[1:]] == [
        ("empty", "defaults.a", 7),
        ("unused-default", "defaults.b", 8),
        ("env-bool", "env.X", 10),
        ("env-shell", "env.Y", 11),
        ("kept", "other", 14),
    ]
    pairing = imported.pairing
    assert (pairing.topology, pairing.defaults) == ("cluster", {"b": "2026-01-02"})
    assert pairing.env == {"X": "True", "Y": "$HOME"}
    assert pairing.recipe is not None
    assert pairing.recipe.keys == {"other": {"d": [1]}}


def test_what_cannot_be_a_pairing_is_a_problem_of_the_recipe() -> None:
    assert problems(f"{LEAST}solo_only: true\ncluster_only: true\n") == (
        "solo_only: line 5: solo_only and cluster_only contradict each other",
    )
    assert problems(LEAST.replace("name: Least", "name: '***'")) == (
        "name: line 2: '' cannot name a pairing; choose one with --name",
    )
    assert problems(f"{LEAST}mods: [mods/fast, fast]\n") == (
        "mods[1]: line 5: fast and mods/fast are both the mod `fast`",
    )
    assert problems(f"{LEAST}mods: [' / ', 7]\n") == (
        "mods[0]: line 5: expected the path of a mod, found ' / '",
        "mods[1]: line 5: expected the path of a mod, found 7",
    )
    with pytest.raises(ManifestError) as caught:
        read(LEAST, mods={"none": "fast"})
    assert caught.value.problems == ("mods: the recipe has no mod none, which --mod names",)


def test_another_runtime_is_kept_and_said() -> None:
    text = SUPERSET.replace("runtime: vllm", "runtime: sglang")
    assert ("error", "not-done", 5) in said(text)


def test_every_problem_is_reported_with_its_key_path_and_line() -> None:
    text = """\
recipe_version: "1"
container:
mods: mods/fast
defaults:
  a: [1]
env:
  X:
  1Y: z
solo_only: yes please
"""
    assert problems(text) == (
        "name: is required",
        "mods: line 3: expected a list, found 'mods/fast'",
        "container: line 2: is empty",
        "defaults.a: line 5: is not a single value, so a launcher would write it as Python; put it in quotes",
        "env.X: line 7: is not a single value, so a launcher would export it as Python; put it in quotes",
        "env.1Y: line 8: is not the name of an environment variable",
        "command: is required",
        "solo_only: line 9: expected true or false, found 'yes please'",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LEAST + "env:\n  A: !!python/name:os.x\n  A: 2\n", "line 6: not YAML: could not determine a constructor for the tag 'tag:yaml.org,2002:python/name:os.x'"),
        (LEAST + "mods: [", "line 5: not YAML: expected the node content, but found '<stream end>'"),
        (LEAST + "1: x\n", "line 5: a key must be text, and quoted if it looks like more: 1"),
        (LEAST + "x: !!python/name:os.x\n", "line 5: tag:yaml.org,2002:python/name:os.x is not a plain value"),
        (LEAST + "x: &a {<<: *a}\n", "line 5: a key must be text, and quoted if it looks like more: <<"),
        (LEAST + "x: \x07\n", "line 5: not YAML: special characters are not allowed"),
        (LEAST + "x: !!set [a]\n", "line 5: tag:yaml.org,2002:set is not a plain value"),
        (LEAST + "x: !!str [a]\n", "line 5: tag:yaml.org,2002:str is not a plain value"),
        (LEAST + "x: !!map a\n", "line 5: tag:yaml.org,2002:map is not a plain value"),
        pytest.param(LEAST + "x: " + "[" * 3000, "line 1: not a recipe: nested too deeply", marks=pytest.mark.slow),
        (LEAST + "metadata:\n  a:\n  " + "- " * 400 + "x\n", "line 7: nested too deeply"),
        ("- a\n", "line 1: this is not a mapping of keys to values"),
        ("", "line 1: this is not a mapping of keys to values"),
        (LEAST + "mods: [mods/a, x/a]\n", "mods[1]: line 5: x/a and mods/a are both the mod `a`"),
        (LEAST + "mods: [null]\n", "mods[0]: line 5: expected the path of a mod, found None"),
        (LEAST + "solo_only: true\ncluster_only: true\n", "solo_only: line 5: solo_only and cluster_only contradict each other"),
        (LEAST.replace("example/m", "{x}"), "command: line 4: {x} has no default"),
        (LEAST.replace("example/m", "--port 1"), "model: is required, because the command names no model"),
        (LEAST.replace("image", "a b"), "container: line 3: expected an image reference, found 'a b'"),
        (LEAST + "vllm_mods: {vllm: new}\n", "vllm_mods.vllm: line 5: 'new' is not a version specifier such as '>=0.20'"),
        (LEAST + "vllm_mods: {vlm: 1}\n", "vllm_mods.vlm: line 5: unknown key; did you mean 'vllm'?"),
        (LEAST.replace("Least", "——"), "name: line 2: '' cannot name a pairing; choose one with --name"),
    ],
)  # fmt: skip
def test_a_problem_has_its_key_path_and_line(text: str, problem: str) -> None:
    assert problem in problems(text)


@pytest.mark.parametrize(
    "value", ["2026-13-45", '"\\U00110000"', "!!timestamp soon", "!!bool maybe", '!!int ""']
)
def test_text_that_is_no_value_of_its_type_is_no_yaml(value: str) -> None:
    (problem,) = problems(f"{LEAST}x: {value}\n")
    why = "it has a date or another value that does not exist; put text in quotes"
    assert problem == f"line 1: not YAML: {why}"


def test_aliases_that_stand_for_billions_of_values_are_refused() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
    )
    assert problems(LEAST + bomb) == ("line 1: not a recipe: it has more than 10,000 values",)


def test_lines_within_a_command_are_those_of_the_recipe() -> None:
    text = SOUND.replace("{max-num-seqs}", "{max_num_seqs}").replace("'{{", "'{")
    assert problems(text.replace("}}'", "}'"))[:2] == (
        "command: line 37: {max_num_seqs} has no default",
        (
            'command: line 39: {"method": "mtp", "num_speculative_tokens": 1} is not a placeholder; '
            "write a literal brace twice"
        ),
    )


@pytest.mark.parametrize("empty", ["env: []", "defaults: []", "mods: {}", "env: ''"])
def test_what_is_empty_is_none_as_it_is_for_launchers(empty: str) -> None:
    found = read(f"{LEAST}{empty}\n")
    assert found.ok
    assert "empty" in {one.code for one in found.findings}


@pytest.mark.parametrize("family", ["3.5", "3.6"])
def test_a_launchers_own_mod_is_the_bundled_one(family: str) -> None:
    path = f"mods/fix-qwen{family}-enhanced-chat-template"
    found = recipe_yaml.read(
        f"{LEAST}mods: [{path}]\n", "r.yaml", known={f"qwen{family}-enhanced", "other"}
    )
    assert found.ok
    assert found.pairing.mods == (f"qwen{family}-enhanced",)
    assert f"mods:\n- {path}\n" in write(found.pairing)
    theirs = recipe_yaml.read(
        f"{LEAST}mods: [{path}]\n", "r.yaml", known={path.removeprefix("mods/")}
    )
    assert theirs.pairing.mods == (path.removeprefix("mods/"),)


def test_null_sections_are_empty_ones() -> None:
    text = LEAST + "mods:\n  # - mods/slow\ndefaults:\nenv:\n"
    assert read(text).pairing.mods == ()
    assert said(text) == [
        ("note", "model", None),
        ("note", "empty", 5),
        ("note", "empty", 7),
        ("note", "empty", 8),
    ]


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["vllm serve m", "  --a 1"], 6),
        (["vllm serve m \\", "  # --b \\", "  --a 1"], 7),
        (["vllm serve m \\", "", "  --a 1"], 7),
    ],
)
def test_what_a_shell_would_cut_off_is_said(command: list[str], line: int) -> None:
    block = "command: |\n" + "".join(f"  {one}\n" for one in command)
    text = LEAST.replace("command: vllm serve example/m\n", block)
    (found,) = [one for one in read(text).findings if one.level is Level.ERROR]
    assert (found.code, found.line) == ("cut-off", line)
    assert "`--a 1` is a separate command" in found.message
    assert "because the line before it ends without a backslash or in a comment" in found.message


def test_a_command_before_the_server_is_said() -> None:
    text = LEAST.replace("vllm serve", "ulimit -n 4096; vllm serve")
    assert ("error", "not-done", 4) in said(text)


def test_what_the_shell_of_a_launcher_changes_in_the_environment_is_said() -> None:
    text = LEAST + "env:\n  CONFIG: '{\"a\": 1}'\n  HOME_OF_IT: $HOME/x\n  X: yes\n"
    assert said(text)[1:] == [
        ("error", "env-shell", 6),
        ("error", "env-shell", 7),
        ("note", "env-bool", 8),
    ]
    assert read(text).pairing.env["X"] == "True"


def test_values_are_those_of_the_launcher() -> None:
    values = "{a: on, b: 1e3, c: 0x10, d: 1:30, e: 2026-03-01, f: '1', g: 1.0}"
    text = LEAST.replace("example/m", "m {a} {b} {c} {d} {e} {f} {g}") + f"defaults: {values}\n"
    assert pairings.rendered(read(text).pairing) == launched(text)


def test_a_command_that_serves_another_model_is_told() -> None:
    assert said(LEAST + "model: example/other\n") == [("note", "model", 5)]
    assert said(LEAST + "model: example/m\n") == []


def test_an_unknown_version_is_read_and_said() -> None:
    assert ("error", "recipe-version", 1) in said(LEAST.replace('"1"', "3"))


def test_a_mod_option_for_a_path_that_is_not_there_is_refused() -> None:
    with pytest.raises(ManifestError, match="the recipe has no mod mods/x, which --mod names"):
        read(LEAST, mods={"mods/x": "fast"})


@pytest.mark.parametrize("before", [" --port", "'{sampling}'"])
def test_typographic_marks_in_a_command_are_an_error(before: str) -> None:
    after = before.replace("--", "\u2013").replace("'", "\u2018")
    assert ("error", "dash") in [finding[:2] for finding in said(SOUND.replace(before, after))]


def test_a_recipe_that_a_forum_mangled_is_refused_with_its_line() -> None:
    assert problems(PASTED) == ("line 20: not YAML: could not find expected ':'",)


SAYING = """\
recipe_version: "2"
name: The Model
container: image
model: example/other
model_revision: 7
include: [a.yaml]
runtime: vllm-ray
build_args: [--exp, null]
mods: [mods/none/, mods/fast.zip]
defaults:
  port: 8000
  unused: 1
  empty:
env:
  X: true
  Y: `pwd`
command: |
  export A=1 B=2
  vllm serve example/m --port {port} --note \u201cx \\
    --to $HOME
  --a-flag-that-nobody-ever-heard-of --another-one
"""


SAID = """\
1 error recipe-version recipe_version: is '2'; the recipe is read as version 1
4 note model model: is example/other; the command serves example/m
6 error not-done include: is only kept for `export`: no pairing can do what it asks for
7 note kept runtime: vllm-mods uses this key only for `export`
8 note kept build_args: vllm-mods uses this key only for `export`
9 error unknown-mod mods[0]: mods/none/: there is no mod `none`; the path is kept; `--mod mods/none/=NAME` names a mod to use instead
12 note unused-default defaults.unused: no {placeholder} uses it
13 note empty defaults.empty: is empty and was left out
15 note env-bool env.X: is True in the container, as YAML reads it as true or false; put it in quotes to keep what you wrote
16 error env-shell env.Y: '`pwd`' is expanded by the shell of a launcher; here it is taken literally
18 error not-done command: `export A=1 B=2` runs before the server, and a pairing cannot run other commands
19 error dash command: \u201c is a typographic character: write two hyphens, or a plain quote
20 note shell command: `$HOME` gets its value from the shell of the server
21 error cut-off command: `--a-flag-that-nobody-ever-heard-of --an…` is a separate command that runs after vLLM has ended, \
because the line before it ends without a backslash or in a comment
"""


def test_each_finding_is_told_in_full_with_its_place() -> None:
    imported = read(SAYING.replace("`pwd`", "'`pwd`'"))
    assert not imported.ok
    lines = (f"{one.line} {one.level} {one.code} {one.message}\n" for one in imported.findings)
    assert "".join(lines) == SAID
    pairing = imported.pairing
    assert (pairing.name, pairing.summary, pairing.revision) == ("the-model", "The Model", "7")
    assert pairing.mods == ("none", "fast")
    assert pairing.recipe is not None
    assert pairing.recipe == ("2", "The Model", {"none": "mods/none/", "fast": "mods/fast.zip"}, {
        "include": ["a.yaml"], "runtime": "vllm-ray", "build_args": ["--exp"]
    })  # fmt: skip


@pytest.mark.parametrize(
    ("command", "model"),
    [
        ("vllm serve example/m --model example/n", "example/m"),
        ("vllm serve --model example/n --port 1", "example/n"),
        ("python -m vllm.entrypoints.openai.api_server --model example/n", "example/n"),
    ],
)
def test_a_model_is_taken_from_the_command_that_names_it(command: str, model: str) -> None:
    imported = read(LEAST.replace("vllm serve example/m", command))
    assert imported.pairing.model == model
    (note,) = imported.findings
    assert (note.code, note.message) == (
        "model",
        f"model: the recipe names no model; the command serves {model}",
    )


def test_a_pairing_is_written_with_its_keys_in_order_and_nothing_empty() -> None:
    pairing = pairings.Pairing(
        name="ours",
        summary="sümmary",
        model="example/m",
        base="image",
        command="vllm serve {model}\n  --x\n",
        mods=("fast",),
        vllm="==0.21.0",
        topology="solo",
        recipe=pairings.Recipe("1", "Our Model", {"fast": "x/fast.zip"}, {"build_args": ["--exp"]}),
    )
    assert (
        write(pairing)
        == """\
recipe_version: '1'
name: Our Model
description: sümmary
model: example/m
solo_only: true
container: image
build_args:
- --exp
vllm_mods:
  name: ours
  vllm: ==0.21.0
mods:
- x/fast.zip
defaults:
  model: example/m
command: |
  vllm serve {model}
    --x
"""
    )


def test_a_document_has_the_line_of_each_key_and_item() -> None:
    document = yaml_source.load("a: 1\n\nb:\n  c: [x, {d: 2}]\ne: |\n  text\nf: >\n  text\n")
    assert document.lines == {
        "a": 1, "b": 3, "b.c": 4, "b.c[0]": 4, "b.c[1]": 4, "b.c[1].d": 4, "e": 5, "f": 7
    }  # fmt: skip
    assert document.value["b"] == {"c": ["x", {"d": 2}]}


def test_a_file_has_as_many_values_and_levels_as_the_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lower(monkeypatch, "RECIPE_VALUES", 4)
    assert yaml_source.load("a: [1, 2]\n").value == {"a": [1, 2]}
    with pytest.raises(yaml_source.YamlError, match="line 1: not a recipe: it has more than 4"):
        yaml_source.load("a: [1, 2, 3]\n")
    lower(monkeypatch, "NESTING", 2)
    assert yaml_source.load("a:\n  - 1\n").value == {"a": [1]}
    with pytest.raises(yaml_source.YamlError, match="line 2: nested too deeply"):
        yaml_source.load("a:\n  - [1]\n")


def test_of_a_key_that_is_there_twice_the_last_counts_as_launchers_read_it() -> None:
    text = LEAST + "env:\n  A: 1\n  A: 2\n  B: 3\nname: Again\nx: {a: [1, 2]}\nx: {a: [3]}\n"
    found = recipe_yaml.read(text, "r.yaml", known=())
    assert found.pairing.name == "again"
    assert dict(found.pairing.env) == {"A": "2", "B": "3"}
    assert found.pairing.recipe is not None
    assert found.pairing.recipe.keys["x"] == {"a": [3]} == yaml.safe_load(text)["x"]
    assert [
        (one.line, one.message) for one in found.findings if one.code == "key-twice"
    ] == [
        (7, "env.A: is there twice: launchers read this one, and ignore line 6"),
        (9, "name: is there twice: launchers read this one, and ignore line 2"),
        (11, "x: is there twice: launchers read this one, and ignore line 10"),
    ]  # fmt: skip
    assert found.ok
    assert "x.a[1]" not in yaml_source.load(text).lines


def test_half_a_character_is_no_text() -> None:
    with pytest.raises(yaml_source.YamlError) as caught:
        yaml_source.load('a: 1\nb: "\\uD800"\n')
    assert str(caught.value) == "line 2: half of a surrogate pair, which text cannot contain"
