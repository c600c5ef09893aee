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
    "schema": 1, "mod": "m", "version": "1", "digest": "d", "manifest": {}, "manifest_sha256": "s",
    "trees": [TREE],
}  # fmt: skip


def test_what_is_written_is_read_back_to_the_byte() -> None:
    data = (json.dumps(LOCK, indent=1) + "\n").encode()
    assert mod_lock.dump(mod_lock.parse(data, "mod.lock")) == data


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("before", "1", r"trees\[0\]\.files\[0\]\.before: is no sha256"),
        ("path", "../a.py", r"trees\[0\]\.files\[0\]\.path: '../a\.py' is no plain path"),
    ],
)
def test_a_file_has_a_plain_path_and_hashes(key: str, value: str, problem: str) -> None:
    tree: dict[str, Any] = {**TREE, "files": [{**FILE, key: value}]}
    with pytest.raises(ManifestError, match=problem) as caught:
        mod_lock.parse(json.dumps({**LOCK, "trees": [tree]}).encode(), "mod.lock")
    assert "--update-lock" in (caught.value.hint or "")
