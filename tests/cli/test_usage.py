"""Command lines that cannot be meant: what is wrong with each, and what to type instead."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from lowering import lower

from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod, Verdict
from vllm_mods.cli import answers, examples, main, matrix, named_files, options, terminal
from vllm_mods.matrices.locks import Updated
from vllm_mods.report.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

WHOSE_LOG = (
    "give one of --container, --log and --record; --record takes no PAIRING or MOD",
    "docker logs NAME 2>&1 | vllm-mods evidence MOD --log -",
)
NO_TREE = (
    "no --tree was named: the vLLM that the diff was made on, or that the command is to run on"
)
NO_PLACE = "name the folder with vllm/, or a virtual environment; a release is pypi:VERSION"
RECORD = (
    "--record needs a command to run, and a command needs --record",
    "vllm-mods new x --record --tree TREE -- COMMAND",
)
IMAGE_OF_NEW = ("--image replaces --tree, and needs --record", "--record --image REF")
ONE_OF_PORT = ("give exactly one of --to, --continue and --abort", "vllm-mods port fast --to TREE")
FOR_MODS = (
    "these cannot be used with it.yaml, which is not a mod: --{}",
    "a mod is a folder or a zip with a run.sh; for the image of a Dockerfile: vllm-mods new NAME --from-trees image:BASE image:BUILT",
)
FOR_RECIPES = (
    "--mod is for recipes, and library/patches/fast is a mod",
    "omit --mod; --library DIR writes a mod to DIR/patches/NAME",
)
PARSERS = (
    "--parsers and --target need each other, and --tool-call-parser and --reasoning-parser need both",
    "vllm-mods template check TEMPLATE --parsers --target pypi:VERSION",
)


CASES: list[tuple[str, str, str]] = [
    ("evidence fast", *WHOSE_LOG),
    ("evidence fast --log x --container y", *WHOSE_LOG),
    ("evidence fast --log none", "none cannot be read: No such file or directory", "ls -la {here}  # shows what is there"),
    ("import gone --tree x", "gone cannot be read: No such file or directory", "ls -la {here}  # shows what is there"),
    ("new x", NO_TREE, "vllm-mods new x --from-diff FILE --tree auto"),
    ("new x --tree site", "site: no such file or folder", NO_PLACE),
    ("new x --record", *RECORD),
    ("new x --from-diff it.yaml -- true", *RECORD),
    ("new x --record -- true a", NO_TREE, "vllm-mods new x --record --tree TREE -- COMMAND"),
    ("new x --from-diff it.yaml --image y", *IMAGE_OF_NEW),
    ("new x --record --image y --tree site -- true", *IMAGE_OF_NEW),
    (
        "new x --from-diff it.yaml",
        NO_TREE,
        "vllm-mods new x --from-diff it.yaml --tree auto",
    ),
    ("port fast", *ONE_OF_PORT),
    ("port fast --continue --abort", *ONE_OF_PORT),
    ("port fast --to site --abort", *ONE_OF_PORT),
    (
        "import it.yaml --fetch --offline",
        "--fetch needs the network, but --offline forbids that",
        "omit one",
    ),
    *(
        (f"import it.yaml --{option} 1", FOR_MODS[0].format(option), FOR_MODS[1])
        for option in ("tree", "image", "with", "summary", "license", "vllm", "env", "timeout")
    ),
    (
        "new x --from-diff it.yaml --tree auto --env A=1 --partial",
        "these cannot be used with a diff or two trees: --env, --partial",
        "vllm-mods new x --from-diff it.yaml --tree auto",
    ),
    (
        "new x --from-trees site site --tree site",
        "these cannot be used with --from-trees: --tree",
        "--from-trees OLD NEW",
    ),
    (
        "sync --fetch --check --target site",
        "these cannot be used with --fetch: --target, --check",
        "omit --fetch, or omit these",
    ),
    (
        "revert --only-edits --discard-edits --target site",
        "--only-edits takes no mods and no --discard-edits: it undoes the edits, and keeps all mods",
        "omit --only-edits to remove mods",
    ),
    ("import library/patches/fast --mod x=y", *FOR_RECIPES),
    *(
        (
            f"import it.yaml --mod {text}",
            f"--mod {text} is not PATH=NAME",
            "--mod mods/fix=qwen3.5-enhanced",
        )
        for text in ("x", "=x", "x=")
    ),
    ("template check --parsers", *PARSERS),
    ("template check --target site", *PARSERS),
    ("template check --tool-call-parser x", *PARSERS),
    ("template check --reasoning-parser x", *PARSERS),
    ("export fast", "to export a mod, name its new folder", "--output mods/fast"),
    (
        "export fast --output x --shm-size 3g",
        "the options from --restart to --lock are for a compose file only",
        "--format compose",
    ),
    (
        "export fast --output x --format compose",
        "fast is a mod; compose files are for pairings",
        "name a pairing",
    ),
    (
        "explain aplies",
        "`aplies` is not known; `explain` knows the codes in brackets after findings, and: ",
        "vllm-mods explain applies",
    ),
    ("remove x", "there is no project here: vllm-mods.toml is neither in this folder nor in a parent folder of this repository", "vllm-mods add SOURCE --mod MOD  # begins a project"),
    ("explain zzzz", "`zzzz` is not known; `explain` knows the codes in brackets after findings, and: ", "vllm-mods explain WORD  # one of these"),
    ("check --target", "Option '--target' requires an argument.", "vllm-mods check --help"),
    ("aply", "there is no command `aply`; did you mean `apply`?", "vllm-mods --help"),
    ("zzzz", "there is no command `zzzz`; `vllm-mods --help` lists them", "vllm-mods --help"),
    ("matrix --jobs 0", "Invalid value for '--jobs': 0 is not in the range x>=1.", "vllm-mods matrix --help"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "says", "names"),
    [
        ("show fsat", "there is no mod or pairing named `fsat` in ", "did you mean `fast`?"),
        ("export fsat", "there is no mod or pairing named `fsat` in ", "did you mean `fast`?"),
        (
            "template render qwen3.5-enhanced nobody",
            "nobody is neither a file nor a conversation beside qwen3.5-enhanced",
            "one of 01-developer-first, ",
        ),
    ],
)
def test_a_name_of_nothing_is_told_with_those_that_there_are(
    call: Call, command: str, says: str, names: str
) -> None:
    answer = call(*command.split())
    assert answer.code == 2
    assert answer.err.startswith(f"error: {says}")
    assert f"\nhint: {names}" in answer.err


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_what_cannot_be_meant_is_told_with_what_to_type(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, str]
) -> None:
    line, message, hint = case
    hint = hint.replace("{here}", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "it.yaml").write_text("x: 1\n")
    (tmp_path / "t.jinja").write_text("x")
    (tmp_path / "m.json").write_text('[{"role": "user", "content": "x"}]')
    answer = call(*line.split())
    assert (answer.code, answer.out == "") == (2, "--json" not in line)
    assert answer.err.startswith(f"error: {message}")
    assert answer.err.endswith(f"\n\nhint: {hint}\n")
    if not message.endswith((": ", ", ")):
        assert answer.err == f"error: {message}\n\nhint: {hint}\n"


def test_a_name_of_a_mod_and_of_a_pairing_is_refused(call: Call, library: Path) -> None:
    pairing = library / "pairings/fast.toml"
    pairing.parent.mkdir()
    pairing.write_text(
        'schema = 1\nname = "fast"\nsummary = "s"\nmodel = "m"\nbase = "b:1"\n'
        'command = "vllm serve m"\n'
    )
    shown = call("show", "fast")
    assert (shown.code, shown.err) == (
        2,
        f"error: `fast` is the name of a mod and of a pairing, {pairing}\n\nhint: rename the pairing: rename its file, and edit `name` in it\n",
    )
    exported = call("export", "fast", "--output", "x")
    assert (exported.code, exported.err) == (
        2,
        "error: `fast` names both a mod and a pairing\n\nhint: rename one of them\n",
    )


@pytest.mark.parametrize("text", ["-1", "1.5", "٣", "x"])
def test_a_source_date_epoch_that_is_no_number_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    with pytest.raises(UsageError) as caught:
        options.read_source_date_epoch()
    assert caught.value.message == (
        f"SOURCE_DATE_EPOCH is {text!r}; it must be a number of seconds since 1970"
    )
    assert caught.value.hint == "SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)"


@pytest.mark.parametrize(("text", "number"), [(None, None), ("", None), ("0", 0), ("17", 17)])
def test_a_source_date_epoch_is_seconds(
    monkeypatch: pytest.MonkeyPatch, text: str | None, number: int | None
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    if text is not None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    assert options.read_source_date_epoch() == number


def test_a_file_that_is_too_much_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "RECEIPT", 3)
    (tmp_path / "x.diff").write_text("abcd")

    with pytest.raises(UsageError) as caught:
        named_files.read(str(tmp_path / "x.diff"))
    assert caught.value.hint == f"ls -la {tmp_path}/x.diff"
    (tmp_path / "x.diff").write_text("abc")
    assert named_files.read(str(tmp_path / "x.diff")) == b"abc"


# --- answers that are made here -----------------------------------------------------------------


def test_an_exported_mod_is_told_with_its_files(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = call("export", "fast", "--output", "out", "--json")
    files = sorted(
        str(path.relative_to(tmp_path / "out"))
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    )
    assert answer.json == {"schema": 1, "mod": "fast", "folder": "out", "files": files}
    words = call("export", "fast", "--output", "more").out
    assert words == f"wrote more: {len(files)} files; name it in a recipe as more\n"


def test_libraries_that_were_fetched_are_named(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vllm-mods.toml").write_text("schema = 1\n")
    answer = call("sync", "--fetch", "--json")
    project = {"project": f"{tmp_path}/vllm-mods.toml", "libraries": []}
    assert (answer.code, answer.json) == (0, {"schema": 1, **project})
    assert (
        call("sync", "--fetch").out
        == "fetched at their locked versions: none, as the project has no library\n"
    )


def test_json_is_laid_out_for_people_too(call: Call) -> None:
    answer = call("explain", "70", "--json")
    assert answer.out == json.dumps(answer.json, indent=2) + "\n"
    assert call("explain", "70").out == "70 (exit code): a bug\n"
    assert call("explain", "usage").out.splitlines()[1:] == ["  exit code 2"]


def test_a_library_is_put_in_order_for_who_writes_to_it_alone(library: Path) -> None:
    (library / ".vllm-mods.new").mkdir()  # of a write that was killed
    options.open_libraries((str(library),))
    assert (library / ".vllm-mods.new").exists()
    options.open_libraries((str(library),), own=True)
    assert not (library / ".vllm-mods.new").exists()


# --- what a lock that was written, says ---------------------------------------------------------


WAS_OF = "note: entries of the previous mod.lock"


@pytest.mark.parametrize(
    ("updated", "expected"),
    [
        ({}, ""),
        ({"kept": ("1",)}, "note: the entries of 1 other release in mod.lock are unchanged\n"),
        (
            {"why": "was of an older form"},
            "note: entries of the previous mod.lock were removed: the file was of an older form\n",
        ),
        (
            {"why": "was of another mod", "lost": ("0.19.0", "0.20.0")},
            f"{WAS_OF} for 0.19.0, 0.20.0 were removed: the file was of another mod\n\nhint: vllm-mods matrix m --vllm '>=0.19.0,<=0.20.0' --update-lock --library /lib\n",
        ),
    ],
)
def test_a_lock_that_was_written_is_told_with_what_was_lost(
    capsys: pytest.CaptureFixture[str], updated: dict[str, Any], expected: str
) -> None:
    mod = Mod("m", "1", "s", "MIT", "/lib/patches/m", "d")
    lock: Any = None
    matrix._tell_lock(mod, Updated(lock, **{"kept": (), "lost": (), "why": None, **updated}))
    assert capsys.readouterr().err == f"wrote /lib/patches/m/mod.lock\n{expected}"


# --- terminals ----------------------------------------------------------------------------------


class Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def on_screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Have stderr be a terminal of which nobody said anything, and return it."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    stream = Screen()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


@pytest.mark.parametrize(
    ("environ", "is_terminal", "colored"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": ""}, False, False),
    ],
)
@pytest.mark.parametrize("err", [True, False])
def test_who_gets_colour(
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    *,
    is_terminal: bool,
    colored: bool,
    err: bool,
) -> None:
    stream = on_screen(monkeypatch) if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr" if err else "stdout", stream)
    monkeypatch.setattr(sys, "stdout" if err else "stderr", io.StringIO())
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert terminal.colored(err=err) is colored


@pytest.mark.parametrize(
    ("verdict", "words", "codes"),
    [
        (Verdict.APPLIES, None, "\033[32m\033[1mapplies\033[0m"),
        (Verdict.UPSTREAM, None, "\033[36m\033[1mupstream\033[0m"),
        (Verdict.CONFLICT, None, "\033[31m\033[1mconflict\033[0m"),
        (Verdict.CONFLICT, "it clashes", "\033[31m\033[22mit clashes\033[0m"),
    ],
)
def test_a_verdict_has_its_colour_and_words_about_it_are_not_bold(
    monkeypatch: pytest.MonkeyPatch, verdict: Verdict, words: str | None, codes: str
) -> None:
    screen = on_screen(monkeypatch)
    painted = answers.paint(verdict, words, err=True)
    terminal.ShownText(screen).write(painted + "\033[0m\r")
    assert screen.getvalue() == f"{codes}\\x1b[0m\\x0d"


def test_an_error_and_its_hint_have_colours_of_their_own(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert call("zzzz").err == (
        "\033[31m\033[1merror:\033[0m there is no command `zzzz`; `vllm-mods --help` lists them\n"
        "\n\033[36mhint:\033[0m vllm-mods --help\n"
    )


# --- help ---------------------------------------------------------------------------------------


def test_a_command_has_the_examples_of_its_own_name() -> None:
    assert examples.examples("status") == [
        line for line in examples.EXAMPLES if line.startswith("vllm-mods status ")
    ]
    assert examples.epilog("explain") == "\b\nExamples:\nvllm-mods explain conflict"
    assert [line.split()[1] for line in examples.examples("")][:2] == ["doctor", "check"]


# --- how options are declared --------------------------------------------------------------------


def declared(*declarations: options.Declared) -> dict[str, Any]:
    """Return what options become, by the names that a command has for them, the last one first."""

    def command(**values: Any) -> Any:
        return values

    for declare in declarations:
        command = declare(command)
    return {one.name: one for one in reversed(command.__click_params__)}  # type: ignore[attr-defined]


def test_an_option_is_declared_as_its_help_has_it() -> None:
    known = declared(
        options.option("--lock FILE", "A lock."),
        options.option("--check", "Look."),
        options.option("--tree TREE", "Trees.", "trees", multiple=True),
        options.option("--jobs", "How many.", type=int),
    )
    assert [*known] == ["jobs", "trees", "check", "lock"]
    facts = {
        name: (one.opts, one.metavar, one.is_flag, one.multiple, one.help)
        for name, one in known.items()
    }
    assert facts == {
        "lock": (["--lock"], "FILE", False, False, "A lock."),
        "check": (["--check"], None, True, False, "Look."),
        "trees": (["--tree"], "TREE", False, True, "Trees."),
        "jobs": (["--jobs"], None, False, False, "How many."),
    }


@pytest.mark.parametrize(
    ("spelled", "kind"),
    [
        ("--a DIR", "file"),
        ("--a FILE", "file"),
        ("--a TREE", "file"),
        ("--a PATH", "file"),
        ("--a REV", None),
    ],
)
def test_an_option_for_a_place_completes_as_one(spelled: str, kind: str | None) -> None:
    context = main.make_context("vllm-mods", ["list"], resilient_parsing=True)
    items = declared(options.option(spelled, "x"))["a"].shell_complete(context, "typed")
    assert [(one.value, one.type) for one in items] == ([("typed", kind)] if kind else [])


def test_the_first_of_several_forms_is_the_one_without_an_option() -> None:
    form = declared(options.form("How.", ("text", "json")))["form"]
    assert (form.opts, form.default, form.show_default) == (["--format"], "text", True)
    assert (form.help, [*form.type.choices]) == ("How.", ["text", "json"])


def test_options_that_are_grouped_reach_a_command_as_one_value() -> None:
    def make(*, first: str, second: str = "b") -> str:
        return first + second

    first, other = options.option("--first X", "x"), options.option("--other Y", "y")
    declare = options.grouped("both", make, first, other)
    assert [*declared(declare)] == ["other", "first"]

    def command(**values: Any) -> Any:
        return values

    assert declare(command)(first="a", other="o") == {"other": "o", "both": "ab"}
    assert options.all_of(first, other)(command) is command


def test_a_command_with_json_prints_its_reply_in_the_form_that_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = options.json_output(lambda name: Reply({}, f"it is {name}", ok=False))
    (flag,) = command.__click_params__  # type: ignore[attr-defined]
    assert (flag.name, flag.opts, flag.is_flag) == ("as_json", ["--json"], True)
    assert command(as_json=False, name="x") == 1
    assert capsys.readouterr().out == "it is x\n"


def test_a_reply_is_printed_with_what_happened_before_it_and_the_next_step_behind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reply = Reply({}, "words", next_step="step", stderr=("note: a", "note: b"))
    assert answers.print_reply(reply, as_json=False) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("words\n", "note: a\nnote: b\n\nhint: step\n")
    no = Reply({}, ok=False)
    assert answers.print_reply(no, as_json=False) == 1
    assert answers.print_reply(no._replace(exit_code=0), as_json=False) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")
