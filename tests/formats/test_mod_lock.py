"""mod.lock: what is written is read back, and what cannot be one is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vllm_mods.base.errors import ManifestError
from vllm_mods.formats import mod_lock

FILE = {"path": "vllm/a.py", "before": "a" * 64, "after": None}
TREE = {
    "vllm": ["0.20.0"], "in_range": True, "variant": "a", "verdict": "applies",
    "files": [FILE], "hunks": [], "beside": [], "witness": [],
}  # fmt: skip
LOCK = {
    "schema": 1, "mod": "m", "version": "1", "digest": "d",
    "trees": [TREE],
}  # fmt: skip


def test_what_is_written_is_read_back_to_the_byte() -> None:
    data = (json.dumps(LOCK, indent=1) + "\n").encode()
    assert mod_lock.dump(mod_lock.parse(data, "mod.lock")) == data


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("before", "1", r"trees\[0\]\.files\[0\]\.before: is not a sha256"),
        ("path", "../a.py", r"trees\[0\]\.files\[0\]\.path: '../a\.py' is not a plain path"),
    ],
)
def test_a_file_has_a_plain_path_and_hashes(key: str, value: str, problem: str) -> None:
    tree: dict[str, Any] = {**TREE, "files": [{**FILE, key: value}]}
    with pytest.raises(ManifestError, match=problem) as caught:
        mod_lock.parse(json.dumps({**LOCK, "trees": [tree]}).encode(), "mod.lock")
    assert "--update-lock" in (caught.value.hint or "")


def test_what_most_mods_have_none_of_is_written_where_it_says_something() -> None:
    hunk = {"patch": "x.patch", "path": "vllm/a.py", "number": 1}
    more = {
        **LOCK,
        "trees": [TREE, {**TREE, "proof": "types"}],
        "others": [["0.30.0", "upstream"]],
        "written": [
            {
                "variant": "a", "base": "0.20.0", "patches": "d",
                "files": [{"patch": "x.patch", "path": "vllm/a.py", "before": "1", "after": "2"}],
                "hunks": [{**hunk, "chains": ["A.f", ""]}],
            }
        ],
    }  # fmt: skip
    data = (json.dumps(more, indent=1) + "\n").encode()
    lock = mod_lock.parse(data, "mod.lock")
    assert [tree.proof for tree in lock.trees] == ["", "types"]
    assert lock.others == (("0.30.0", "upstream"),)
    assert lock.written[0].hunks == (mod_lock.WrittenHunk("x.patch", "vllm/a.py", 1, ("A.f", "")),)
    assert mod_lock.dump(lock) == data


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (
            json.dumps({**LOCK, "schema": 2}),
            "schema: this version of vllm-mods reads schema 1, not 2",
        ),
        (json.dumps({"mod": "m"}), "schema: this version of vllm-mods reads schema 1, not None"),
        ("[]", "expected an object, found an array"),
        ("{", "not JSON"),
        (
            json.dumps({**LOCK, "trees": [{**TREE, "verdict": "fine"}]}),
            "trees[0].verdict: is not a verdict",
        ),
    ],
)
def test_what_is_no_lock_is_refused(data: str, problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        mod_lock.parse(data.encode(), "mod.lock")
    assert caught.value.problems[0].startswith(problem)
    hint = "the file is generated: `vllm-mods matrix MOD --update-lock` writes it again"
    assert caught.value.hint == hint
