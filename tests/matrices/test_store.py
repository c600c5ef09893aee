"""Under which key an answer is kept: whatever code decides a verdict is part of it, wherever it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grimp

from vllm_mods.matrices import store

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


def test_no_answer_rests_on_code_that_the_key_passes_over() -> None:
    graph = grimp.build_graph("vllm_mods", exclude_type_checking_imports=True)
    used = graph.find_upstream_modules("vllm_mods.matrices.work") | {"vllm_mods.matrices.work"}
    assert len(used) > 50
    assert [one for one in used if one.split(".")[1:2] and one.split(".")[1] in store.BESIDE] == []
