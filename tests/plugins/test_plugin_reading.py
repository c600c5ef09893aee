"""A plugin in each form that it comes in says the same, and what is none, or hostile, is refused. None of it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lowering import lower
from toy_plugin import METADATA, PLUGIN, WHEEL, sdist_of, tree_of, wheel_of

from vllm_mods.base.errors import ManifestError, TreeError, UsageError
from vllm_mods.plugins.reading import read_plugin

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vllm_mods.plugins.reading import Plugin
    from vllm_mods.trees.other_packages import Project

GENERAL = ("vllm.general_plugins", "fast = fast_plugin:register")
SOURCES = {
    "src/fast_plugin/__init__.py": PLUGIN,
    "src/fast_plugin/inner/a.py": "",
    "src/sitecustomize.py": "",
    "fast_plugin.pth": "import fast_plugin\n",
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
    "setup.py": (
        "from setuptools import setup\n"
        'raise SystemExit("this was run")\n'
        'setup(entry_points={"vllm.general_plugins": ["fast = fast_plugin:register"], **more})\n'
    ),
}


def no_index(name: str) -> Project:
    raise AssertionError(f"{name} was asked for")


def laid(folder: Path, files: Mapping[str, str]) -> str:
    for path, data in tree_of(files, "").files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return str(folder)


def packed(folder: Path, data: bytes, name: str) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def read(spec: str) -> tuple[Plugin, list[str]]:
    plugin, files = read_plugin(spec, no_index)
    return plugin, list(files)


TESTED = {**WHEEL, "tests/__init__.py": "", "tests/a.py": "import vllm.gone"}


def test_a_wheel_and_an_installed_package_name_what_starts_them(tmp_path: Path) -> None:
    beside = {
        "other/__init__.py": "",
        "other.pth": "",
        "other-1.dist-info/METADATA": METADATA.replace("fast-plugin", "other"),
        "other-1.dist-info/RECORD": "other/__init__.py,,\nother.pth,,\n",
        "fast_plugin-1.2.dist-info/RECORD": "fast_plugin/__init__.py,,\nfast_plugin.pth,,\n",
    }
    site = laid(tmp_path / "site", {**WHEEL, **beside})
    for spec in (packed(tmp_path, wheel_of(TESTED), "f.whl"), f"{site}/fast_plugin"):
        plugin, files = read(spec)
        assert plugin == (
            "fast-plugin",
            "1.2",
            (GENERAL,),
            ("fast_plugin.pth",),
            ("==0.18.0", "it requires vllm==0.18.0"),
        )
        assert files == ["fast_plugin/__init__.py"]


def test_a_compiled_module_is_known_by_its_name_alone(tmp_path: Path) -> None:
    compiled = dict.fromkeys(
        ("fast_plugin/ops.cpython-312-x86_64-linux-gnu.so", "x.libs/y.so"), "z"
    )
    spec = packed(tmp_path, wheel_of({**WHEEL, **compiled}), "f.whl")
    files = read_plugin(spec, no_index)[1]
    assert [path for path, data in files.items() if not data] == [*compiled][:1]


@pytest.mark.parametrize("as_sdist", [True, False])
def test_sources_are_read_as_they_are_installed(tmp_path: Path, *, as_sdist: bool) -> None:
    spec = packed(tmp_path, sdist_of(SOURCES), "f.tar.gz") if as_sdist else laid(tmp_path, SOURCES)
    plugin, files = read(spec)
    assert files == ["fast_plugin/__init__.py", "fast_plugin/inner/a.py", "sitecustomize.py"]
    assert plugin == (
        "fast-plugin",
        "1.2",
        (GENERAL, ("vllm.platform_plugins", "fast = fast_plugin:register")),
        ("fast_plugin.pth", "src/sitecustomize.py"),
        ("<0.19,>=0.17", "it requires vllm<0.19,>=0.17"),
    )


def test_what_a_folder_holds_beside_its_packages_is_not_looked_at(tmp_path: Path) -> None:
    spec = laid(tmp_path / "f", {**SOURCES, ".venv/lib/x.py": "", "data/deep/x/y.py": ""})
    (tmp_path / "f/linked").symlink_to(tmp_path / "f/src/fast_plugin")
    (tmp_path / "f/src/fast_plugin/away.py").symlink_to("/etc/passwd")
    assert len(read(spec)[1]) == 3


@pytest.mark.parametrize(
    ("code", "about", "version"),
    [
        (
            'vllm_version_is("0.18.0") or vllm_version_is("0.17.0") or vllm_version_is("v0.18.0")',
            "",
            "==0.18.0",
        ),
        ("", "| vLLM | >= v0.8.4 (tested up to v0.19.0) |", "==0.19.0"),
        ("", "SGLang (tested with v0.5.9) or vLLM (tested with v0.16.0)", "==0.16.0"),
        ("", "SGLang (tested with v0.5.9)", None),
        ("", "Name: x\nRequires-Dist: vllm>=0.8\n", None),
        ("", "Name: x\nRequires-Dist: vllm==0.30.0+cpu\n", "==0.30.0"),
    ],
)
def test_the_version_is_the_one_that_the_plugin_names(
    tmp_path: Path, code: str, about: str, version: str | None
) -> None:
    files = {"x/__init__.py": code, "x-1.dist-info/METADATA": about}
    plugin, _ = read(packed(tmp_path, wheel_of(files), "x.whl"))
    assert (plugin.made_for and plugin.made_for[0]) == version


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
        read(packed(tmp_path, data, name))


def test_a_plugin_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = packed(tmp_path, wheel_of(WHEEL), "f.whl")
    lower(monkeypatch, "PLUGIN", 99)
    with pytest.raises(TreeError, match="has more than 99 bytes, the limit for a plugin's Python"):
        read(spec)


@pytest.mark.parametrize(
    "text",
    [
        "project = 1\n",
        "[project]\ndependencies = 3\nentry-points = [1]\n",
        '[project]\nentry-points."vllm.x" = "y"\ndependencies = ["vllm ==", "(", "vllm @ file:///x"]\n',
        "[project]\nname = [1]\nversion = {a = 1}\n",
    ],
)
def test_metadata_that_means_nothing_says_nothing(tmp_path: Path, text: str) -> None:
    spec = laid(tmp_path / "f", {"f/__init__.py": "", "pyproject.toml": text, "setup.py": "def (:"})
    plugin, files = read(spec)
    assert (plugin.entry_points, plugin.made_for, files) == ((), None, ["f/__init__.py"])


def test_a_pyproject_that_is_no_toml_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="not TOML"):
        read(laid(tmp_path / "f", {"f/__init__.py": "", "pyproject.toml": "= ="}))


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"vllm/__init__.py": "", "x-1.dist-info/METADATA": ""}, "has its own vllm/"),
        ({"x-1.dist-info/METADATA": ""}, "has no Python package"),
    ],
)
def test_what_is_no_plugin_is_refused(tmp_path: Path, files: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read(packed(tmp_path, wheel_of(files), "f.whl"))
    with pytest.raises(UsageError, match=why):
        read(laid(tmp_path / "f", files))


@pytest.mark.parametrize(
    "spec", ["pypi:fast_plugin", "pypi:../x==1.2", "pypi:x==1.*", "nowhere", "nowhere.whl"]
)
def test_what_is_not_there_is_refused(spec: str) -> None:
    with pytest.raises(UsageError, match="there is no such release, wheel, sdist or folder"):
        read(spec)
