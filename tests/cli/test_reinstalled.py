"""`status` looks: what pip undid is told, and its hint is the command that puts things right."""

from __future__ import annotations

import os
import py_compile
import sys
from typing import TYPE_CHECKING, Any

import installing
import pytest
import sampling
from command_line import FILES, LOADER, OTHER
from mod_making import diff_of, write_mod
from small_site import RECORD, sha, snapshot

from vllm_mods.formats import record
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Any]

NEW = "vllm/fresh.py"
BESIDE = "kernels/fast.py"
LATER = {**FILES, "vllm/other.py": OTHER.encode() + b"# later\n", "vllm/more.py": b""}
"""A release in which the mods still fit."""


@pytest.fixture
def library(library: Path) -> Path:
    """Add a mod that brings a file into vLLM, and one into a package that no RECORD lists."""
    new = f"--- /dev/null\n+++ b/{NEW}\n@@ -0,0 +1 @@\n+NEW = 1\n".encode()
    beside = f"--- /dev/null\n+++ b/{BESIDE}\n@@ -0,0 +1 @@\n+FAST = 1\n".encode()
    write_mod(library, "new", new + diff_of("vllm/b.py", "B = 1\n", "B = 2\n"))
    write_mod(
        library,
        "beside",
        beside + diff_of("vllm/a.py", "A = 1\n", "A = 2\n"),
        more=f'outside = ["{BESIDE}"]',
    )
    return library


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "site"
    installing.install(root, FILES)
    return root


def hint(answer: Any) -> list[list[str]]:
    """Return the commands that an answer of `status` ends with, as arguments."""
    commands, _, _ = answer.json["hint"].partition("  # drops the edits")
    return [one.split()[1:] for one in commands.split(" && ")]


def standing(answer: Any) -> dict[str, str]:
    return {one["name"]: one["standing"] for one in answer.json["mods"]}


def put_right(call: Call, site: Path) -> None:
    """Follow the hint, and hold every answer to it."""
    answer = call("status", "--target", site, "--json")
    names = [one["name"] for one in answer.json["mods"]]
    assert (answer.code, answer.json["ok"]) == (1, False)
    assert call("verify", "--target", site).code == 1
    for command in hint(answer):
        done = call(*command)
        assert done.code == 0, done.err
    sound(call, site, *names)


def sound(call: Call, site: Path, *names: str) -> None:
    """All four say that these mods are in: status, verify, check and RECORD."""
    answer = call("status", *names, "--target", site, "--json")
    assert (answer.code, standing(answer)) == (0, dict.fromkeys(names, "in"))
    assert answer.json["hint"] is None
    assert call("verify", "--target", site).code == 0
    verdicts = call("check", *names, "--target", site, "--json").json["mods"]
    assert {one["verdict"] for one in verdicts} == {"applied"}
    (info,) = site.glob("vllm-*.dist-info")
    rows = (info / "RECORD").read_bytes()
    for path in site.glob("vllm/*.py"):
        name, data = str(path.relative_to(site)), path.read_bytes()
        assert record.agrees(rows, name, sha(data), len(data)) is True, name


ALL = ("fast", "limit", "new", "beside")


@pytest.mark.slow
@pytest.mark.parametrize("names", [("fast",), ("new",), ("beside",), ALL], ids=" ".join)
@pytest.mark.parametrize("files", [FILES, LATER], ids=["the same", "a later one"])
def test_after_a_new_installation_apply_puts_everything_in_again(
    call: Call, site: Path, names: tuple[str, ...], files: dict[str, bytes]
) -> None:
    assert call("apply", *names, "--target", site).code == 0
    installing.install(site, files, "0.19.1" if files is FILES else "0.20.0")
    before = snapshot(site)
    answer = call("status", "--target", site, "--json")
    assert standing(answer) == dict.fromkeys(names, "undone")
    assert hint(answer) == [["apply", *names, "--target", str(site)]]
    said = call("check", *names, "--target", site, "--json")
    assert said.code == 0
    assert {one["verdict"] for one in said.json["mods"]} <= {"applies", "moved"}
    assert "was undone when" in call("status", "--target", site).out
    assert snapshot(site) == before
    put_right(call, site)


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.slow
def test_what_was_kept_of_an_installation_that_is_gone_is_set_aside(call: Call, site: Path) -> None:
    assert call("apply", "fast", "limit", "--target", site).code == 0
    old = bytes_of(site / ".vllm-mods")
    installing.uninstall(site)
    installing.install(site, LATER, "0.20.0")
    answer = call("apply", "fast", "--target", site)
    assert answer.code == 0
    assert "fast, limit was undone when vLLM was installed again; " in answer.err
    assert "the old originals are now in .vllm-mods.old-1" in answer.err
    assert (
        "the same installation undid limit; to apply again: vllm-mods apply limit --target"
        in answer.err
    )
    assert bytes_of(site / ".vllm-mods.old-1") == old
    sound(call, site, "fast")
    assert call("revert", "--target", site).code == 0
    assert (site / "vllm/loader.py").read_text() == LOADER
    assert (site / "vllm/other.py").read_bytes() == LATER["vllm/other.py"]
    installing.install(site, FILES)
    assert call("apply", "fast", "--target", site).code == 0
    installing.install(site, FILES)
    assert call("apply", "fast", "--target", site).code == 0
    assert (site / ".vllm-mods.old-2").is_dir()


@pytest.mark.slow
def test_what_pip_leaves_alone_is_taken_out_with_the_rest(call: Call, site: Path) -> None:
    assert call("apply", "beside", "fast", "--target", site).code == 0
    installing.install(site, LATER, "0.20.0")
    assert (site / BESIDE).exists()
    assert call("apply", "fast", "--target", site).code == 0
    assert not (site / BESIDE).exists()
    sound(call, site, "fast")
    assert call("revert", "--target", site).code == 0
    assert (site / "vllm/loader.py").read_text() == LOADER
    assert not (site / ".vllm-mods").exists()


@pytest.mark.slow
def test_revert_takes_out_what_is_left_and_keeps_what_the_installer_brought(
    call: Call, site: Path
) -> None:
    assert call("apply", *ALL, "--target", site).code == 0
    installing.install(site, LATER, "0.20.0")
    assert call("revert", "--target", site).code == 0
    assert not (site / ".vllm-mods").exists()
    assert not (site / "kernels").exists()
    for path, data in LATER.items():
        assert (site / path).read_bytes() == data
    assert call("status", "--target", site).code == 0


@pytest.mark.slow
def test_a_release_in_which_a_mod_no_longer_fits_is_refused_and_nothing_moves(
    call: Call, site: Path
) -> None:
    assert call("apply", "fast", "limit", "--target", site).code == 0
    installing.install(site, {**FILES, "vllm/loader.py": b"x = 1\n"}, "0.20.0")
    before = snapshot(site)
    assert call("apply", "fast", "limit", "--target", site).code == 3
    assert snapshot(site) == before
    assert call("apply", "limit", "--target", site).code == 0
    sound(call, site, "limit")


def test_a_release_that_has_the_change_itself_needs_no_mod(call: Call, site: Path) -> None:
    assert call("apply", "limit", "--target", site).code == 0
    done = (site / "vllm/other.py").read_bytes()
    installing.install(site, {**FILES, "vllm/other.py": done}, "0.20.0")
    assert standing(call("status", "--target", site, "--json")) == {"limit": "undone"}
    assert call("apply", "limit", "--target", site).code == 0
    assert not (site / ".vllm-mods").exists()
    assert (site / ".vllm-mods.old-1").is_dir()
    assert call("status", "--target", site).code == 0


@pytest.mark.slow
def test_an_edit_is_no_undoing(call: Call, site: Path) -> None:
    assert call("apply", "fast", "limit", "--target", site).code == 0
    with (site / "vllm/loader.py").open("a") as file:
        file.write("# mine\n")
    answer = call("status", "--target", site, "--json")
    assert (answer.code, standing(answer)) == (1, {"fast": "changed", "limit": "in"})
    assert {one["code"] for one in answer.json["findings"]} == {"changed-since", "record-disagrees"}
    assert call("status", "limit", "--target", site).code == 0
    assert call("status", "fast", "--target", site).code == 1
    put_right(call, site)


@pytest.mark.slow
def test_an_edit_of_a_new_installation_is_left_to_the_plan(call: Call, site: Path) -> None:
    """The originals are of a release that is gone, and never come back."""
    assert call("apply", "fast", "limit", "--target", site).code == 0
    installing.install(site, LATER, "0.20.0")
    with (site / "vllm/other.py").open("a") as file:
        file.write("# mine\n")
    assert call("apply", "fast", "limit", "--target", site).code == 0
    assert call("revert", "--target", site).code == 0
    assert (site / "vllm/other.py").read_bytes() == LATER["vllm/other.py"] + b"# mine\n"


@pytest.mark.slow
def test_an_edit_beside_what_was_undone_is_not_thrown_away(call: Call, site: Path) -> None:
    assert call("apply", "fast", "beside", "--target", site).code == 0
    installing.install(site, LATER, "0.20.0")
    (site / BESIDE).write_text("MINE = 1\n")
    before = snapshot(site)
    assert call("apply", "fast", "beside", "--target", site).code == 3
    assert call("revert", "--target", site).code == 3
    assert snapshot(site) == before
    put_right(call, site)


@pytest.mark.slow
def test_a_file_put_back_by_hand_is_put_in_again(call: Call, site: Path) -> None:
    assert call("apply", "fast", "limit", "--target", site).code == 0
    (site / "vllm/loader.py").write_text(LOADER)
    assert standing(call("status", "--target", site, "--json")) == {"fast": "undone", "limit": "in"}
    put_right(call, site)


@pytest.mark.slow
def test_a_record_put_back_by_hand_undoes_nothing(call: Call, site: Path) -> None:
    rows = (site / RECORD).read_bytes()
    before = {path: (site / path).read_bytes() for path in FILES}
    assert call("apply", "fast", "limit", "--target", site).code == 0
    (site / RECORD).write_bytes(rows)
    answer = call("status", "--target", site, "--json")
    assert standing(answer) == {"fast": "changed", "limit": "changed"}
    put_right(call, site)
    assert call("revert", "--target", site).code == 0
    assert {path: (site / path).read_bytes() for path in FILES} == before


@pytest.mark.slow
def test_the_hint_needs_no_library(
    call: Call, site: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("apply", *ALL, "--target", site).code == 0
    monkeypatch.delenv("VLLM_MODS_LIBRARY")
    library.rename(library.with_name("away"))
    installing.install(site, LATER, "0.20.0")
    for command in hint(call("status", "--target", site, "--json")):
        assert call(*command).code == 0
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(library.with_name("away")))
    sound(call, site, *ALL)


def _make_stale(site: Path) -> None:
    loader = site / "vllm/loader.py"
    loader.chmod(0o600)
    (site / "vllm/__pycache__").mkdir(exist_ok=True)
    tag = sys.implementation.cache_tag
    py_compile.compile(
        str(loader),
        str(site / f"vllm/__pycache__/loader.{tag}.pyc"),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


SPOILED: dict[str, Callable[[Path], object]] = {
    "edited": lambda site: (site / "vllm/loader.py").write_text("mine = 1\n"),
    "gone": lambda site: (site / "vllm/loader.py").unlink(),
    "mode": lambda site: (site / "vllm/loader.py").chmod(0o600),
    "mode and bytecode": _make_stale,
    "record": lambda site: (site / RECORD).write_text((site / RECORD).read_text() + "x.py,,\n"),
    "row": lambda site: (site / RECORD).write_text((site / RECORD).read_text().replace("sha256=", "sha256=a", 3)),
}  # fmt: skip


@pytest.mark.parametrize("how", SPOILED)
def test_the_hint_for_an_edit_keeps_the_mods_where_their_library_is_not_at_hand(
    call: Call, site: Path, library: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.delenv("VLLM_MODS_LIBRARY")
    assert call("apply", "fast", "limit", "--target", site, "--library", library).code == 0
    mods = (site / ".vllm-mods/receipt.json").read_bytes()
    SPOILED[how](site)
    answer = call("status", "--target", site, "--json")
    for command in hint(answer):
        assert (done := call(*command)).code == 0, done.err
    assert call("status", "fast", "limit", "--target", site).code == 0
    assert call("verify", "--target", site).code == 0
    assert (site / ".vllm-mods/receipt.json").read_bytes() == mods


def test_only_edits_are_discarded_of_all_mods(call: Call, site: Path) -> None:
    assert call("apply", "fast", "limit", "--target", site).code == 0
    (site / "vllm/loader.py").write_text("mine = 1\n")
    assert call("revert", "fast", "--only-edits", "--target", site).code == 2
    refused = call("revert", "fast", "--target", site)
    assert refused.code == 3
    assert "vllm-mods revert --only-edits" in refused.err
    put_back = call("revert", "--only-edits", "--target", site, "--json")
    assert (put_back.code, put_back.json["changed"]) == (0, ["vllm/loader.py"])
    (site / "vllm/loader.py").chmod(0o600)
    put_back = call("revert", "--only-edits", "--target", site, "--json")
    assert put_back.json["changed"] == ["vllm/loader.py"]
    was = os.stat(site / "vllm/loader.py").st_mtime_ns
    assert "nothing to do" in call("revert", "--only-edits", "--target", site).out
    assert os.stat(site / "vllm/loader.py").st_mtime_ns == was


def write_chat(library: Path) -> None:
    folder = write_mod(library, "chat", diff_of("vllm/a.py", "A = 1\n", "A = 7\n"))
    text = (folder / "mod.toml").read_text()
    (folder / "mod.toml").write_text(text + 'templates = [{ name = "t", file = "t.jinja" }]\n')
    (library / "templates/t").mkdir(parents=True)
    (library / "templates/t/template.jinja").write_text("{{ x }}")


def test_a_template_without_edits_is_not_written_again(
    call: Call, site: Path, library: Path
) -> None:
    write_chat(library)
    assert call("apply", "chat", "fast", "--target", site).code == 0
    assert "nothing to do" in call("revert", "--only-edits", "--target", site).out
    (site / "vllm/loader.py").write_text("mine = 1\n")
    put_back = call("revert", "--only-edits", "--target", site, "--json")
    assert put_back.json["changed"] == ["vllm/loader.py"]


@pytest.mark.slow
def test_a_template_in_a_workspace_survives(
    call: Call, site: Path, library: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    workspace = tmp_path_factory.mktemp("workspace")
    write_chat(library)
    for n, space in enumerate(([], ["--workspace", str(workspace)])):
        assert call("apply", "chat", "--target", site, *space).code == 0
        installing.install(site, LATER, f"0.20.{n}")
        put_right(call, site)
        assert call("revert", "--target", site).code == 0
    assert not (workspace / "t.jinja").exists()


@pytest.mark.skipif(
    not sampling.ALL, reason="a release of pip does it as ever: VLLM_MODS_TEST_ALL=1"
)
def test_what_is_done_here_is_what_pip_does(call: Call, tmp_path: Path, library: Path) -> None:
    """Every file of pip's own, with a mod in the tree, and the hint works behind it."""
    del library
    python, real = installing.environment(tmp_path / "venv")
    ours = tmp_path / "ours"
    first = installing.wheel(tmp_path / "1", FILES)
    later = installing.wheel(tmp_path / "2", LATER, "0.20.0")

    def same() -> None:
        assert files(real) == files(ours)

    def files(root: Path) -> dict[str, bytes]:
        unlike = ("REQUESTED", "direct_url.json")  # a wheel was named, not a release
        return {
            str(path.relative_to(root)): b"".join(
                line
                for line in path.read_bytes().splitlines(keepends=True)
                if path.name != "RECORD" or not any(one.encode() in line for one in unlike)
            )
            for path in root.rglob("*")
            if path.is_file()
            and path.suffix != ".pyc"
            and path.name not in unlike
            and not str(path.relative_to(root)).startswith(
                (".vllm-mods", "_virtualenv", "distutils")
            )
        }

    installing.pip_install(python, first)
    installing.install(ours, FILES)
    same()
    for root in (real, ours):
        assert call("apply", *ALL, "--target", root).code == 0
    same()
    installing.pip_install(python, "--force-reinstall", first)
    installing.install(ours, FILES)
    same()
    for root in (real, ours):
        put_right(call, root)
    installing.pip_install(python, "--upgrade", later)
    installing.install(ours, LATER, "0.20.0")
    same()
    for root in (real, ours):
        put_right(call, root)
    installing.pip(python, "uninstall", "-q", "-y", "vllm")
    installing.uninstall(ours)
    same()
    installing.pip_install(python, first)
    installing.install(ours, FILES)
    same()
    for root in (real, ours):
        put_right(call, root)
        assert call("revert", "--target", root).code == 0
    same()


@pytest.mark.slow
def test_two_mods_that_exclude_each_other_never_both_go_in(
    call: Call, site: Path, library: Path
) -> None:
    """Whichever of them names the other, and whichever came first."""
    write_mod(
        library, "rival", diff_of("vllm/b.py", "B = 1\n", "B = 9\n"), more='conflicts = ["fast"]'
    )
    for first, second in (("rival", "fast"), ("fast", "rival")):
        assert call("apply", first, "--target", site).code == 0
        before = snapshot(site)
        answer = call("apply", second, "--target", site)
        assert answer.code == 3
        assert f"{second} cannot be combined with {first}, which is applied" in answer.err
        assert f"hint: vllm-mods revert {first} --target {site} " in answer.err
        assert snapshot(site) == before
        assert call("revert", "--target", site).code == 0


def test_a_mod_that_stays_is_in_whatever_else_is_asked_for(
    call: Call, site: Path, library: Path
) -> None:
    write_mod(
        library, "rival", diff_of("vllm/b.py", "B = 1\n", "B = 9\n"), more='conflicts = ["fast"]'
    )
    assert call("apply", "fast", "limit", "--target", site).code == 0
    (site / "vllm/other.py").write_text(OTHER)
    said = call("check", "fast", "limit", "rival", "--target", site, "--json").json["mods"]
    assert {one["name"]: one["verdict"] for one in said} == {
        "fast": "applied",
        "limit": "applies",
        "rival": "conflict",
    }


@pytest.mark.slow
def test_what_a_mod_requires_may_be_in_the_release(call: Call, site: Path, library: Path) -> None:
    """It went in, so it can stay when another one goes, or is put in again."""
    more = OTHER.replace("LIMIT = 1", "LIMIT = 2")
    patch = diff_of("vllm/other.py", more, more.replace("LIMIT = 2", "LIMIT = 3"))
    write_mod(library, "higher", patch, more='requires = ["limit"]')
    installing.install(site, {**FILES, "vllm/other.py": more.encode()}, "0.21.0")
    assert call("apply", "higher", "fast", "--target", site).code == 0
    assert call("revert", "fast", "--target", site).code == 0
    assert call("apply", "fast", "--target", site).code == 0
    (site / "vllm/loader.py").write_text(LOADER)
    assert "higher 1.0.0  applied" in call("check", "higher", "fast", "--target", site).out
    assert call("apply", "fast", "--target", site).code == 0
    assert call("status", "higher", "fast", "--target", site).code == 0


@pytest.mark.slow
def test_a_mod_that_the_tree_keeps_goes_in_beside_a_pairing(
    call: Call, site: Path, library: Path
) -> None:
    (library / "pairings").mkdir()
    (library / "pairings/small.toml").write_text(
        'schema = 1\nname = "small"\nsummary = "s"\nmodel = "m"\nmods = ["limit"]\n'
        'base = "registry.example/vllm:1"\ncommand = "vllm serve m"\n'
    )
    assert call("apply", "fast", "--target", site).code == 0
    (library / "patches/fast").rename(library / "fast")
    installing.install(site, FILES)
    answer = call("apply", "fast", "--pairing", "small", "--target", site, "--json")
    assert answer.code == 0, answer.err
    assert {one["name"] for one in answer.json["mods"]} == {"limit", "fast"}


def test_check_reads_the_workspace_that_the_receipt_names(
    call: Call, site: Path, library: Path, tmp_path: Path
) -> None:
    folder = library / "patches/chat"
    folder.mkdir()
    (folder / "mod.toml").write_text(
        'schema = 1\nname = "chat"\nversion = "1"\nsummary = "s"\nlicense = "MIT"\n'
        '[[variant]]\nid = "a"\nvllm = ">=0.1"\ntemplates = [{ name = "t", file = "t.jinja" }]\n'
    )
    (library / "templates/t").mkdir(parents=True)
    (library / "templates/t/template.jinja").write_text("{{ x }}")
    assert call("apply", "chat", "--target", site, "--workspace", tmp_path).code == 0
    assert "already applied" in call("check", "chat", "--target", site).out
    assert call("status", "chat", "--target", site).code == 0


@pytest.mark.network
def test_an_upgrade_of_a_real_release_by_pip_and_the_hint_behind_it(
    call: Call, tmp_path: Path
) -> None:
    python, site = installing.environment(tmp_path / "venv")
    made = {}
    files: dict[str, bytes] = {}
    for version in ("0.20.2", "0.21.0"):
        tree = open_tree(f"pypi:{version}")
        files = {path: tree.read(path) or b"" for path in tree.paths() if path.endswith(".py")}
        made[version] = installing.wheel(tmp_path / version, files, version)
    names = ("hybrid-int4-fp8", "flashqla")
    installing.pip_install(python, "--no-compile", made["0.20.2"])
    assert call("apply", *names, "--target", site).code == 0
    for option, version in (("--force-reinstall", "0.20.2"), ("--upgrade", "0.21.0")):
        installing.pip_install(python, "--no-compile", option, made[version])
        assert standing(call("status", "--target", site, "--json")) == dict.fromkeys(
            names, "undone"
        )
        put_right(call, site)
    assert call("revert", "--target", site).code == 0
    for path in (site / "vllm").rglob("*.py"):
        assert path.read_bytes() == files[str(path.relative_to(site))]
