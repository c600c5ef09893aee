"""check, apply, apply again, status, verify, revert: what a user does in that order."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from command_line import LOADER, OTHER
from mod_making import diff_of, write_mod
from small_site import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Any]


@pytest.mark.slow
def test_the_whole_life(call: Call, site: Path) -> None:
    before = snapshot(site)
    answer = call("check", "fast", "--target", site)
    assert answer.code == 0
    assert "fast 1.0.0  applies" in answer.out
    assert snapshot(site) == before

    answer = call("apply", "fast", "limit", "--target", site)
    assert (answer.code, answer.err) == (0, "")
    assert '"fast"' in (site / "vllm/loader.py").read_text()
    assert (site / "vllm/loader.py").read_text().count('"weights"') == 1

    applied = snapshot(site)
    answer = call("apply", "fast", "limit", "--target", site)
    assert answer.code == 0
    assert "nothing to do" in answer.out
    assert snapshot(site) == applied

    assert "fast 1.0.0" in call("status", "--target", site).out
    assert call("status", "fast", "--target", site).code == 0
    assert call("status", "absent", "--target", site).code == 1
    assert call("verify", "--target", site).code == 0

    with (site / "vllm/loader.py").open("a") as file:
        file.write("# by hand\n")
    answer = call("verify", "--target", site)
    assert answer.code == 1
    assert "vllm/loader.py: was edited after the mods were applied" in answer.out
    assert "partial" in call("check", "fast", "--target", site).out
    answer = call("revert", "--target", site)
    assert answer.code == 3
    assert "--discard-edits" in answer.err
    assert call("revert", "--discard-edits", "--target", site).code == 0
    assert snapshot(site) == before


@pytest.mark.slow
def test_one_mod_goes_and_the_other_stays(call: Call, site: Path, library: Path) -> None:
    before = snapshot(site)
    # `more` builds on what `fast` leaves in the same file
    fast = LOADER.replace("class Saver", "class Keeper")
    write_mod(library, "rename", diff_of("vllm/loader.py", LOADER, fast, context=2))
    assert call("apply", "rename", "limit", "--target", site).code == 0
    assert call("revert", "rename", "--target", site).code == 0
    assert (site / "vllm/loader.py").read_text() == LOADER
    assert (site / "vllm/other.py").read_text() != OTHER
    assert call("verify", "--target", site).code == 0
    answer = call("status", "--target", site, "--json")
    assert [mod["name"] for mod in answer.json["mods"]] == ["limit"]
    assert call("revert", "limit", "--target", site).code == 0
    assert snapshot(site) == before


def test_a_mod_that_another_builds_on_cannot_be_taken_out_alone(
    call: Call, site: Path, library: Path
) -> None:
    more = OTHER.replace("LIMIT = 1", "LIMIT = 2")
    patch = diff_of("vllm/other.py", more, more.replace("LIMIT = 2", "LIMIT = 3"))
    write_mod(library, "higher", patch, more='requires = ["limit"]')
    assert call("apply", "higher", "--target", site).code == 0
    assert (site / "vllm/other.py").read_text().startswith("LIMIT = 3")
    applied = snapshot(site)
    answer = call("revert", "limit", "--target", site)
    assert answer.code == 3
    assert "higher needs limit" in answer.err
    assert snapshot(site) == applied
    assert call("revert", "higher", "--target", site).code == 0
    assert (site / "vllm/other.py").read_text().startswith("LIMIT = 2")


def test_all_or_nothing(call: Call, site: Path, library: Path) -> None:
    write_mod(library, "bad", diff_of("vllm/other.py", "a\nb\n", "a\nc\n"))
    before = snapshot(site)
    answer = call("apply", "fast", "bad", "--target", site)
    assert answer.code == 3
    assert "bad 1.0.0: conflict" in answer.err
    port = f"vllm-mods port bad --to {site} --from pypi:0.19 --library {library}"
    assert answer.err.endswith(f"\n\nhint: {port}\n")
    assert snapshot(site) == before


def test_the_json_of_check(call: Call, site: Path) -> None:
    answer = call("check", "fast", "--target", site, "--json")
    assert answer.err == ""
    top = answer.json
    assert top.keys() == {"schema", "tree", "ok", "mods", "beside"}
    assert (top["schema"], top["ok"], top["tree"]["version"]) == (1, True, "0.19.1")
    (mod,) = top["mods"]
    assert mod.keys() == {
        "name", "version", "variant", "verdict", "in_range", "files", "findings", "proof", "unexamined",
        "optional",
    }  # fmt: skip
    assert (mod["verdict"], mod["variant"], mod["in_range"]) == ("applies", "a", True)
    (file,) = mod["files"]
    assert file.keys() == {"path", "before", "after"}
    assert len(file["before"]) == 64


def test_the_findings_of_check_in_json(call: Call, site: Path) -> None:
    (site / "vllm/loader.py").write_text("x = 1\n")
    answer = call("check", "fast", "--target", site, "--json")
    assert answer.code == 1
    (mod,) = answer.json["mods"]
    assert mod["verdict"] == "missing"
    (finding,) = mod["findings"]
    assert finding.keys() == {"code", "message", "path", "line", "hunk", "scope", "level"}
    assert (finding["path"], finding["hunk"], finding["scope"]) == ("vllm/loader.py", 1, "Loader")


def test_a_template_is_written_and_the_serve_argument_printed(
    call: Call, site: Path, library: Path, tmp_path: Path
) -> None:
    folder = library / "patches" / "chat"
    folder.mkdir()
    (folder / "mod.toml").write_text(
        'schema = 1\nname = "chat"\nversion = "1"\nsummary = "s"\nlicense = "MIT"\n'
        '[serve]\nargs = ["--tool-call-parser", "p"]\n'
        '[[variant]]\nid = "a"\nvllm = ">=0.1"\ntemplates = [{ name = "t", file = "t.jinja" }]\n'
    )
    (library / "templates" / "t").mkdir(parents=True)
    (library / "templates" / "t" / "template.jinja").write_text("{{ x }}")
    before = snapshot(site)
    answer = call("apply", "chat", "--target", site)
    place = site / ".vllm-mods/templates/t.jinja"
    assert place.read_text() == "{{ x }}"
    arguments = f"--tool-call-parser p --chat-template {place}"
    assert arguments in answer.out
    again = call("apply", "chat", "--target", site)
    assert "nothing to do" in again.out
    assert arguments in again.out
    assert call("revert", "--target", site).code == 0
    assert snapshot(site) == before

    workspace = tmp_path / "workspace"
    workspace.mkdir()
    answer = call("apply", "chat", "--target", site, "--workspace", workspace)
    assert answer.code == 0
    assert (workspace / "t.jinja").read_text() == "{{ x }}"
    assert call("verify", "--target", site).code == 0
    (workspace / "t.jinja").write_text("edited")
    assert call("verify", "--target", site).code == 1
    (workspace / "t.jinja").write_text("{{ x }}")
    assert call("apply", "fast", "--target", site, "--workspace", tmp_path).code == 2
    assert call("revert", "--target", site).code == 0
    assert not (workspace / "t.jinja").exists()


def test_only_supported_leaves_out_and_says_so(call: Call, site: Path, library: Path) -> None:
    write_mod(library, "old", diff_of("vllm/gone.py", "a\n", "b\n"), vllm="<0.10")
    assert call("apply", "fast", "old", "--target", site).code == 3
    answer = call("apply", "fast", "old", "--only-supported", "--target", site)
    assert answer.code == 0
    assert "skipped: old" in answer.err


@pytest.mark.slow
def test_source_date_epoch_makes_the_same_tree_twice(
    call: Call, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    other = tmp_path / "other"
    shutil.copytree(site, other)
    for path in (site, *site.rglob("*")):
        info = path.stat()
        os.utime(other / path.relative_to(site), ns=(info.st_atime_ns, info.st_mtime_ns))
    assert call("apply", "fast", "limit", "--target", site).code == 0
    assert call("apply", "fast", "limit", "--target", other).code == 0
    first = {path.removeprefix(str(site)): facts for path, facts in snapshot(site).items()}
    second = {path.removeprefix(str(other)): facts for path, facts in snapshot(other).items()}
    assert first == second
    assert (site / "vllm/loader.py").stat().st_mtime == 1700000000
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    assert call("apply", "fast", "--target", site).code == 2


def test_list_show_version_help_completion(call: Call) -> None:
    answer = call("list", "--json")
    assert {"fast", "limit"} <= {mod["name"] for mod in answer.json["mods"]}
    assert "fast" in call("list").out
    answer = call("show", "fast", "--json")
    assert answer.json["variants"][0]["files"] == ["vllm/loader.py"]
    assert "vllm/loader.py" in call("show", "fast").out
    assert call("--version").out.startswith("vllm-mods 0.")
    assert "Exit codes" in call("--help").out
    for shell in ("bash", "zsh", "fish"):
        assert "_VLLM_MODS_COMPLETE" in call("completion", shell).out


def test_list_says_whose_a_mod_is_and_joins_its_ranges(call: Call, library: Path) -> None:
    lines = call("list").out.splitlines()
    below = {line.split()[0]: lines[at + 1] for at, line in enumerate(lines) if line[:1].strip()}
    assert below["fast"].endswith(f"; library {library}")
    assert below["flashqla"].strip() == "vLLM >=0.17,<0.34; bundled with vllm-mods"


def test_danger_a_site_inside_a_git_repository_is_patched_all_the_same(
    call: Call, site: Path
) -> None:
    subprocess.run(["git", "init", "-q", str(site.parent)], check=True)
    answer = call("apply", "fast", "--target", site, "--json")
    assert answer.code == 0
    assert "vllm/loader.py" in answer.json["changed"]
    assert '"fast"' in (site / "vllm/loader.py").read_text()


def test_danger_the_mode_of_a_file_stays(call: Call, site: Path) -> None:
    (site / "vllm/loader.py").chmod(0o600)
    assert call("apply", "fast", "--target", site).code == 0
    assert (site / "vllm/loader.py").stat().st_mode & 0o777 == 0o600


def test_danger_the_same_guard_two_lines_away_is_pointed_out(
    call: Call, site: Path, library: Path
) -> None:
    guard = "        if not name:\n            raise ValueError(name)\n"
    wanted = LOADER.replace("name):\n", f"name):\n{guard}", 1)
    write_mod(library, "guard", diff_of("vllm/loader.py", LOADER, wanted, context=1))
    ours = LOADER.replace("        return path\n", f"{guard}        return path\n", 1)
    (site / "vllm/loader.py").write_text(ours)
    answer = call("check", "guard", "--target", site, "--json")
    codes = {finding["code"] for finding in answer.json["mods"][0]["findings"]}
    assert codes & {"look-alike", "fit-duplicate"}


def test_show_quotes_serve_arguments_for_a_shell(call: Call, library: Path) -> None:
    folder = library / "patches" / "chat"
    folder.mkdir()
    (folder / "mod.toml").write_text(
        'schema = 1\nname = "chat"\nversion = "1"\nsummary = "s"\nlicense = "MIT"\n'
        "[serve]\nargs = ['--k', '{\"a\": true}']\n"
        '[[variant]]\nid = "a"\nvllm = ">=0.1"\ntemplates = [{ name = "t", file = "t.jinja" }]\n'
    )
    (library / "templates" / "t").mkdir(parents=True)
    (library / "templates" / "t" / "template.jinja").write_text("{{ x }}")
    assert "serve with  --k '{\"a\": true}'" in call("show", "chat").out


def test_a_change_of_the_mode_alone_goes_in_and_out(call: Call, site: Path, library: Path) -> None:
    (site / "vllm/a.py").chmod(0o644)
    before = snapshot(site)
    head = b"diff --git a/vllm/a.py b/vllm/a.py\n"
    write_mod(library, "runs", head + b"old mode 100644\nnew mode 100755\n")
    answer = call("apply", "runs", "--target", site)
    assert (answer.code, answer.err) == (0, "")
    assert (site / "vllm/a.py").stat().st_mode & 0o777 == 0o755
    assert "nothing to do" in call("apply", "runs", "--target", site).out
    assert call("verify", "--target", site).code == 0
    (site / "vllm/a.py").chmod(0o644)
    assert "its mode is 0644, and was 0755" in call("verify", "--target", site).out
    (site / "vllm/a.py").chmod(0o755)
    assert call("revert", "--target", site).code == 0
    assert snapshot(site) == before


def test_a_mode_goes_with_the_mod_that_set_it_and_with_the_file_that_is_renamed(
    call: Call, site: Path, library: Path
) -> None:
    (site / "vllm/a.py").chmod(0o644)
    head = b"diff --git a/vllm/a.py b/vllm/a.py\n"
    write_mod(library, "runs", head + b"old mode 100644\nnew mode 100755\n")
    write_mod(library, "more", diff_of("vllm/a.py", "A = 1\n", "A = 2\n"))
    assert call("apply", "runs", "more", "--target", site).code == 0
    assert call("revert", "runs", "--target", site).code == 0
    assert (site / "vllm/a.py").stat().st_mode & 0o777 == 0o644
    rename = b"diff --git a/vllm/a.py b/vllm/z.py\nrename from vllm/a.py\nrename to vllm/z.py\n"
    write_mod(library, "renamed", rename, more='after = ["runs"]')
    assert call("apply", "runs", "renamed", "--target", site).code == 0
    assert (site / "vllm/z.py").stat().st_mode & 0o777 == 0o755
    assert call("revert", "runs", "--target", site).code == 0
    assert (site / "vllm/z.py").stat().st_mode & 0o777 == 0o644


def test_a_mod_whose_new_file_a_later_one_removes_is_in(
    call: Call, site: Path, library: Path
) -> None:
    new = b"--- /dev/null\n+++ b/vllm/new.txt\n@@ -0,0 +1 @@\n+1\n"
    gone = b"--- a/vllm/new.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"
    write_mod(library, "brings", new + diff_of("vllm/a.py", "A = 1\n", "A = 2\n"))
    more = diff_of("vllm/b.py", "B = 1\n", "B = 2\n")
    write_mod(library, "removes", gone + more, more='requires = ["brings"]')
    assert call("apply", "brings", "removes", "--target", site).code == 0
    shown = call("check", "brings", "removes", "--target", site, "--json").json["mods"]
    assert [one["verdict"] for one in shown] == ["applied", "applied"]
