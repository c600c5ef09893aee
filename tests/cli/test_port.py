"""``port``: to a tree, with conflicts, to a range; what is written, and what is not."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from command_line import LOADER, write_tree
from mod_making import diff_of, write_mod

from vllm_mods.formats import diff_writer, mod_lock
from vllm_mods.library.mod_folder import load_mod
from vllm_mods.planning import lock_entries, planner
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "base", "0.19.1")


NEWER = LOADER.replace("import os\n", "import os\nimport sys\n").replace(
    "\n\n\nclass Saver", "\n\n    def more(self):\n        return None\n\n\nclass Saver"
)
"""The old patch does not go in: a line of its context is another one."""


@pytest.mark.slow
def test_a_clean_port_is_a_new_variant_that_goes_in(
    call: Call, library: Path, base: Path, tmp_path: Path
) -> None:
    target = write_tree(tmp_path / "target", "0.20.0", loader=NEWER)
    manifest = (library / "patches/fast/mod.toml").read_text()
    done = call("port", "fast", "--from", base, "--to", target)
    assert done.code == 0, done.err
    assert "variant 0.20 (==0.20.0) applies" in done.out
    written = (library / "patches/fast/mod.toml").read_text()
    assert written.startswith(manifest.rstrip("\n"))
    assert "# Ported from `a` (vLLM 0.19.1) to vLLM 0.20.0.\n[[variant]]\n" in written
    patch = (library / "patches/fast/0.20/x.patch").read_text()
    assert "@@ -4,7 +4,7 @@ import os" not in patch
    assert '+        path = os.path.join("fast", name)\n' in patch
    shown = call("check", "fast", "--target", target, "--json").json["mods"][0]
    assert (shown["verdict"], shown["in_range"]) == ("applies", True)
    assert call("apply", "fast", "--target", target).code == 0
    assert (target / "vllm/loader.py").read_text() == NEWER.replace('"weights"', '"fast"', 1)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.18.0", "0.20.0"])
def test_a_variant_that_is_not_needed_is_not_written(
    call: Call, base: Path, library: Path, tmp_path: Path, version: str
) -> None:
    target = write_tree(tmp_path / "target", version, loader="# newer\n" + LOADER)
    before = (library / "patches/fast/mod.toml").read_bytes()
    done = call("port", "fast", "--from", base, "--to", target)
    assert done.code == 0
    said = "nothing was written: variant `a` already gives the same result as this port on the target (moved)"
    assert said in done.out
    assert ("to include 0.18.0" in done.out) is (version == "0.18.0")
    assert (library / "patches/fast/mod.toml").read_bytes() == before
    output = tmp_path / "out"
    answer = call("port", "fast", "--from", base, "--to", target, "--output", output, "--json")
    assert (answer.code, answer.json["variant"], answer.json["wrote"]) == (0, None, None)
    assert f"nothing was written: {answer.json['enough']}\n" in done.out
    assert not output.exists()


@pytest.mark.slow
def test_the_file_that_a_module_became_is_followed(call: Call, base: Path, tmp_path: Path) -> None:
    target = write_tree(
        tmp_path / "target",
        "0.20.0",
        loader=None,
        loader__core=NEWER,
        loader____init__="from .core import Loader\n",
    )
    (target / "vllm/loader/__init__.py").write_text("from .core import Loader\n")
    done = call("port", "fast", "--from", base, "--to", target, "--json")
    assert done.code == 0, done.err
    (file,) = done.json["files"]
    assert (file["path"], file["new_path"]) == ("vllm/loader.py", "vllm/loader/core.py")
    assert done.json["verdict"] == "applies"
    assert done.json["followed"][0]["new"] == "vllm/loader/core.py"


@pytest.mark.slow
def test_an_import_of_what_another_module_has_by_now_is_followed_and_the_report_and_the_patch_say_so(
    call: Call, library: Path, tmp_path: Path
) -> None:
    helper = "def weigh(path):\n    return path\n"
    using = LOADER.replace("import os\n", "import os\n\nfrom vllm.helpers import weigh\n").replace(
        "        return path", "        return weigh(path)", 1
    )
    (library / "patches/fast/x.patch").write_bytes(diff_of("vllm/loader.py", LOADER, using))
    base = write_tree(tmp_path / "base", "0.19.1", helpers=helper)
    target = write_tree(tmp_path / "target", "0.20.0", tools__scales=helper, tools____init__="")
    repair = "weigh of vllm.helpers is now weigh of vllm.tools.scales, its only definition"
    without = call("port", "fast", "--from", base, "--to", target, "--no-repair")
    assert (without.code, repair in without.out) == (1, False)
    assert call("port", "fast", "--abort").code == 0
    done = call("port", "fast", "--from", base, "--to", target)
    assert done.code == 0, done.out
    assert f"  repaired: {repair}\n" in done.out
    patch = (library / "patches/fast/0.20/x.patch").read_text()
    assert patch.startswith(f"Repaired by port: {repair}\n")
    assert call("apply", "fast", "--target", target).code == 0
    assert "from vllm.tools.scales import weigh\n" in (target / "vllm/loader.py").read_text()


@pytest.mark.slow
def test_a_name_that_upstream_renamed_is_left_to_a_person_with_the_line_that_fails(
    call: Call, library: Path, tmp_path: Path
) -> None:
    helper = "def weigh(path):\n    return path\n"
    using = LOADER.replace("import os\n", "import os\n\nfrom vllm.helpers import weigh\n").replace(
        "        return path", "        return weigh(path)", 1
    )
    (library / "patches/fast/x.patch").write_bytes(diff_of("vllm/loader.py", LOADER, using))
    base = write_tree(tmp_path / "base", "0.19.1", helpers=helper)
    target = write_tree(tmp_path / "target", "0.20.0", helpers=helper.replace("weigh", "heft"))
    done = call("port", "fast", "--from", base, "--to", target)
    assert done.code == 1
    assert "variant 0.20 (==0.20.0) unfit" in done.out
    assert "weigh" in done.out.partition("unfit")[2]


CLASHING = LOADER.replace(
    'path = os.path.join("weights", name)', 'path = os.path.join("heavy", name)'
)


@pytest.mark.slow
def test_a_conflict_is_laid_out_finished_and_gone(
    call: Call, library: Path, base: Path, tmp_path: Path
) -> None:
    target = write_tree(tmp_path / "target", "0.20.0", loader=CLASHING)
    before = files_of(library)
    done = call("port", "fast", "--from", base, "--to", target)
    assert done.code == 1
    assert "`Loader.load`: the target changed the same lines [clash]" in done.out
    edited = library / "patches/fast/.port-0.20/files/vllm/loader.py"
    text = edited.read_text()
    for line in ("<<<<<<< fast, variant a\n", "||||||| vLLM 0.19.1\n", f">>>>>>> {target}\n"):
        assert text.count(line) == 1
    assert {
        name: data for name, data in files_of(library).items() if ".port-" not in name
    } == before

    again = call("port", "fast", "--from", base, "--to", target)
    assert again.code == 3
    assert "an earlier port is not finished" in again.err
    early = call("port", "fast", "--continue")
    assert early.code == 3
    assert "loader.py:6: an unresolved conflict marker" in early.err

    resolved = CLASHING.replace('"heavy"', '"fast"', 1)
    edited.write_text(resolved)
    manifest = library / "patches/fast/mod.toml"
    of_mod = manifest.read_text()
    manifest.write_text(of_mod.replace('id = "a"', 'id = "b"'))
    renamed = call("port", "fast", "--continue")
    assert (renamed.code, "the variant `a`, which mod.toml no longer has" in renamed.err) == (
        2,
        True,
    )
    assert "--abort" in renamed.err
    manifest.write_text(of_mod)
    done = call("port", "fast", "--continue")
    assert done.code == 0, done.err
    assert "written for vLLM 0.19.1, ported to 0.20.0" in done.out
    assert not (library / "patches/fast/.port-0.20").exists()
    assert call("apply", "fast", "--target", target).code == 0
    assert (target / "vllm/loader.py").read_text() == resolved


@pytest.mark.slow
def test_abort_leaves_what_was_there(call: Call, library: Path, base: Path, tmp_path: Path) -> None:
    target = write_tree(tmp_path / "target", "0.20.0", loader=CLASHING)
    before = files_of(library)
    assert call("port", "fast", "--from", base, "--to", target).code == 1
    aborted = call("port", "fast", "--abort", "--json")
    assert (aborted.code, aborted.json) == (0, {"schema": 1, "mod": "fast", "aborted": "0.20"})
    assert files_of(library) == before
    assert call("port", "fast", "--from", base, "--to", target).code == 1
    removed = call("port", "fast", "--abort")
    assert removed.out == f"removed {library}/patches/fast/.port-0.20\n"
    nothing = call("port", "fast", "--abort")
    assert nothing.code == 2
    assert "no port of fast is unfinished" in nothing.err


@pytest.mark.slow
def test_abort_takes_a_copy_away_to_which_nothing_was_added(
    call: Call, base: Path, tmp_path: Path
) -> None:
    """It would be a second mod of that name for every command that is given the folder."""
    target = write_tree(tmp_path / "target", "0.20.0", loader=CLASHING)
    ports = ("port", "fast", "--output", tmp_path / "out")
    assert call(*ports, "--from", base, "--to", target).code == 1
    assert call(*ports, "--abort").code == 0
    assert files_of(tmp_path / "out") == {}
    assert call(*ports, "--from", base, "--to", target).code == 1


@pytest.mark.slow
def test_no_file_that_nobody_edits_is_said_to_be_changed_by_hand(
    call: Call, library: Path, base: Path, tmp_path: Path
) -> None:
    mod = library / "patches/fast"
    (mod / "new.py").write_text("NEW = 1\n")
    manifest = mod / "mod.toml"
    overlay = 'overlay = [{ source = "new.py", path = "vllm/new.py" }]\n'
    manifest.write_text(manifest.read_text() + overlay)
    target = write_tree(tmp_path / "target", "0.20.0", loader=CLASHING)
    assert call("port", "fast", "--from", base, "--to", target).code == 1
    edited = mod / ".port-0.20/files/vllm/loader.py"
    edited.write_text(NEWER)  # without the mod's change
    done = call("port", "fast", "--continue")
    notes = [line for line in done.out.splitlines() if line.startswith("note: ")]
    assert notes == ["note: vllm/loader.py was changed or left out in the edited file"]


@pytest.mark.slow
def test_a_target_that_changed_meanwhile_is_told(
    call: Call, library: Path, base: Path, tmp_path: Path
) -> None:
    target = write_tree(tmp_path / "target", "0.20.0", loader=CLASHING)
    assert call("port", "fast", "--from", base, "--to", target).code == 1
    (library / "patches/fast/.port-0.20/files/vllm/loader.py").write_text(LOADER)
    (target / "vllm/loader.py").write_text(NEWER)
    done = call("port", "fast", "--continue")
    assert done.code == 3
    assert "has changed since the port began;" in done.err


def test_a_file_that_is_gone_is_a_patch_to_do_away_with(
    call: Call, library: Path, base: Path, tmp_path: Path
) -> None:
    target = write_tree(tmp_path / "target", "0.20.0", loader=None)
    done = call("port", "fast", "--from", base, "--to", target)
    assert done.code == 1
    assert "[file-gone]" in done.out
    left = library / "patches/fast/.port-0.20/loader.py.patch"
    assert '"fast"' in left.read_text()
    assert "delete this file" in call("port", "fast", "--continue").err


@pytest.mark.slow
def test_a_function_that_is_gone_is_a_patch_to_do_away_with(
    call: Call, library: Path, base: Path, tmp_path: Path
) -> None:
    method = LOADER[LOADER.index("    def load") : LOADER.index("\n\n\nclass Saver")]
    fetching = "    def fetch(self, url, retries=3):\n        return [os.fspath(url)] * retries"
    target = write_tree(tmp_path / "target", "0.20.0", loader=LOADER.replace(method, fetching))
    done = call("port", "fast", "--from", base, "--to", target)
    assert done.code == 1
    assert "the target has no such class or function [gone]" in done.out
    left = library / "patches/fast/.port-0.20/loader.py-Loader.load.patch"
    assert f"{left}: make the changes of this patch by hand" in done.out
    assert '+        path = os.path.join("fast", name)' in left.read_text()
    done = call("port", "fast", "--continue")
    assert done.code == 3
    assert f"{left}: move the change to its new place" in done.err

    edited = left.parent / "files/vllm/loader.py"
    edited.write_text(edited.read_text().replace("retries=3", "retries=1"))
    left.unlink()
    done = call("port", "fast", "--continue")
    assert done.code == 0
    assert "note: vllm/loader.py was changed or left out in the edited file" in done.out


GONE = LOADER.replace("import os\n", "import pathlib\n").replace("os.path.join(", "pathlib.Path(")
MORE = LOADER.replace(
    "return path\n\n\nclass", "return path\n\n    def name(self):\n        return os.sep\n\n\nclass"
)


@pytest.mark.slow
def test_what_was_merged_and_would_not_work_is_laid_out_with_the_lines_and_finished(
    call: Call, library: Path, base: Path, tmp_path: Path
) -> None:
    """The merge is clean, and the name that the mod uses is no longer imported."""
    (library / "patches/fast/x.patch").write_bytes(diff_of("vllm/loader.py", LOADER, MORE))
    target = write_tree(tmp_path / "target", "0.20.0", loader=GONE)
    before = files_of(library)
    done = call("port", "fast", "--from", base, "--to", target)
    assert done.code == 1, done.out
    edited = library / "patches/fast/.port-0.20/files/vllm/loader.py"
    line = edited.read_text().splitlines().index("        return os.sep") + 1
    assert "the mod was not changed" in done.out
    assert done.out.count("name `os` used when not defined") == 1, done.out
    assert f"  {edited}:{line}: " in done.out
    assert (
        "then vllm-mods port fast --continue  # or --abort" in done.err
    )  # the variable names the library
    assert {
        name: data for name, data in files_of(library).items() if ".port-" not in name
    } == before

    still = call("port", "fast", "--continue")
    assert still.code == 1
    assert f"  {edited}:{line}: " in still.out
    edited.write_text(edited.read_text().replace("return os.sep", 'return "/"'))
    done = call("port", "fast", "--continue")
    assert done.code == 0, done.err
    assert f"vllm-mods matrix fast --update-lock --library {library}" in done.err
    assert not edited.exists()
    assert call("apply", "fast", "--target", target).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("has_it", [True, False])
def test_a_file_that_the_mod_removes_is_removed_by_what_a_person_finished(
    call: Call, library: Path, base: Path, tmp_path: Path, *, has_it: bool
) -> None:
    target = write_tree(tmp_path / "target", "0.20.0", loader=CLASHING)
    for folder in (base, target) if has_it else (base,):
        (folder / "vllm/old.py").write_text("OLD = 1\n")
    patch = library / "patches/fast/x.patch"
    patch.write_bytes(patch.read_bytes() + diff_writer.file_diff("vllm/old.py", b"OLD = 1\n", None))
    assert call("port", "fast", "--from", base, "--to", target).code == 1
    edited = library / "patches/fast/.port-0.20/files/vllm/loader.py"
    edited.write_text(CLASHING.replace('"heavy"', '"fast"', 1))
    done = call("port", "fast", "--continue")
    assert done.code == 0, done.err
    assert call("apply", "fast", "--target", target).code == 0
    assert not (target / "vllm/old.py").exists()


def test_what_the_target_has_already_needs_no_variant(
    call: Call, library: Path, base: Path, tmp_path: Path
) -> None:
    landed = LOADER.replace('"weights"', '"fast"', 1)
    target = write_tree(tmp_path / "target", "0.20.0", loader="# newer\n" + landed)
    before = files_of(library)
    done = call("port", "fast", "--from", base, "--to", target)
    assert done.code == 0
    assert "already has every change" in done.out
    assert files_of(library) == before


@pytest.mark.parametrize("moved", [False, True])
def test_a_file_that_the_mod_removes_and_the_target_has_elsewhere_is_left_to_a_person(
    call: Call, library: Path, base: Path, tmp_path: Path, *, moved: bool
) -> None:
    write_mod(library, "fast", diff_writer.file_diff("vllm/loader.py", LOADER.encode(), None))
    elsewhere = {"weights": LOADER} if moved else {}
    target = write_tree(tmp_path / "target", "0.20.0", loader=None, **elsewhere)
    done = call("port", "fast", "--from", base, "--to", target)
    assert done.code == moved, done.err
    if not moved:
        assert "already has every change" in done.out
        return
    assert "the mod removes vllm/loader.py, which is vllm/weights.py in the target" in done.out
    (library / "patches/fast/.port-0.20/loader.py.patch").unlink()
    refused = call("port", "fast", "--continue")
    assert (refused.code, "there is no variant to write" in refused.err) == (3, True)
    assert "these cannot be used with --continue: --as, --no-repair" in (
        call("port", "fast", "--continue", "--as", "x", "--no-repair").err
    )
    assert call("port", "fast", "--abort").code == 0


def test_a_mode_and_a_name_with_other_letters_are_carried_over(
    call: Call, library: Path, base: Path, tmp_path: Path
) -> None:
    target = write_tree(tmp_path / "target", "0.20.0")
    for folder, text in ((base, b"a\nb\n"), (target, b"0\na\nb\n")):
        (folder / "vllm/é x.txt").write_bytes(text)
    patch = diff_writer.file_diff("vllm/é x.txt", b"a\nb\n", b"a\nc\n")
    patch += diff_writer.file_diff("vllm/a.py", b"A = 1\n", b"A = 1\n", mode=0o755)
    write_mod(library, "fast", patch, vllm="<0.20")
    done = call("port", "fast", "--from", base, "--to", target, "--output", tmp_path / "out")
    assert done.code == 0, done.err
    shown = call("diff", "fast", "--target", target).out
    assert "old mode 100644\nnew mode 100755\n" in shown
    assert call("apply", "fast", "--target", target).code == 0
    assert (target / "vllm/é x.txt").read_bytes() == b"0\na\nc\n"
    assert (target / "vllm/a.py").stat().st_mode & 0o111


@pytest.mark.slow
def test_the_lock_knows_the_new_variant(
    call: Call, library: Path, base: Path, tmp_path: Path
) -> None:
    recorded(library, {"0.19.1": base})
    target = write_tree(tmp_path / "target", "0.20.0", loader=NEWER)
    assert call("port", "fast", "--from", base, "--to", target).code == 0
    trees = json.loads((library / "patches/fast/mod.lock").read_text())["trees"]
    assert [(one["variant"], one["vllm"]) for one in trees] == [
        ("a", ["0.19.1"]),
        ("0.20", ["0.20.0"]),
    ]
    assert "found by mod.lock" in call("check", "fast", "--target", target).out
    # and a base that calls itself 0.19.1 and is another is no base
    (base / "vllm/loader.py").write_text("# edited\n" + LOADER)
    other = write_tree(tmp_path / "other", "0.21.0", loader=NEWER)
    done = call("port", "fast", "--from", base, "--to", other, "--variant", "a")
    assert done.code == 3
    assert "mod.lock of fast has other hashes for that release: " in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give exactly one of --to, --continue and --abort"),
        (("--to", "{target}", "--abort"), "give exactly one of --to, --continue and --abort"),
        (("--to", "{target}"), "the release that variant `a` of fast was written for is unknown"),
        (("--to", "{target}", "--from", "{base}", "--variant", "z"), "has no variant `z`"),
        (("--to", "{target}", "--from", "{base}", "--as", "a"), "has a variant `a` already"),
        (("--to", "{target}", "--from", "{target}/x"), "x"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(
    call: Call, library: Path, base: Path, words: tuple[str, ...], message: str
) -> None:
    target = write_tree(base.parent / "target", "0.20.0", loader=NEWER)
    before = files_of(library)
    done = call("port", "fast", *(word.format(target=target, base=base) for word in words))
    assert done.code == 2
    assert message in done.err
    assert files_of(library) == before


def test_a_base_that_the_variant_does_not_fit_is_refused(
    call: Call, base: Path, tmp_path: Path
) -> None:
    target = write_tree(tmp_path / "target", "0.20.0", loader=CLASHING)
    done = call("port", "fast", "--from", target, "--to", base)
    assert done.code == 3
    assert (
        "cannot be ported from vLLM 0.20.0, because the variant does not apply there (`conflict`)"
        in done.err
    )


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_stays_as_it_is(
    call: Call, library: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = write_tree(tmp_path / "target", "0.20.0", loader=NEWER)
    before = files_of(library)
    real = os.replace

    def full(source: str, place: str) -> None:
        if place.endswith("mod.toml"):
            raise OSError(28, "No space left on device")
        real(source, place)

    monkeypatch.setattr(os, "replace", full)
    done = call("port", "fast", "--from", base, "--to", target)
    assert done.code == 3
    assert "No space left on device; nothing was changed" in done.err
    assert files_of(library) == before
    assert not (library / "patches/fast/0.20").exists()


@pytest.mark.slow
def test_output_leaves_the_library_alone(
    call: Call, library: Path, base: Path, tmp_path: Path
) -> None:
    target = write_tree(tmp_path / "target", "0.20.0", loader=NEWER)
    before = files_of(library)
    out = tmp_path / "mine"
    assert call("port", "fast", "--from", base, "--to", target, "--output", out).code == 0
    assert (out / "patches/fast/0.20/x.patch").exists()
    assert files_of(library) == before
    again = call("port", "fast", "--from", base, "--to", target, "--output", out)
    assert again.code == 3


def test_the_hint_of_a_port_into_a_copy_keeps_the_library_too(
    call: Call, library: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_MODS_LIBRARY")
    target = write_tree(tmp_path / "target", "0.20.0", loader=CLASHING)
    both = ("--library", library, "--output", tmp_path / "mine")
    kept = call("port", "fast", "--from", base, "--to", target, *both).err
    assert f"--continue {' '.join(map(str, both))}  # or --abort" in kept


@pytest.mark.slow
def test_a_port_of_a_copy_is_finished_in_the_copy(
    call: Call, library: Path, base: Path, tmp_path: Path
) -> None:
    target = write_tree(tmp_path / "target", "0.20.0", loader=CLASHING)
    before = files_of(library)
    out = tmp_path / "mine"
    stopped = call("port", "fast", "--from", base, "--to", target, "--output", out)
    assert stopped.code == 1
    assert f"then vllm-mods port fast --continue --output {out}  # or --abort" in stopped.err
    edited = out / "patches/fast/.port-0.20/files/vllm/loader.py"
    edited.write_text(CLASHING.replace('"heavy"', '"fast"', 1))
    done = call("port", "fast", "--continue", "--output", out)
    assert done.code == 0, done.err
    assert (out / "patches/fast/0.20/x.patch").exists()
    assert files_of(library) == before
    nothing = call("port", "fast", "--abort", "--output", out)
    assert nothing.code == 2
    assert "no port of fast is unfinished" in nothing.err
    nowhere = call("port", "fast", "--abort", "--output", tmp_path / "other")
    assert nowhere.code == 2


def test_a_copy_that_nothing_came_of_is_not_left(call: Call, base: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    done = call("port", "fast", "--from", tmp_path / "none", "--to", base, "--output", out)
    assert done.code == 2
    assert not (out / "patches/fast").exists()
    landed = write_tree(
        tmp_path / "landed", "0.20.0", loader=LOADER.replace('"weights"', '"fast"', 1)
    )
    assert call("port", "fast", "--from", base, "--to", landed, "--output", out).code == 0
    assert not (out / "patches/fast").exists()


@pytest.mark.slow
def test_a_followed_file_stays_in_its_patch(
    call: Call, library: Path, base: Path, tmp_path: Path
) -> None:
    other = "def other():\n    return 1\n"
    for folder in (
        base,
        target := write_tree(
            tmp_path / "target", "0.20.0", loader=None, loaders__core=NEWER, loaders____init__=""
        ),
    ):
        (folder / "vllm/aside.py").write_text(other)
    (library / "patches/fast/aside.patch").write_bytes(
        diff_of("vllm/aside.py", other, other.replace("1", "2"))
    )
    manifest = library / "patches/fast/mod.toml"
    manifest.write_text(manifest.read_text().replace('["x.patch"]', '["aside.patch", "x.patch"]'))
    done = call("port", "fast", "--from", base, "--to", target)
    assert done.code == 0, done.out
    assert "vllm/loaders/core.py" in (library / "patches/fast/0.20/x.patch").read_text()
    assert "core.py" not in (library / "patches/fast/0.20/aside.patch").read_text()


def recorded(library: Path, trees: dict[str, Path]) -> None:
    """Write the lock of the mod `fast` on these trees."""
    mod = load_mod(str(library / "patches/fast"))
    entries = []
    for version, folder in trees.items():
        planned = planner.plan([mod], open_tree(str(folder))).mods[0]
        entry = lock_entries.entry(planned)
        assert entry is not None
        entries.append(entry._replace(vllm=(version,), witness=(planned.witness,)))
    (library / "patches/fast/mod.lock").write_bytes(mod_lock.dump(lock_entries.of(mod, entries)))


def test_offline_no_registry_is_asked(call: Call) -> None:
    answer = call("port", "fast", "--to", "image:registry:127.0.0.1:9/x:1", "--offline")
    assert answer.code == 1
    assert "a registry cannot be read with --offline" in answer.err
