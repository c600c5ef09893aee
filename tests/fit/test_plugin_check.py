"""A plugin beside a vLLM: what breaks it is found, what was so before and what it guards is not, and none of it is run."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from plugin_check import checked, main
from plugin_judging import judge
from plugin_reading import Plugin, read_plugin, stated_version
from toy_plugin import METADATA, NEW, OLD, PLUGIN, WHEEL, sdist_of, tree_of, wheel_of

from vllm_mods.api.access import Access
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vllm_mods.base.model import Finding
    from vllm_mods.trees.other_packages import Project


def on(plugin: str, more: Mapping[str, str] = {}, *, made_for: bool = True) -> tuple[Finding, ...]:
    held = tree_of({"fast_plugin/__init__.py": plugin, **more}, "").files
    return judge(held, tree_of(NEW, "0.19.0"), tree_of(OLD, "0.18.0") if made_for else None)


def errors(findings: tuple[Finding, ...]) -> list[Finding]:
    return [one for one in findings if one.level is Level.ERROR]


def no_index(name: str) -> Project:
    raise AssertionError(f"{name} was asked for")


@pytest.mark.slow
def test_every_break_is_found_and_what_is_gone_comes_first() -> None:
    found = errors(on(PLUGIN))
    told = {
        FindingCode.FIT_IMPORT: ["cannot import old_name from vllm.names"],
        FindingCode.FIT_DEAD: ["Fast.close overrides Loader.close", "Engine.stop is replaced"],
        FindingCode.FIT_ATTRIBUTE: ["has no attribute `limit`"],
        FindingCode.FIT_CALL: ["required parameter `b`"],
        FindingCode.FIT_OVERRIDE: [
            "Fast.place(self, config, tensors, sizes=…) takes tensors in another place",
            "Fast.size(self, name) overrides Loader.size",
            "Engine.shape becomes shape(self, config, tensors, *rest), which takes",
        ],
        FindingCode.FIT_KIND: ["Fast cannot be instantiated: it has no unload", "`Fast()`"],
    }
    assert [code for code, _ in itertools.groupby(one.code for one in found)] == list(told)
    assert len(found) == sum(map(len, told.values()))
    for code, texts in told.items():
        for text in texts:
            assert any(text in one.message for one in found if one.code == code), text


@pytest.mark.slow
def test_a_plugin_that_is_installed_beside_vllm_is_judged_as_any() -> None:
    held = tree_of({"fast_plugin/__init__.py": PLUGIN}, "").files
    new, old = tree_of(NEW, "0.19.0"), tree_of(OLD, "0.18.0")
    alone = judge(held, new, old)
    new.files.update(held)
    assert judge(held, new, old) == alone


@pytest.mark.slow
def test_what_was_wrong_where_it_was_made_is_no_news() -> None:
    broken = "from vllm.names import never_there\n\n\ndef f():\n    return never_there.x\n"
    assert on(broken) == ()


@pytest.mark.slow
def test_without_a_vllm_that_it_was_made_for_nothing_counts() -> None:
    found = on(PLUGIN, made_for=False)
    assert not errors(found)
    assert "cannot import old_name from vllm.names" in found[0].message


GUARDED = {
    "an import that may fail": "try:\n    from vllm.names import old_name\nexcept ImportError:\n    old_name = None\n",
    "a branch for a version": (
        "from fast_plugin.utils import vllm_version_is\n"
        'if vllm_version_is("0.18.0"):\n    from vllm.names import old_name\n'
    ),
    "a value for a version": (
        "from vllm.names import kept\nfrom fast_plugin.utils import vllm_version_is\n\n\n"
        'def f():\n    return kept(1) if vllm_version_is("0.18.0") else kept(1, 2)\n'
    ),
    "for type checkers": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vllm.names import old_name\n",
    "a file for a version": (
        "from fast_plugin.utils import vllm_version_is\n"
        'if vllm_version_is("0.18.0"):\n    from fast_plugin import of_0_18\n'
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", GUARDED)
def test_what_the_plugin_guards_does_not_count(kind: str) -> None:
    of_old = "from vllm.names import old_name\n" if kind == "a file for a version" else ""
    more = {
        "fast_plugin/of_0_18.py": of_old,
        "fast_plugin/utils.py": "def vllm_version_is(version): ...\n",
    }
    assert not errors(on(GUARDED[kind], more))
    unguarded = on("from fast_plugin import of_0_18\n", more)
    assert len(errors(unguarded)) == (kind == "a file for a version")


@pytest.mark.slow
def test_one_cause_in_many_places_is_one_finding() -> None:
    calls = "".join(f"def f{n}():\n    return kept(1)\n\n\n" for n in range(3))
    (found,) = on(f"from vllm.names import kept\n\n\n{calls}")
    assert (found.line, found.message.endswith("so in 2 other places")) == (5, True)


def test_a_class_that_is_handed_around_is_known_by_its_name() -> None:
    patch = """
        def shape(self, config, tensors, *rest):
            return tensors


        def patch(Engine):
            Engine.shape = shape
    """
    assert [one.code for one in on(patch)] == [FindingCode.FIT_OVERRIDE]


# --- how it is read


def written(folder: Path, data: bytes, name: str) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def test_a_wheel_names_what_starts_it(tmp_path: Path) -> None:
    read = read_plugin(written(tmp_path, wheel_of(WHEEL), "f.whl"), no_index)
    assert (read.name, read.version) == ("fast-plugin", "1.2")
    assert read.entry_points == (("vllm.general_plugins", "fast = fast_plugin:register"),)
    assert read.starts == ("fast_plugin.pth",)
    assert list(read.files) == ["fast_plugin/__init__.py"]
    assert stated_version(read, list) == ("0.18.0", "it requires vllm==0.18.0")


SOURCES = {
    "src/fast_plugin/__init__.py": PLUGIN,
    "src/fast_plugin/inner/a.py": "",
    "tests/__init__.py": "",
    "noise/data.py": "",
    "pyproject.toml": """
        [project]
        name = "fast-plugin"
        version = "1.2"
        dependencies = ["vllm>=0.17,<0.19"]

        [project.entry-points."vllm.platform_plugins"]
        fast = "fast_plugin:register"
    """,
    "setup.py": 'from setuptools import setup\nsetup(entry_points={"vllm.general_plugins": ["a = b:c"]})\n',
}


@pytest.mark.parametrize("packed", [True, False])
def test_sources_are_read_as_they_are_installed(tmp_path: Path, *, packed: bool) -> None:
    for path, data in tree_of(SOURCES, "").files.items():
        (tmp_path / "f" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "f" / path).write_bytes(data)
    spec = written(tmp_path, sdist_of(SOURCES), "f.tar.gz") if packed else str(tmp_path / "f")
    read = read_plugin(spec, no_index)
    assert list(read.files) == ["fast_plugin/__init__.py", "fast_plugin/inner/a.py"]
    assert read.entry_points == (
        ("vllm.general_plugins", "a = b:c"),
        ("vllm.platform_plugins", "fast = fast_plugin:register"),
    )
    releases = ["0.17.0", "0.18.1", "0.18.2rc1", "0.19.0"]
    assert stated_version(read, lambda: releases) == ("0.18.1", "it requires vllm<0.19,>=0.17")


def test_an_installed_package_is_read_with_its_metadata_alone(tmp_path: Path) -> None:
    beside = {
        "other/__init__.py": "",
        "other-1.dist-info/METADATA": METADATA.replace("fast-plugin", "other"),
        "fast_plugin-1.2.dist-info/RECORD": "fast_plugin/__init__.py,,\n",
    }
    for path, text in {**WHEEL, **beside}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    read = read_plugin(str(tmp_path / "fast_plugin"), no_index)
    assert (read.name, list(read.files)) == ("fast-plugin", ["fast_plugin/__init__.py"])
    assert read.entry_points == (("vllm.general_plugins", "fast = fast_plugin:register"),)


@pytest.mark.parametrize(
    ("code", "about", "version"),
    [
        (
            'vllm_version_is("0.18.0") or vllm_version_is("0.17.0") or vllm_version_is("v0.18.0")',
            "",
            "0.18.0",
        ),
        ("", "| vLLM | >= v0.8.4 (tested up to v0.19.0) |", "0.19.0"),
        ("", "SGLang (tested with v0.5.9) or vLLM (tested with v0.16.0)", "0.16.0"),
        ("", "SGLang (tested with v0.5.9)", None),
        ("", "Name: x\nRequires-Dist: vllm>=0.8\n", None),
    ],
)
def test_the_version_is_the_one_that_the_plugin_names(
    code: str, about: str, version: str | None
) -> None:
    plugin = Plugin("x", "1", {"x/a.py": code.encode()}, about=about.encode())
    stated = stated_version(plugin, lambda: ["0.18.0"])
    assert (stated and stated[0]) == version


@pytest.mark.parametrize(
    ("data", "name", "why"),
    [
        (wheel_of({"../a.py": ""}), "f.whl", "not a plain relative path"),
        (wheel_of({"a/__init__.py": ""})[:-30], "f.whl", "corrupt or unreadable"),
        (sdist_of({"../../a.py": ""}), "f.tar.gz", "not a plain relative path"),
        (b"x", "f.tar.gz", "corrupt or unreadable"),
    ],
    ids=["a wheel that leads out", "half a wheel", "an sdist that leads out", "no sdist"],
)
def test_a_hostile_archive_is_refused(tmp_path: Path, data: bytes, name: str, why: str) -> None:
    with pytest.raises(TreeError, match=why):
        read_plugin(written(tmp_path, data, name), no_index)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"vllm/__init__.py": "", "x-1.dist-info/METADATA": ""}, "has its own vllm/"),
        ({"x-1.dist-info/METADATA": ""}, "has no Python package"),
    ],
)
def test_what_is_no_plugin_is_refused(tmp_path: Path, files: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_plugin(written(tmp_path, wheel_of(files), "f.whl"), no_index)
    with pytest.raises(UsageError, match="no such wheel, sdist or folder"):
        read_plugin(str(tmp_path / "nowhere"), no_index)


def test_a_release_has_to_be_named_by_its_version() -> None:
    for spec in ("pypi:fast_plugin", "pypi:../x==1.2", "pypi:x==1.*"):
        with pytest.raises(UsageError, match="there is no such release"):
            read_plugin(spec, no_index)


@pytest.mark.slow
def test_the_answer_says_which_vllm_it_was_held_against(tmp_path: Path) -> None:
    spec = written(tmp_path, wheel_of(WHEEL), "f.whl")
    old, new = tree_of(OLD, "0.18.0"), tree_of(NEW, "0.19.0")
    with Access(offline=True) as access:
        good, bad = (checked(spec, tree, old, access) for tree in (old, new))
    assert good.findings == ()
    assert bad.errors
    assert str(bad.made_for) == "vLLM 0.18.0 (--made-for)"


@pytest.mark.slow
def test_the_command_prints_the_findings_in_their_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = written(tmp_path, wheel_of(WHEEL), "f.whl")
    for version, files in (("0.18.0", OLD), ("0.19.0", NEW)):
        named = {**files, f"vllm-{version}.dist-info/METADATA": f"Name: vllm\nVersion: {version}\n"}
        for path, data in tree_of(named, version).files.items():
            (tmp_path / version / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / version / path).write_bytes(data)
    old, new = (str(tmp_path / version) for version in ("0.18.0", "0.19.0"))
    monkeypatch.setattr("sys.argv", ["plugin_check.py", spec, new, "--made-for", old])
    assert main() == 1
    first, entry, start, *findings, count = capsys.readouterr().out.splitlines()
    assert first == "fast-plugin 1.2 on vLLM 0.19.0; made for: vLLM 0.18.0 (--made-for)"
    assert entry == "starts by vllm.general_plugins: fast = fast_plugin:register"
    assert start == "starts with Python: fast_plugin.pth"
    assert findings[0].startswith("error: fast_plugin/__init__.py:3: cannot import old_name")
    assert count == f"{len(findings)} errors, 0 notes"
    monkeypatch.setattr("sys.argv", ["plugin_check.py", spec, old, "--made-for", old])
    assert main() == 0
    monkeypatch.setattr("sys.argv", ["plugin_check.py", str(tmp_path / "nowhere"), old])
    assert main() == 2
    assert "no such wheel, sdist or folder" in capsys.readouterr().err
