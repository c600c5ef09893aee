"""Whatever is wrong gets its own message and exit code, and the tree stays as it was to the byte."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from command_line import LOADER
from mod_making import diff_of, write_mod
from small_site import sha, snapshot

from vllm_mods.base import errors
from vllm_mods.site import transaction

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Any]

GOOD = diff_of("vllm/loader.py", LOADER, LOADER.replace("weights", "w", 1))


def refuse(call: Call, site: Path, *arguments: object, code: int, says: str) -> Any:
    """Call, and hold the tree to every byte, mode and time."""
    before = snapshot(site)
    answer = call(*arguments, "--target", site)
    assert (answer.code, says in answer.err) == (code, True), answer.err
    assert answer.err.startswith("error: ")
    assert "Traceback" not in answer.err
    assert snapshot(site) == before
    return answer


PATCHES = {
    "counts that lie": (
        re.sub(rb"-(\d+),\d+ \+\d+,\d+ @@", rb"-\1,5 +\1,5 @@", GOOD),
        "has more lines than its header states",
    ),
    "a combined diff": (b"diff --cc vllm/loader.py\n@@@ -1 -1 +1 @@@\n", "combined"),
    "a binary diff": (
        b"diff --git a/vllm/x.so b/vllm/x.so\nBinary files a/vllm/x.so and b/vllm/x.so differ\n",
        "binary",
    ),
    "CRLF": (GOOD.replace(b"\n", b"\r\n"), "CRLF"),
    "a path with ..": (
        GOOD.replace(b"vllm/loader.py", b"../outside.py"),
        "points outside the tree",
    ),
    "an absolute path": (
        GOOD.replace(b"a/vllm/loader.py", b"a//etc/passwd").replace(
            b"b/vllm/loader.py", b"b//etc/passwd"
        ),
        "points outside the tree",
    ),
    "no patch at all": (b"nothing\n", "no diff: it has"),
}


@pytest.mark.parametrize("case", PATCHES)
def test_a_bad_patch(case: str, call: Call, site: Path, library: Path) -> None:
    data, says = PATCHES[case]
    write_mod(library, "bad", data)
    answer = refuse(call, site, "apply", "bad", code=2, says=says)
    assert "x.patch:" in answer.err


MANIFESTS = {
    "malformed TOML": ("name = \n", "not TOML"),
    "unknown keys": (
        'schema = 1\nname = "bad"\nversion = "1"\nsummary = "s"\nlicense = "M"\ncolour = 3\n[[variant]]\nid = "a"\nvllm = ">=1"\npatches = ["x.patch"]\n',
        "colour: unknown key",
    ),
    "a missing patch": (
        'schema = 1\nname = "bad"\nversion = "1"\nsummary = "s"\nlicense = "M"\n[[variant]]\nid = "a"\nvllm = ">=1"\npatches = ["no.patch"]\n',
        "no such file:",
    ),
    "a patch outside the mod": (
        'schema = 1\nname = "bad"\nversion = "1"\nsummary = "s"\nlicense = "M"\n[[variant]]\nid = "a"\nvllm = ">=1"\npatches = ["../../x.patch"]\n',
        "points outside its folder",
    ),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_bad_manifest(case: str, call: Call, site: Path, library: Path) -> None:
    text, says = MANIFESTS[case]
    folder = write_mod(library, "bad", GOOD)
    (folder / "mod.toml").write_text(text)
    refuse(call, site, "apply", "bad", code=2, says=says)
    # the others can still be used
    assert call("list").code == 2
    assert call("check", "fast", "--target", site).code == 0


def test_a_symlink_that_leads_out(call: Call, site: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text(LOADER)
    (site / "vllm/loader.py").unlink()
    (site / "vllm/loader.py").symlink_to(outside)
    refuse(call, site, "apply", "fast", code=3, says="symbolic link")
    assert outside.read_text() == LOADER


def test_a_hard_linked_file(call: Call, site: Path, tmp_path: Path) -> None:
    os.link(site / "vllm/loader.py", tmp_path / "cache.py")
    answer = refuse(call, site, "apply", "fast", "--keep-links", code=3, says="2 hard links")
    assert "without --keep-links" in answer.err
    done = call("apply", "fast", "--target", site)
    assert done.code == 0
    assert "vllm/loader.py is hard-linked" in done.err
    assert (tmp_path / "cache.py").read_text() == LOADER
    assert (site / "vllm/loader.py").read_text() != LOADER


@pytest.mark.slow
def test_a_read_only_file_and_a_read_only_folder(call: Call, site: Path) -> None:
    (site / "vllm/loader.py").chmod(0o444)
    refuse(call, site, "apply", "fast", code=3, says="read-only")
    (site / "vllm/loader.py").chmod(0o644)
    (site / "vllm").chmod(0o555)
    refuse(call, site, "apply", "fast", code=3, says="read-only")
    (site / "vllm").chmod(0o755)


def test_a_tree_half_patched_by_gnu_patch(call: Call, site: Path, library: Path) -> None:
    final = LOADER.replace("import os", "import os as o").replace("class Saver", "class Keeper")
    write_mod(library, "two", diff_of("vllm/loader.py", LOADER, final, context=1))
    half = LOADER.replace("import os", "import os as o")
    (site / "vllm/loader.py").write_text(half.replace("class Saver:", "class Saver(object):"))
    (site / "vllm/loader.py").write_text(half)
    (site / "vllm/loader.py.rej").write_text("@@")
    (site / "vllm/loader.py.orig").write_text(LOADER)
    answer = refuse(call, site, "apply", "two", code=3, says="partial")
    assert "hunk 1" in answer.err
    assert "loader.py.rej shows" in answer.err


def test_a_target_that_is_not_vllm(call: Call, tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "nowhere"):
        answer = call("apply", "fast", "--target", target)
        assert answer.code == 2
        assert str(target) in answer.err
    answer = call("apply", "fast", "--target", "pypi:0.19.1")
    assert answer.code == 2
    assert "is not an installed vLLM" in answer.err


def test_an_unknown_command_mod_and_option(call: Call, site: Path) -> None:
    assert "did you mean `apply`" in call("aply").err
    answer = call("check", "fats", "--target", site)
    assert (answer.code, "did you mean `fast`" in answer.err) == (2, True)
    assert call("check", "fast", "--target", site, "--no-such").code == 2
    assert call("check", "fast").code == 2
    assert call("check", "fast", "--target", "ftp:x").code == 2


def test_a_damaged_receipt(call: Call, site: Path) -> None:
    assert call("apply", "fast", "--target", site).code == 0
    (site / ".vllm-mods/receipt.json").write_text('{"schema": 1')
    for command in ("apply", "revert"):
        before = snapshot(site)
        answer = call(command, "fast", "--target", site)
        assert answer.code == 3
        assert "receipt is damaged" in answer.err
        assert snapshot(site) == before


def test_a_receipt_that_is_a_link(call: Call, site: Path, tmp_path: Path) -> None:
    (site / ".vllm-mods").mkdir()
    (tmp_path / "receipt.json").write_text("{}")
    (site / ".vllm-mods/receipt.json").symlink_to(tmp_path / "receipt.json")
    refuse(call, site, "apply", "fast", code=3, says="symbolic link")
    refuse(call, site, "revert", code=3, says="symbolic link")


def test_two_applies_at_once(call: Call, site: Path) -> None:
    import fcntl

    descriptor = os.open(site, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    said = refuse(call, site, "apply", "fast", code=3, says="another vllm-mods is working")
    assert "hint: wait for that program, then run the command again" in said.err
    os.close(descriptor)
    assert call("apply", "fast", "--target", site).code == 0


def test_a_tree_that_could_not_be_put_back(
    call: Call, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(*_: object, **__: object) -> None:
        raise errors.NotRestored("the disk is gone")

    monkeypatch.setattr(transaction, "commit", commit)
    assert call("apply", "fast", "--target", site).code == 4


def test_a_bug_and_an_interruption(call: Call, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(transaction, "commit", broken)
    monkeypatch.setattr("tempfile.tempdir", str(site.parent))  # where its report goes
    answer = call("apply", "fast", "--target", site)
    assert (answer.code, "this is a bug" in answer.err) == (70, True)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(transaction, "commit", interrupted)
    assert call("apply", "fast", "--target", site).code == 130


@pytest.mark.slow
def test_a_pipe_whose_reader_has_gone(library: Path) -> None:
    script = (
        f"{sys.executable} -m vllm_mods list --library {library} | true; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.slow
def test_help_is_laid_out_although_inspect_comes_late() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vllm_mods", "apply", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (
        "\n  Apply mods to an installed vLLM, all of them or none.\n\n  With neither MOD"
        in done.stdout
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", ["apply", "check"])
def test_the_fast_path_imports_nothing_slow(
    site: Path, library: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(library))
    from mod_making import lock_of

    from vllm_mods.library.mod_folder import load_mod
    from vllm_mods.planning.planner import plan
    from vllm_mods.trees.open import open_tree

    folder = library / "patches/fast"
    mods = [load_mod(str(folder))]
    (folder / "mod.lock").write_bytes(lock_of(plan(mods, open_tree(str(site))).mods[0]))
    script = (
        "import sys; from vllm_mods.__main__ import main; "
        f"sys.argv = ['vllm-mods', {command!r}, 'fast', '--target', {str(site)!r}]; "
        "slow = {'libcst', 'unidiff', 'requests', 'git'}; "
        "sys.exit = lambda code: print(code, sorted(slow & set(sys.modules))); main()"
    )
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "0 []", done.stdout + done.stderr


@pytest.mark.parametrize("command", ["apply", "revert"])
def test_a_receipt_that_would_have_files_elsewhere_replaced(
    call: Call, site: Path, tmp_path: Path, command: str
) -> None:
    """As of a tree from a stranger: its receipt names a workspace, and files in it to be put back."""
    assert call("apply", "fast", "--target", site).code == 0
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"good\n")
    evil = site / f".vllm-mods/originals/@workspace{outside}/x"
    evil.parent.mkdir(parents=True)
    evil.write_bytes(b"evil\n")
    place = site / ".vllm-mods/receipt.json"
    raw = json.loads(place.read_bytes())
    raw["workspace"] = str(outside)
    raw["files"].append(
        {
            "path": f"{outside}/x",
            "before": sha(b"evil\n"),
            "after": sha(b"good\n"),
            "kind": "file",
            "mode": None,
            "size": 5,
        }
    )
    place.write_text(json.dumps(raw))
    mods = ("limit",) if command == "apply" else ()
    refuse(call, site, command, *mods, code=3, says="another program wrote this receipt.")
    assert (outside / "x").read_bytes() == b"good\n"


@pytest.mark.parametrize(
    ("line", "code", "exit_code"),
    [
        ("check nothing-like-it --target SITE --json", "usage", 2),
        ("check --json --target", "usage", 2),
        ("apply --no-such-option --target SITE --json", "usage", 2),
        ("chekc --json", "usage", 2),
        ("check faulty --json --target SITE", "manifest", 2),
        ("status --json --target /nowhere", "usage", 2),
        ("check fast --json --target sdist:DAMAGED", "tree", 1),
    ],
)
def test_an_error_is_an_object_too_where_json_is_asked_for(
    call: Call, site: Path, line: str, code: str, exit_code: int
) -> None:
    library, archive = site.parent / "library", site.parent / "damaged.tar.gz"
    write_mod(library, "faulty", b"").joinpath("mod.toml").write_text("schema = 1\n")
    archive.write_bytes(b"no archive")
    words = line.replace("SITE", str(site)).replace("DAMAGED", str(archive))
    answer = call(*words.split())
    assert answer.code == exit_code
    said = answer.json
    assert said.keys() == {"schema", "error"}
    error = said["error"]
    assert (said["schema"], error["code"], error["exit_code"]) == (1, code, exit_code)
    assert f"error: {error['message']}" in answer.err
    assert error["hint"] is None or f"hint: {error['hint']}" in answer.err
    plain = call(*(word for word in words.split() if word != "--json"))
    assert (plain.code, plain.out) == (exit_code, "")


def test_a_refusal_is_the_plan_and_the_error_in_one_object(
    call: Call, site: Path, library: Path
) -> None:
    write_mod(library, "stale", diff_of("vllm/a.py", "B = 1\n", "B = 2\n"))
    answer = call("apply", "stale", "--target", site, "--json")
    assert answer.code == 3
    assert answer.json["ok"] is False
    assert answer.json["changed"] == []
    assert answer.json["mods"][0]["findings"][0]["level"] == "error"
    assert (answer.json["error"]["code"], answer.json["error"]["exit_code"]) == ("refused", 3)


def test_json_behind_two_dashes_asks_for_nothing(call: Call) -> None:
    answer = call("check", "--target", "/nowhere", "--", "--json")
    assert (answer.code, answer.out) == (2, "")
