"""``upstream`` on small trees and on real releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from command_line import FILES, LOADER
from histories import git, grow
from mod_making import diff_of, write_mod

from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Any]

START = {path: data.decode() for path, data in FILES.items()}
ROOT = 'os.path.join("fast", name)'
BOTH = LOADER.replace('os.path.join("weights", name)', ROOT)
HALF = LOADER.replace('os.path.join("weights", name)', ROOT, 1)


@pytest.fixture
def trees(library: Path, tmp_path: Path) -> list[str]:
    """Return four commits: without the change, with half of it, with all of it, with a comment too."""
    write_mod(library, "both", diff_of("vllm/loader.py", LOADER, BOTH, context=2))
    write_mod(
        library, "on-top", diff_of("vllm/a.py", "A = 1\n", "A = 2\n"), more='requires = ["both"]'
    )
    write_mod(library, "later", diff_of("vllm/b.py", "B = 1\n", "B = 2\n"), more='after = ["both"]')
    folder = tmp_path / "repo"
    folder.mkdir()
    shas = grow(
        folder,
        ("1", START),
        ("2", {"vllm/loader.py": HALF}),
        ("3", {"vllm/loader.py": BOTH}),
        ("4", {"vllm/loader.py": f"# A comment\n{BOTH}"}),
    )
    for i, sha in enumerate(shas):
        git(folder, "tag", f"v0.{20 + i}.0", sha)
    return [f"git:{folder}@v0.{20 + i}.0" for i in range(len(shas))]


def asked(trees: list[str]) -> list[str]:
    return [word for tree in trees for word in ("--tree", tree)]


def test_a_row_per_tree_and_where_it_can_go(call: Call, trees: list[str]) -> None:
    answer = call("upstream", "both", *asked(trees))
    assert answer.code == 0
    assert answer.out.splitlines() == [
        "both 1.0.0",
        f"  {trees[0]}  applies         2 placed",
        f"  {trees[1]}  conflict        1 placed, 1 carried",
        f"  {trees[2]}  upstream        2 carried",
        f"  {trees[3]}  upstream        2 carried",
        f"vllm/loader.py hunk 1 of x.patch is carried by {trees[1]} to {trees[3]}",
        f"vllm/loader.py hunk 2 of x.patch is carried by {trees[2]} to {trees[3]}",
        f"both can go from {trees[2]} on",
    ]


@pytest.mark.slow
def test_json_agrees_with_matrix(call: Call, trees: list[str]) -> None:
    found = call("upstream", "both", *asked(trees), "--json").json
    assert (found["schema"], found["mod"], found["needed"]) == (1, "both", True)
    assert found["can_go"] == {"version": "0.22.0", "tree": trees[2]}
    cells = call("matrix", "both", *asked(trees), "--json").json["cells"]
    shared = ("version", "tree", "variant", "verdict", "findings")
    assert [{key: one[key] for key in shared} for one in found["trees"]] == [
        {key: one[key] for key in shared} for one in cells
    ]
    assert found["trees"][1]["hunks"] == [
        {"patch": "x.patch", "path": "vllm/loader.py", "hunk": 1, "state": "carried"},
        {"patch": "x.patch", "path": "vllm/loader.py", "hunk": 2, "state": "placed"},
    ]


def test_a_mod_that_nothing_needs(call: Call, trees: list[str]) -> None:
    answer = call("upstream", "both", *asked(trees[2:]))
    assert answer.code == 1
    assert f"both can go from {trees[2]} on" in answer.out


def test_what_is_carried_no_longer_as_it_stands(call: Call, trees: list[str]) -> None:
    answer = call("upstream", "both", *asked([trees[2], trees[3], trees[0]]))
    assert answer.code == 0
    assert (
        f"carried whole by {trees[2]} to {trees[3]}, and not as it stands by what came"
        in answer.out
    )
    answer = call("upstream", "both", *asked(trees[:2]))
    assert "none of these trees carries both whole" in answer.out
    assert "can go" not in answer.out


def test_a_mod_put_in_by_this_tool_is_not_upstream(call: Call, site: Path) -> None:
    assert call("apply", "fast", "--target", site).code == 0
    found = call("upstream", "fast", "--tree", site, "--json")
    assert (found.code, found.json["trees"][0]["verdict"]) == (0, "applied")
    assert found.json["can_go"] is None
    said = call("upstream", "fast", "--tree", site).out
    assert f"fast is in {site}; whether the release has it itself, only the release tells" in said


def test_no_such_mod(call: Call) -> None:
    answer = call("upstream", "nope", "--tree", ".")
    assert (answer.code, answer.out) == (2, "")
    assert "no mod named `nope`" in answer.err


POOLERS = "vllm/model_executor/layers/pooler/tokwise/poolers.py"


@pytest.mark.network
def test_a_change_that_landed_in_0_23(call: Call, library: Path) -> None:
    before = (open_tree("pypi:0.22.1").read(POOLERS) or b"").decode()
    # by hand what 0.23.0 has: a pooler that shows itself, and an error where there was an assert
    method = "    def get_supported_tasks(self) -> Set[PoolingTask]:\n        tasks = set(POOLING_TASKS)\n"
    shown = (
        "    def extra_repr(self) -> str:\n"
        "        head_name = self.head.__class__.__name__ if self.head is not None else None\n"
        '        return f"pooling={self.pooling.__class__.__name__}, head={head_name}"\n\n'
    )
    asserted = (
        "    model_config = vllm_config.model_config\n"
        "    assert model_config.pooler_config is not None\n"
        "    head = TokenClassifierPoolerHead(\n"
    )
    raised = asserted.replace(
        "    assert model_config.pooler_config is not None\n",
        "    if model_config.pooler_config is None:\n"
        "        raise ValueError(\n"
        '            "model_config.pooler_config must be set for token classification pooling"\n'
        "        )\n",
    )
    assert (before.count(method), before.count(asserted)) == (1, 1)
    after = before.replace(method, shown + method).replace(asserted, raised)
    patch = diff_of(POOLERS, before, after)
    write_mod(library, "poolers", patch, vllm=">=0.22,<0.24")
    more = after.replace("import torch\n", "import torch  # ours\n", 1)
    write_mod(library, "poolers-more", diff_of(POOLERS, before, more), vllm=">=0.22,<0.24")

    answer = call("upstream", "poolers", "--vllm", ">=0.22,<0.25", "--json")
    assert answer.code == 0
    verdicts = {one["tree"]: one["verdict"] for one in answer.json["trees"]}
    assert {"pypi:0.22.0": "applies", "pypi:0.22.1": "applies"}.items() <= verdicts.items()
    assert {verdicts["pypi:0.23.0"], verdicts["pypi:0.24.0"]} == {"upstream"}
    assert answer.json["can_go"]["version"] == "0.23.0"
    cells = call("matrix", "poolers", "--vllm", ">=0.22,<0.25", "--json").json["cells"]
    assert {one["tree"]: one["verdict"] for one in cells} == verdicts

    answer = call("upstream", "poolers-more", "--vllm", "==0.23.0", "--json")
    last = answer.json["trees"][-1]
    assert last["verdict"] == "conflict"
    assert "carried" in {one["code"] for one in last["findings"]}
    assert sorted(one["state"] for one in last["hunks"]) == ["carried", "carried", "placed"]
