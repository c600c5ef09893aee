"""Under which key an answer is kept: whatever code decides a verdict is part of it, wherever it lies."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from matrix_making import cell
from mod_making import diff_of, mod, variant
from release_shelf import ReleaseInMemory

from vllm_mods.base.cache import Cache
from vllm_mods.matrices import store
from vllm_mods.matrices.store import AnswerStore, key_of

if TYPE_CHECKING:
    from pathlib import Path


def test_a_key_is_of_the_code_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for number, files in enumerate(
        ({"a.py": "1", "fit/b.py": "2"}, {"a.py": "2", "fit/b.py": "1"}, {"a.py": "1"})
    ):
        package = tmp_path / str(number)
        for name, text in files.items():
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_text(text)
        monkeypatch.setattr(store, "__file__", str(package / "matrices/store.py"))
        store._code_digest.cache_clear()
        keys += [key_of([]), key_of([])]
    store._code_digest.cache_clear()
    assert keys[::2] == keys[1::2]
    assert len(set(keys)) == 3


ANSWER = cell(verdict="moved", offsets=(2,), packages=(("k", "1.0"),))
TREE = ReleaseInMemory({}, version="0.19.1", identity="1" * 64)


def test_an_answer_is_known_by_its_key_and_its_tree(tmp_path: Path) -> None:
    kept = AnswerStore(Cache(str(tmp_path)))
    kept.remember("key", ANSWER, TREE)
    assert kept.known("key", TREE.identity) == ANSWER
    for key, identity in (("other", TREE.identity), ("key", "2" * 64), ("key", None)):
        assert kept.known(key, identity) is None
    none = AnswerStore(None)
    none.remember("key", ANSWER, TREE)
    none.sweep()
    assert none.known("key", TREE.identity) is None


def test_answers_that_nobody_has_written_for_months_are_dropped(tmp_path: Path) -> None:
    for days, is_there in ((89, True), (91, False)):
        kept = AnswerStore(Cache(str(tmp_path / str(days))))
        kept.remember("key", ANSWER, TREE)
        (file,) = (one for one in (tmp_path / str(days)).rglob("*") if one.is_file())
        past = time.time() - days * 86400
        os.utime(file, (past, past))
        kept.sweep()
        assert (kept.known("key", TREE.identity) is not None) is is_there


def test_a_key_names_the_mods_in_their_order_and_their_locks() -> None:
    first, second = (
        mod(variant(diff_of("vllm/a.py", "A\n", f"{n}\n")), name=f"m{n}") for n in range(2)
    )
    every = [
        *([first], [second], [first, second], [second, first]),
        *(
            [first._replace(lock=b"1")],
            [first._replace(lock=b"2")],
            [first._replace(digest="other")],
        ),
    ]
    keys = [key_of(mods) for mods in every]
    assert len(set(keys)) == len(keys)
    assert keys == [key_of(mods) for mods in every]
