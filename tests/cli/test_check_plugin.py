"""``check --plugin``: what a vLLM breaks of a plugin, for a person, a script and an exit code."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from installing import wheel
from toy_plugin import NEW, OLD, WHEEL, tree_of, wheel_of

from vllm_mods.api.plugin_check import PluginMatrix

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Any]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with a plugin as a wheel and the two vLLMs."""
    (tmp_path / "f.whl").write_bytes(wheel_of(WHEEL))
    for version, files in (("0.18.0", OLD), ("0.19.0", NEW)):
        named = {**files, f"vllm-{version}.dist-info/METADATA": f"Name: vllm\nVersion: {version}\n"}
        for path, data in tree_of(named, version).files.items():
            (tmp_path / version / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / version / path).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_the_answer_has_what_starts_it_then_what_is_broken(call: Call) -> None:
    answer = call("check", "--plugin", "f.whl", "--target", "0.19.0", "--made-for", "0.18.0")
    assert (answer.code, answer.err) == (1, "")
    lines = answer.out.splitlines()
    assert lines[:4] == [
        "fast-plugin 1.2 on vLLM 0.19.0 (0.19.0)",
        "  made for vLLM 0.18.0 (--made-for)",
        "  starts by vllm.general_plugins: fast = fast_plugin:register",
        "  runs whenever Python starts: fast_plugin.pth",
    ]
    assert lines[4].startswith("  fast_plugin/__init__.py:3: cannot import old_name")
    assert lines[-3] == "  10 errors, 0 notes"
    assert lines[-2].startswith("  not examined: names in strings, ")
    own = call("check", "--plugin", "f.whl", "--target", "0.18.0", "--made-for", "0.18.0")
    assert (own.code, own.out.count("[fit-")) == (0, 0)
    assert "  0 errors, 0 notes\n" in own.out


@pytest.mark.slow
def test_the_answer_in_json(place: Path, call: Call) -> None:
    metadata = WHEEL["fast_plugin-1.2.dist-info/METADATA"].partition("Requires")[0]
    unnamed = {**WHEEL, "fast_plugin-1.2.dist-info/METADATA": metadata}
    (place / "f.whl").write_bytes(wheel_of(unnamed))
    answer = call("check", "--plugin", "f.whl", "--target", "0.19.0", "--json")
    said = json.loads(answer.out)
    assert (answer.code, said["schema"], said["ok"]) == (0, 1, True)
    assert said["tree"] == {"spec": "0.19.0", "version": "0.19.0"}
    assert said["plugin"] == {
        "name": "fast-plugin",
        "version": "1.2",
        "entry_points": [{"group": "vllm.general_plugins", "entry": "fast = fast_plugin:register"}],
        "starts": ["fast_plugin.pth"],
        "made_for": None,
        "source": "",
    }
    keys = ["code", "message", "path", "line", "hunk", "scope", "level"]
    assert {tuple(one) for one in said["findings"]} == {tuple(keys)}
    assert {one["level"] for one in said["findings"]} == {"note"}


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("rev",), "these cannot be used with --plugin: mods"),
        (("--pairing", "x", "--model", "m"), "with --plugin: --pairing, --model"),
        (("--with", "torch==2"), "with --plugin: --with"),
        (("--format", "sarif", "--explain"), "with --plugin: --explain, --format"),
    ],
)
def test_what_is_of_mods_does_not_go_with_it(call: Call, more: tuple[str, ...], why: str) -> None:
    answer = call("check", "--plugin", "f.whl", "--target", "0.19.0", *more)
    assert (answer.code, answer.out) == (2, "")
    assert why in answer.err


@pytest.fixture
def index(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder of wheels: two vLLMs, and three releases of a plugin, of which one cannot be read."""
    links = place / "links"
    for version in ("0.18.0", "0.19.0"):
        root = place / version
        files = {
            str(path.relative_to(root)): path.read_bytes() for path in root.rglob("vllm/**/*.py")
        }
        wheel(links, files, version)
    (links / "fast_plugin-1.2-py3-none-any.whl").write_bytes(wheel_of(WHEEL))
    metadata = (
        WHEEL["fast_plugin-1.2.dist-info/METADATA"].replace("1.2", "1.3").replace("0.18", "0.19")
    )
    calm = {
        "fast_plugin/__init__.py": "import vllm\n",
        "fast_plugin-1.3.dist-info/METADATA": metadata,
    }
    (links / "fast_plugin-1.3-py3-none-any.whl").write_bytes(wheel_of(calm))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return links


@pytest.mark.slow
def test_the_matrix_of_a_plugin_has_its_releases_by_those_of_vllm(index: Path, call: Call) -> None:
    answer = call("matrix", "--plugin", "pypi:fast-plugin")
    lines = answer.out.splitlines()
    assert (answer.code, answer.err, lines[:3]) == (
        1,
        "",
        [
            "plugin           made for  0.18.0  0.19.0",
            "fast-plugin 1.2  0.18.0    ok      10 errors",
            "fast-plugin 1.3  0.19.0            ok",
        ],
    )
    assert lines[3].startswith(
        "fast-plugin 1.2 on 0.19.0: fast_plugin/__init__.py:3: cannot import"
    )
    cells = call("matrix", "--plugin", "pypi:fast_plugin", "--vllm", ">=0.18", "--json").json[
        "cells"
    ]
    assert [(one["version"], one["tree"]["version"], one["ok"]) for one in cells] == [
        ("1.2", "0.18.0", True),
        ("1.2", "0.19.0", False),
        ("1.3", "0.18.0", True),
        ("1.3", "0.19.0", True),
    ]
    (index / "fast_plugin-1.4-py3-none-any.whl").write_bytes(b"no zip")
    broken = call("matrix", "--plugin", "pypi:fast-plugin", "--vllm", "==0.18.0")
    assert (broken.code, "not checked: fast_plugin-1.4-py3-none-any.whl" in broken.out) == (1, True)
    torn = wheel_of({"fast_plugin/__init__.py": "", "pyproject.toml": "= x\n"})
    (index / "fast_plugin-1.4-py3-none-any.whl").write_bytes(torn)
    torn_one = call("matrix", "--plugin", "pypi:fast-plugin", "--vllm", "==0.18.0")
    assert (torn_one.code, "fast-plugin 1.3  0.19.0    ok" in torn_one.out) == (1, True)
    assert "not checked: pypi:fast-plugin==1.4: pyproject.toml: 1 problem" in torn_one.out


@pytest.mark.slow
def test_the_matrix_of_a_plugin_without_a_final_release_has_the_others(
    index: Path, call: Call
) -> None:
    for file in index.glob("fast_plugin*"):
        file.unlink()
    files = {name.replace("1.2", "1.4rc1"): text for name, text in WHEEL.items()}
    (index / "fast_plugin-1.4rc1-py3-none-any.whl").write_bytes(wheel_of(files))
    answer = call("matrix", "--plugin", "pypi:fast-plugin", "--vllm", "==0.19.0", "--json")
    assert (answer.code, len(answer.json["cells"])) == (1, 1)


def test_a_matrix_without_cells_is_no_yes() -> None:
    assert not PluginMatrix((), ()).ok


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("fast", "--strict"), "these cannot be used with --plugin: mods, --strict"),
        (
            ("--format", "html", "--tree", "x"),
            "these cannot be used with --plugin: --tree, --format",
        ),
    ],
)
def test_the_matrix_of_a_plugin_has_no_mods(call: Call, more: tuple[str, ...], why: str) -> None:
    answer = call("matrix", "--plugin", "f.whl", *more)
    assert (answer.code, why in answer.err) == (2, True)


@pytest.mark.usefixtures("place")
def test_what_is_asked_in_vain_is_told(call: Call) -> None:
    alone = call("check", "--made-for", "0.18.0", "--target", "0.19.0")
    assert (alone.code, alone.err.splitlines()[0]) == (2, "error: --made-for needs --plugin")
    none = call("check", "--plugin", "0.18.0", "--target", "0.19.0")
    assert (none.code, none.err.splitlines()[0]) == (2, "error: 0.18.0 has its own vllm/")
    offline = call("check", "--plugin", "f.whl", "--target", "0.19.0", "--offline")
    assert offline.code == 1
    assert "f.whl was made for vLLM ==0.18.0 (it requires vllm==0.18.0): " in offline.err
    assert "--made-for TREE" in offline.err


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("__init__", f"import vllm\nvllm{'.a' * 2000} = 1\n", "it is nested too deeply to be read"),
        ("a" * 300, "", "File name too long"),
    ],
)
def test_what_cannot_be_checked_is_an_error(
    place: Path, call: Call, file: str, text: str, why: str
) -> None:
    held = {"p/__init__.py": "", f"p/{file}.py": text, "p-1.dist-info/METADATA": ""}
    (place / "odd.whl").write_bytes(wheel_of(held))
    answer = call("check", "--plugin", "odd.whl", "--target", "0.19.0", "--made-for", "0.18.0")
    assert (answer.code, answer.out) == (1, "")
    assert f"odd.whl cannot be checked: {why}\n" in answer.err
    assert "is this a plugin?" in answer.err


@pytest.mark.usefixtures("place")
def test_a_full_disk_is_no_fault_of_the_plugin(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    answer = call("check", "--plugin", "f.whl", "--target", "0.19.0", "--made-for", "0.18.0")
    assert (answer.code, answer.out) == (1, "")
    assert "No space left on device" in answer.err
    assert "TMPDIR" in answer.err


@pytest.mark.network
@pytest.mark.parametrize(
    ("plugin", "target", "made_for", "first"),
    [
        (
            "kvcached==0.1.5",
            "0.20.2",
            "0.19.0",
            ["GPUModelRunner._reshape_kv_cache_tensors is replaced"],
        ),
        ("kvcached==0.1.5", "0.19.0", "0.19.0", []),
        ("vllm-spyre==2.0.0rc9", "0.19.0", "0.18.1", ["cannot import get_cross_encoder_act_fn"]),
        (
            "lmcache==0.5.0",
            "0.20.1",
            "0.22.1",
            [
                "cannot import KVCacheSpecKind",
                "cannot import get_kv_cache_spec_kind",
                "too many positional arguments: expected 6, got 7",
                "no argument provided for required parameter `server_urls`",
            ],
        ),
    ],
)
def test_real_plugins(
    call: Call, plugin: str, target: str, made_for: str, first: list[str]
) -> None:
    """All but lmcache say themselves what they were made for: in words, or as a range."""
    more = ("--made-for", f"pypi:{made_for}") if plugin.startswith("lmcache") else ()
    answer = call(
        "check", "--plugin", f"pypi:{plugin}", "--target", f"pypi:{target}", *more, "--json"
    )
    said = json.loads(answer.out)
    assert answer.code == bool(first)
    assert said["plugin"]["made_for"] == made_for
    assert bool(said["findings"]) == bool(first)
    found = said["findings"][: len(first)]
    assert all(text in one["message"] for text, one in zip(first, found, strict=True))
