"""Pairings: read, written, filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing, Recipe
from vllm_mods.library.catalog import Library

if TYPE_CHECKING:
    from pathlib import Path

LEAST = """\
schema = 1
name = "p"
summary = "s"
model = "example/m"
base = "example/vllm:1"
command = "vllm serve {model}"
"""


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        pairings.parse(text.encode(), "p.toml")
    return caught.value.problems


def made(command: str, **more: object) -> Pairing:
    fields = {"name": "p", "summary": "s", "model": "example/m", "base": "b", **more}
    return Pairing(command=command, **fields)  # type: ignore[arg-type]


def test_the_least_that_a_pairing_says() -> None:
    read = pairings.parse(LEAST.encode(), "p.toml")
    assert pairings.arguments(read) == ("vllm", "serve", "example/m")
    assert (read.mods, read.templates, read.topology, read.recipe) == ((), (), "any", None)


def test_every_problem_is_reported_with_its_key_path() -> None:
    text = LEAST.replace('"example/m"', '""').replace("{model}", "{x} {model")
    text += 'vllm = "new"\nmods = ["A b"]\ntopology = "one"\nmodl = 1\n'
    text += '[defaults]\na = []\n[env]\n"1A" = "x"\nB = 1\n'
    assert problems(text) == (
        "model: is empty",
        "mods[0]: expected the name of a mod, found 'A b'",
        "defaults.a: expected text, a number, true or false, found an array",
        "env.1A: is not the name of an environment variable",
        "env.B: expected a string, found an integer",
        "topology: expected one of any, solo, cluster, found 'one'",
        "vllm: 'new' is not a version specifier such as '>=0.20'",
        "command: line 1: {x} has no default",
        "command: line 1: { is not a placeholder; write a literal brace twice",
        "modl: unknown key; did you mean 'model'?",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"\xff", "not UTF-8: byte 0"),
        (b"a = ", "not TOML"),
        (b"a = 1\nb = ]\n", "not TOML: Invalid value (at line 2, column 5)"),
    ],
)
def test_bytes_that_are_no_toml(text: bytes, says: str) -> None:
    with pytest.raises(ManifestError) as caught:
        pairings.parse(text, "p.toml")
    assert says in caught.value.problems[0]


def test_names_are_named_once() -> None:
    assert problems(f'{LEAST}mods = ["a", "b", "a"]\n') == ("mods: 'a' is listed twice",)


def test_a_quote_that_is_not_closed_is_named_with_its_line_in_the_command() -> None:
    text = LEAST.replace('"vllm serve {model}"', '"""\nvllm serve \\\\\n\n  --a \'b\n"""')
    assert problems(f'{text}topology = "solo"\n') == ("command: line 3: a ' is not closed",)


def test_json_in_single_braces_is_explained() -> None:
    text = LEAST.replace('"vllm serve {model}"', """'''vllm serve m --x '{"a": 1}' '''""")
    assert problems(text) == (
        'command: line 1: {"a": 1} is not a placeholder; write a literal brace twice',
    )


def test_what_is_written_reads_the_same() -> None:
    pairing = made(
        "vllm serve {model} \\\n  --x '{{\"a\": 1}}' {max-num-seqs}\n",
        revision="abc",
        vllm=">=0.21,<0.22",
        mods=("a", "b"),
        templates=("t",),
        defaults={
            "max-num-seqs": 4,
            "f": 0.5,
            "b": True,
            "q": 'it\'s "so"',
            "ü.x": "\x7f\n",
            "e": 1e16,
        },
        env={"A": "1", "B": "$x"},
        topology="cluster",
        recipe=Recipe(
            "2",
            "P q",
            {"a": "mods/a-fix"},
            {"build_args": ["--x"], "deep": {"a b": [1, {"c": 0.5}], "empty": {}}},
        ),
    )
    assert pairings.parse(pairings.dump(pairing), "p.toml") == pairing
    assert pairings.digest(pairing) == pairings.digest(
        pairings.parse(pairings.dump(pairing), "p.toml")
    )


def test_the_digest_changes_with_the_content() -> None:
    assert pairings.digest(made("vllm serve a")) != pairings.digest(made("vllm serve b"))


def test_defaults_are_filled_in() -> None:
    pairing = made(
        "vllm serve m --p {port} {max-num-seqs} {on} {{x}}",
        defaults={"port": 1, "max-num-seqs": 2, "on": True},
    )
    assert pairings.rendered(pairing) == "vllm serve m --p 1 2 True {x}"


def test_a_placeholder_without_a_value_is_refused_with_its_line() -> None:
    with pytest.raises(UsageError, match=r"`p`.*line 2: \{x\} has no default") as caught:
        pairings.rendered(made("vllm serve m \\\n --x {x}"))
    assert caught.value.hint is not None


def test_one_node_has_one_gpu_and_no_executor() -> None:
    command = "vllm serve m \\\n  -tp {tensor_parallel} \\\n  --distributed-executor-backend ray \\\n  --x\n"
    pairing = made(command, defaults={"tensor_parallel": 2}, topology="solo")
    assert pairings.arguments(pairing) == ("vllm", "serve", "m", "-tp", "1", "--x")
    assert "ray" in pairings.rendered(pairing._replace(topology="any"))


def test_a_recipes_launcher_starts_no_ray_unless_it_is_asked_to() -> None:
    command = "vllm serve m \\\n  -tp {tensor_parallel} \\\n  --distributed-executor-backend ray \\\n  --x\n"
    pairing = made(command, defaults={"tensor_parallel": 2}, recipe=Recipe("1", "m", {}, {}))
    assert pairings.arguments(pairing) == ("vllm", "serve", "m", "-tp", "2", "--x")


def test_a_backslash_at_the_end_is_dropped() -> None:
    assert pairings.rendered(made("vllm serve m \\\n  --x \\\n\n")) == "vllm serve m \\\n  --x"


def test_the_command_that_serves_is_found_among_others() -> None:
    pairing = made("export A=1\ncd /x && B=2 exec env C=3 /opt/bin/vllm serve m --x | tee log")
    command, script = pairings.serve_command(pairing)
    assert command.argv == ("/opt/bin/vllm", "serve", "m", "--x")
    assert command.assignments == (("B", "2"), ("C", "3"))
    assert len(script.commands) == 4


def test_what_a_command_says_has_the_lines_that_its_author_wrote() -> None:
    pairing = made(
        "\n\nexport A=1\n# why\n{twice}\necho $(date)\nvllm serve {model}",
        defaults={"twice": "a\nb"},
    )
    command, script = pairings.serve_command(pairing)
    assert command.line == 7
    assert [one.line for one in script.commands] == [3, 5, 5, 6, 7]
    assert [(one.line, one.text) for one in script.unknown] == [(6, "$(date)")]
    assert script.comments == ((4, "# why"),)
    assert pairings.faults(made("\nvllm serve m\necho 'x"))[0].startswith("line 3: ")


def test_version_one_of_recipes_knows_no_model_placeholder() -> None:
    pairing = made("vllm serve {model}", recipe=Recipe("1", "p", {}, {}))
    assert pairings.faults(pairing) == ("line 1: {model} has no default",)
    assert pairings.faults(pairing._replace(recipe=Recipe("2", "p", {}, {}))) == ()


@pytest.mark.parametrize("joint", [" ", "=", " \\\n  "])
def test_the_template_is_named_where_it_lies(joint: str) -> None:
    pairing = made(f"vllm serve m --chat-template{joint}'t.jinja' --x", env={"A": "b c"})
    script = pairings.serve_script(pairing, {"t.jinja": "/a b/t.jinja"})
    assert script == f"export A='b c'\nvllm serve m --chat-template{joint}'/a b/t.jinja' --x"


def test_a_template_of_another_name_stays() -> None:
    pairing = made("vllm serve m --chat-template /x/u.jinja")
    assert pairings.serve_script(pairing, {"t.jinja": "/t.jinja"}) == pairing.command


@pytest.mark.parametrize(
    ("vllm", "version", "note"),
    [
        (None, "0.20.0", None),
        ("0.21.0", "0.21.0", None),
        (">=0.21", "0.22.0", None),
        ("0.21.0", "0.20.0", "pairing p is for vLLM 0.21.0, but this tree is 0.20.0"),
        (">=0.21", None, "pairing p is for vLLM >=0.21, but this tree is of unknown version"),
    ],
)
def test_another_vllm_than_the_pairings_is_noted(
    vllm: str | None, version: str | None, note: str | None
) -> None:
    assert pairings.advice(made("vllm serve m", vllm=vllm), version) == note


@pytest.mark.parametrize(
    ("words", "is_one"),
    [
        ("vllm serve m", True),
        ("/opt/bin/vllm serve", True),
        ("vllm bench", False),
        ("serve vllm", False),
        ("python3 -m vllm.entrypoints.openai.api_server", True),
        ("python3 -u -m vllm.entrypoints.openai.api_server", True),
        ("python3 -X y -m vllm.entrypoints.openai.api_server", False),
        ("pkill -f vllm.entrypoints.openai.api_server", False),
        ("vllm", False),
    ],
)
def test_what_serves(words: str, *, is_one: bool) -> None:
    assert pairings.serves(tuple(words.split())) is is_one


def test_a_pairing_is_written_as_a_person_would() -> None:
    pairing = made(
        "vllm serve {model} \\\n  --x\n",
        revision="abc",
        vllm="0.21.0",
        mods=("fast",),
        templates=("t",),
        defaults={"port": 1},
        env={"A": "b"},
        recipe=Recipe("1", "The P", {"fast": "mods/fast"}, {"build_args": ["--exp"]}),
    )
    assert (
        pairings.dump(pairing).decode()
        == """\
schema = 1
name = "p"
summary = "s"
model = "example/m"
revision = "abc"
base = "b"
vllm = "0.21.0"
mods = ["fast"]
templates = ["t"]
topology = "any"
command = '''
vllm serve {model} \\
  --x
'''

[defaults]
port = 1

[env]
A = "b"

[recipe]
version = "1"
name = "The P"

[recipe.mods]
fast = "mods/fast"

[recipe.keys]
build_args = ["--exp"]
"""
    )


# --- in a library -----------------------------------------------------------


def write(library: Path, name: str, text: str = LEAST) -> Path:
    (library / "pairings").mkdir(parents=True, exist_ok=True)
    path = library / "pairings" / f"{name}.toml"
    path.write_text(text)
    return path


def test_a_library_of_pairings_alone(tmp_path: Path) -> None:
    path = write(tmp_path, "p")
    library = Library(str(tmp_path))
    assert "p" in library.pairing_names()
    assert library.pairing("p").model == "example/m"
    assert library.pairing_file("p") == str(path)


def test_a_name_in_two_libraries_is_an_error_that_names_both(tmp_path: Path) -> None:
    paths = [write(tmp_path / one, "p") for one in ("a", "b")]
    library = Library(str(tmp_path / "a"), str(tmp_path / "b"))
    with pytest.raises(UsageError) as caught:
        library.pairing("p")
    assert all(str(path) in caught.value.message for path in paths)


def test_the_file_has_the_name_of_the_pairing(tmp_path: Path) -> None:
    write(tmp_path, "q")
    with pytest.raises(ManifestError, match="name is 'p', but the file is 'q'"):
        Library(str(tmp_path)).pairing("q")


def test_an_unknown_pairing_gets_a_suggestion(tmp_path: Path) -> None:
    write(tmp_path, "mine", LEAST.replace('"p"', '"mine"'))
    with pytest.raises(UsageError) as caught:
        Library(str(tmp_path)).pairing("mien")
    assert caught.value.hint is not None
    assert "`mine`" in caught.value.hint


def test_a_template_stands_for_the_mod_that_brings_it(tmp_path: Path) -> None:
    (tmp_path / "templates/t").mkdir(parents=True)
    (tmp_path / "templates/t/template.jinja").write_text("x")
    for name, brings in (("bringer", "t"), ("a", "qwen3.5-enhanced")):
        folder = tmp_path / "patches" / name
        folder.mkdir(parents=True)
        (folder / "mod.toml").write_text(
            f'schema = 1\nname = "{name}"\nversion = "1"\nsummary = "s"\nlicense = "MIT"\n'
            f'[[variant]]\nid = "v"\nvllm = ">=0.1"\n'
            f'templates = [{{ name = "{brings}", file = "{brings}.jinja" }}]\n'
        )
    library = Library(str(tmp_path))
    pairing = made("x", mods=("a",), templates=("t",))
    assert library.mods_of(pairing) == ("a", "bringer")
    assert library.mods_of(pairing._replace(mods=("bringer", "a"))) == ("bringer", "a")
    with pytest.raises(UsageError, match="pairing `p` names the template `u`, which no mod has"):
        library.mods_of(pairing._replace(templates=("u",)))


@pytest.mark.parametrize("name", Library().pairing_names())
def test_a_bundled_pairing_is_whole(name: str) -> None:
    library = Library()
    pairing = library.pairing(name)
    mods = library.select(library.mods_of(pairing))
    argv = pairings.arguments(pairing)
    assert argv[:3] == ("vllm", "serve", pairing.model)
    files = {
        file.file
        for mod in mods
        for variant in mod.variants
        for file in variant.templates
        if file.name in pairing.templates
    }
    assert argv[argv.index("--chat-template") + 1] in files
    for mod in mods:
        for flag in mod.serve_args:
            assert flag in argv, f"{mod.name} needs {' '.join(mod.serve_args)}"


def test_the_bundled_pairings() -> None:
    assert Library().pairing_names() == (
        "qwen3.5-122b-hybrid",
        "qwen3.5-122b-int4",
        "qwen3.5-122b-int4-flashqla",
        "qwen3.6-35b",
    )
