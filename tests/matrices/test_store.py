"""Under which key an answer is kept: whatever code decides a verdict is part of it, wherever it lies."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import grimp
import pytest
from mod_making import diff_of, mod, variant
from release_shelf import ReleaseInMemory

from vllm_mods.base.cache import Cache
from vllm_mods.base.model import Verdict
from vllm_mods.matrices import store
from vllm_mods.matrices.cell import Answer
from vllm_mods.matrices.store import AnswerStore, key_of

if TYPE_CHECKING:
    from pathlib import Path


def package(root: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(store.sources(str(root)))


def test_every_module_that_may_decide_is_part_of_the_key(tmp_path: Path) -> None:
    files = {"a.py": "1", "fit/b.py": "2", "fit/deep/c.py": "3", "image/sources/d.py": "4"}
    known = package(tmp_path, files)
    assert [one.partition(" ")[2] for one in known] == sorted(files)
    for name in files:
        assert package(tmp_path, files | {name: "other"}) != known


def test_what_decides_nothing_is_passed_over_at_the_top_only(tmp_path: Path) -> None:
    known = package(tmp_path, {"a.py": "1", "cli/b.py": "2", "report/c.py": "3", "_data/d.py": "4"})
    assert len(known) == 1
    assert len(package(tmp_path, {"trees/report/e.py": "5"})) == 2


def test_files_that_trade_their_names_give_another_key(tmp_path: Path) -> None:
    known = package(tmp_path, {"a.py": "1", "b.py": "2"})
    assert package(tmp_path, {"a.py": "2", "b.py": "1"}) != known


@pytest.mark.slow
def test_no_answer_rests_on_code_that_the_key_passes_over() -> None:
    graph = grimp.build_graph("vllm_mods", exclude_type_checking_imports=True)
    used = graph.find_upstream_modules("vllm_mods.matrices.work") | {"vllm_mods.matrices.work"}
    assert len(used) > 50
    assert [one for one in used if one.split(".")[1:2] and one.split(".")[1] in store.BESIDE] == []


ANSWER = Answer(Verdict.MOVED, variant="one", in_range=True, offsets=(2,), packages=(("k", "1.0"),))
TREE = ReleaseInMemory({}, version="0.19.1", identity="1" * 64)


def test_an_answer_is_known_by_its_key_and_its_tree(tmp_path: Path) -> None:
    kept = AnswerStore(Cache(str(tmp_path)))
    kept.remember("key", ANSWER, TREE)
    assert kept.known("key", TREE.identity) == ("0.19.1", ANSWER)
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
