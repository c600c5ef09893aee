"""Steps that a script survives are optional; what only a run tells is never taken for nothing."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from mod_folders import FAST, FIX, LOADER, TOP
from mod_making import diff_of
from test_import_mods import written

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Answer

    Call = Callable[..., Answer]

A = diff_of("vllm/a.py", "A = 1\n", "A = 2\n").decode()
LOST = diff_of("vllm/a.py", "GONE = 1\n", "GONE = 2\n").decode()
PUT = 'patch -s -F0 -p1 -d "$PYTHON_ROOT" < '
FREE = "optional: the script survives it where it does not go in"


def optional(call: Call, tmp_path: Path, script: str, *tree: object) -> list[str] | None:
    """Return the optional patches of what a script becomes; None if it is left to a person."""
    files = {"run.sh": script, "fix.patch": FIX, "a.patch": A, "lost.patch": LOST}
    answer = call("import", written(tmp_path, files), *tree)
    if answer.code == 1:
        return None
    assert answer.code == 0, answer.err
    found = [line for line in answer.out.splitlines() if line.startswith("optional = ")]
    names = found[0].split('"')[1::2] if found else []
    said = [line for line in answer.err.splitlines() if line.endswith(FREE)]
    assert len(said) == len(names)
    return [name.split("/")[1].removesuffix(".patch") for name in names]


@pytest.mark.parametrize(
    ("top", "body", "free"),
    [
        (TOP, f"{PUT}fix.patch || echo skipping", ["fix"]),
        (TOP, f"{PUT}fix.patch || true\n{PUT}a.patch", ["fix"]),
        (TOP, f"if {PUT}fix.patch; then echo done; else echo skipping; fi", ["fix"]),
        (TOP, f"if ! {PUT}fix.patch; then echo skipping; fi\n{PUT}a.patch", ["fix"]),
        (TOP, f"if ! {PUT}fix.patch; then exit 1; fi\n{PUT}a.patch || :", ["a"]),
        (TOP, f"{PUT}fix.patch || {{ echo no; exit 1; }}", []),
        (TOP, f"put() {{ {PUT}$1 || return 1; }}\nput fix.patch\nput a.patch || echo no", ["a"]),
        (TOP, f"for p in fix a; do {PUT}$p.patch || continue; done", ["fix", "a"]),
        (TOP, f"{PUT}fix.patch && echo done\necho end", ["fix"]),
        (TOP, f"git apply fix.patch || {PUT}fix.patch", []),
        ("#!/bin/bash\n", f"{PUT}fix.patch\n{PUT}a.patch", ["fix"]),
        ("#!/bin/bash -e\n", f"{PUT}fix.patch\n{PUT}a.patch", []),
        ("set -o errexit\n", f"{PUT}fix.patch | tee log\necho done", ["fix"]),
        (TOP, f"{PUT}fix.patch | tee log\necho done", []),
        # one of these fails, and the other is not tried: that is not what optional says
        (TOP, f"{PUT}fix.patch && {PUT}a.patch || echo no", None),
        (TOP, f"{PUT}fix.patch && exit 0\n{PUT}a.patch", None),
        (TOP, f"{PUT}fix.patch || {{ echo is in; exit 0; }}\n{PUT}a.patch", None),
    ],
)
def test_what_a_script_survives_is_optional(
    call: Call, tmp_path: Path, top: str, body: str, free: list[str] | None
) -> None:
    body = body.replace("git apply", 'cd "$PYTHON_ROOT"; git apply $OLDPWD/')
    body = body.replace("$OLDPWD/ ", "$WORKSPACE_DIR/mods/mine/")
    body = body if "cd " not in body else body.replace("< fix", "< $WORKSPACE_DIR/mods/mine/fix")
    assert optional(call, tmp_path, f"{top}{body}\n") == free


def test_a_mod_of_two_patches_goes_in_where_one_of_them_is_lost(
    call: Call, tmp_path: Path, site: Path
) -> None:
    script = f"{TOP}{PUT}fix.patch\n{PUT}lost.patch || echo skipping\n{PUT}a.patch || :\n"
    files = {"run.sh": script, "fix.patch": FIX, "a.patch": A, "lost.patch": LOST}
    mine = tmp_path / "mine-library"
    answer = call("import", written(tmp_path, files), "--tree", site, "--library", mine)
    assert answer.code == 0, answer.err
    answer = call("check", "mine", "--library", mine, "--target", site, "--json")
    (planned,) = answer.json["mods"]
    assert planned["verdict"] == "applies"
    assert [(one["patch"], one["verdict"]) for one in planned["optional"]] == [
        ("0.19/lost.patch", "conflict"),
        ("0.19/a.patch", "applies"),
    ]
    assert call("apply", "mine", "--library", mine, "--target", site).code == 0
    assert (site / "vllm/loader.py").read_text() == FAST
    assert (site / "vllm/a.py").read_text() == "A = 2\n"
    assert call("verify", "--target", site).code == 0
    assert call("check", "mine", "--library", mine, "--target", site).code == 0
    assert call("revert", "mine", "--target", site).code == 0
    assert (site / "vllm/loader.py").read_text() == LOADER


def test_a_mod_with_optional_patches_is_locked_and_exported(
    call: Call, tmp_path: Path, site: Path
) -> None:
    script = f"{TOP}{PUT}fix.patch\n{PUT}lost.patch || echo skipping\n{PUT}a.patch || :\n"
    files = {"run.sh": script, "fix.patch": FIX, "a.patch": A, "lost.patch": LOST}
    mine, out = tmp_path / "mine-library", tmp_path / "out"
    assert call("import", written(tmp_path, files), "--tree", site, "--library", mine).code == 0
    answer = call("export", "mine", "--library", mine, "--tree", site, "--output", out)
    assert answer.code == 0, answer.err
    subprocess.run(
        ["bash", "run.sh"],
        cwd=out,
        check=True,
        env={"PATH": os.environ["PATH"], "PYTHON_ROOT": str(site)},
    )
    assert (site / "vllm/a.py").read_text() == "A = 2\n"


# --- what only a run tells ----------------------------------------------------------------------

CANDIDATES = """
for one in $PYTHON_ROOT/vllm/old.py $PYTHON_ROOT/vllm/loader.py; do
    if [[ -f "$one" ]]; then FOUND="$one"; break; fi
done
if [ -z "${FOUND:-}" ]; then echo "nothing to do"; exit 0; fi
"""


@pytest.mark.parametrize(
    "body",
    [
        f'{CANDIDATES}python3 edit.py "$FOUND"',
        (
            "find_it() { [[ -f $PYTHON_ROOT/vllm/loader.py ]] && { T=loader; return 0; }; T=; }\n"
            'find_it\nif [[ -n "$T" ]]; then python3 edit.py; fi'
        ),
        'case "$(uname -m)" in x86_64) exit 0 ;; aarch64) python3 edit.py ;; esac',
        'python3 -c "import edit"',
        "python3 -c \"f = __import__('pathlib').Path('x').open('w'); print('a', file=f)\"",
        "python3 -c \"print('a', file=open('$PYTHON_ROOT/vllm/a.py', 'w'))\"",
        "for f in a b; do [[ -f /opt/$f ]] && continue; cp fix.patch $WORKSPACE_DIR/x.jinja; done",
    ],
)
def test_what_is_not_known_is_not_taken_for_nothing(call: Call, tmp_path: Path, body: str) -> None:
    edit = "import sys\nopen(sys.argv[1], 'a').write('X = 1')\n"
    files = {"run.sh": f"{TOP}{body}\n", "edit.py": edit, "fix.patch": FIX}
    answer = call("import", written(tmp_path, files))
    assert answer.code == 1, answer.err
    assert "--record --tree TREE" in answer.err


def test_nothing_for_a_mod_is_said_with_what_was_taken(call: Call, tmp_path: Path) -> None:
    script = f"{TOP}if [[ -f /opt/marker ]]; then echo there; exit 0; fi\necho nothing\n"
    answer = call("import", written(tmp_path, {"run.sh": script}))
    assert answer.code == 3
    assert "only a run tells" in answer.err
    assert "run.sh:3: `[[ -f /opt/marker ]]`" in answer.err
