"""``--ignore-checks``: a last step that fails and changes nothing is left out, and said; nothing else is."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of

from vllm_mods.base.errors import Refused
from vllm_mods.making import recording
from vllm_mods.making.recording import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_mods.making.compose import ModEffect

TREE = MemoryTree(
    {"vllm/__init__.py": b"", "vllm/a.py": b"A = 1\n", "vllm/b.py": b"B = 1\n"}, version="0.19.1"
)
A = 'echo A=2 > "$VLLM_PACKAGE_DIR/a.py"\n'
B = A.replace("A=2", "B=2").replace("a.py", "b.py")
FAILS = "python3 -c 'import sys; print(\"no torch here\"); sys.exit(3)'"
NO_FILES: Mapping[str, str] = MappingProxyType({})
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sandboxed")]


def recorded(script: str, files: Mapping[str, str] = NO_FILES, *, ignore: bool = True) -> ModEffect:
    data = {name: text.encode() for name, text in {**files, "run.sh": f"set -e\n{script}"}.items()}
    limits = Limits(seconds=30, ignore_checks=ignore)
    return recording.record(["bash", "run.sh"], "mine", data, TREE, limits)


def changed(effect: ModEffect) -> dict[str, bytes | None]:
    return {one.path: one.after for one in effect.changes}


@pytest.mark.parametrize(
    ("check", "named"),
    [
        (f"{FAILS}\n", "run.sh:3: `python3 -c"),
        (f"{FAILS} || exit 1\n", "run.sh:3: `python3 -c"),
        (f"if ! {FAILS}; then\n  echo broken\n  exit 1\nfi\n", "run.sh:3: `python3 -c"),
        ("python3 - <<'PY'\nprint('no torch here'); raise SystemExit(3)\nPY\n", "run.sh:3: `python3 -"),
        ("echo no torch here\n[ 1 -eq 2 ]\n", "run.sh:4: `[ 1 -eq 2 ]`"),
        ("echo no torch here\nexit 3\n", "run.sh:4: `exit 3`"),
        ("python3 test.py\n", "run.sh:3: `python3 test.py`"),
        ("bash test.sh\n", "test.sh:2: `grep nothing test.sh.x`"),
        ("check() {\n  echo no torch here\n  false\n}\ncheck\n", "run.sh:5: `false`"),
    ],
)  # fmt: skip
def test_a_last_check_that_fails_is_left_out_with_what_it_printed(check: str, named: str) -> None:
    files = {
        "test.py": "import sys\nsys.stdout.write('no torch here')\nassert 0\n",
        "test.sh": "echo no torch here\ngrep nothing test.sh.x\n",
    }
    with pytest.raises(Refused) as caught:
        recorded(A + check, files, ignore=False)
    assert caught.value.hint is not None
    assert f"; or --ignore-checks, if {named}" in caught.value.hint
    effect = recorded(A + check, files)
    assert changed(effect) == {"vllm/a.py": b"A=2\n"}
    (note,) = effect.notes
    assert named in note
    assert "and was ignored, because without this step the script makes the same changes" in note
    assert "\n  | no torch here" in note


def test_each_check_that_fails_is_said() -> None:
    effect = recorded(f"{A}{B}{FAILS}\necho second\nfalse\n")
    assert changed(effect) == {"vllm/a.py": b"A=2\n", "vllm/b.py": b"B=2\n"}
    assert [note.partition(" failed")[0] for note in effect.notes][1:] == ["run.sh:6: `false`"]
    assert effect.notes[0].startswith("run.sh:4: `python3 -c")


def test_a_script_cannot_have_itself_run_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_CHECKS", 2)
    assert len(recorded(A + "false\n" * 2).notes) == 2
    with pytest.raises(Refused, match="ignore-checks does not help"):
        recorded(A + "false\n" * 3)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        # changes behind it, which a script that goes on would make
        (f"{A}{FAILS}\n{B}", r"different mod \(vllm/b\.py\)"),
        (f"{A}{FAILS}\npip install einops\n", r"different mod \(einops\)"),
        (f"{A}{FAILS}\nexport VLLM_X=1\n", r"different mod \(VLLM_X\)"),
        (f"{A}{FAILS}\necho > $WORKSPACE_DIR/x.jinja\n", r"different mod \(x\.jinja\)"),
        # it changes files itself
        (f"{A}bash -c '{B.strip()}; false'\n", r"different mod \(vllm/b\.py\)"),
        (f"{A}python3 edit.py\n", "ignore-checks does not help"),
        (f"{A}python3 edit.py || exit 1\n", "ignore-checks does not help"),
        (f"{A}python3 - <<'PY'\nimport edit\nPY\n", r"different mod \(vllm/b\.py\)"),
        # it was to change files
        (f"{A}patch -p1 -d $PYTHON_ROOT < lost.patch\n", "ignore-checks does not help"),
        (f"{A}git apply lost.patch || exit 1\n", "ignore-checks does not help"),
        (f"{A}python3 - <<'PY'\nassert 0\nopen('x', 'w')\nPY\n", "ignore-checks does not help"),
        (
            f"{A}python3 - <<'PY' || exit 1\nassert 0\nopen('x', 'w')\nPY\n",
            "ignore-checks does not help",
        ),
        (f"{A}cp lost.py $VLLM_PACKAGE_DIR/\n", "ignore-checks does not help"),
        # what it needs was refused, or nothing was changed
        (f"{A}curl -fsS https://example.test/x\n", "ignore-checks does not help"),
        (f"{FAILS}\n", "changed nothing"),
    ],
)
def test_nothing_else_is_left_out(script: str, why: str) -> None:
    edit = "import pathlib, vllm\nroot = pathlib.Path(vllm.__path__[0])\n"
    edit += "(root / 'b.py').write_text('B=2\\n')\nassert 0\n"
    lost = "--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -1 +1 @@\n-LOST\n+FOUND\n"
    files = {"edit.py": edit, "lost.patch": lost}
    with pytest.raises(Refused, match=why):
        recorded(script, files)
    if "different" not in why:
        with pytest.raises(Refused) as caught:
            recorded(script, files, ignore=False)
        assert "--ignore-checks" not in (caught.value.hint or "")


def test_a_script_that_no_bash_runs_is_not_looked_into() -> None:
    limits = Limits(seconds=30, ignore_checks=True)
    files = {"run.sh": f"#!/bin/sh\nset -e\n{A}false\n".encode()}
    with pytest.raises(
        Refused, match="the step that failed is no check at the end of a bash script"
    ) as caught:
        recording.record(["./run.sh"], "mine", files, TREE, limits)
    assert "--ignore-checks" not in (caught.value.hint or "")


def test_of_a_registry_of_patches_what_goes_in_is_optional_and_what_does_not_is_said() -> None:
    script = """
cd "$PYTHON_ROOT"; failed=()
for p in "$OLDPWD"/*.patch; do
  git apply "$p" || failed+=("$p")
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}"
  exit 1
fi
"""
    files = {
        f"{name}.patch": diff_of(f"vllm/{path}.py", f"{old} = 1\n", f"{old} = 2\n").decode()
        for name, path, old in (("one", "a", "A"), ("two", "a", "LOST"), ("three", "b", "B"))
    }
    with pytest.raises(Refused, match="exit code 1") as caught:
        recorded(script, files, ignore=False)
    assert "or --ignore-checks, if run.sh:9: `exit 1` only checks" in (caught.value.hint or "")
    effect = recorded(script, files)
    assert changed(effect) == {"vllm/a.py": b"A = 2\n", "vllm/b.py": b"B = 2\n"}
    assert [name for name, _ in effect.optional] == ["one", "three"]
    ignored, lost = effect.notes
    assert ignored.startswith("run.sh:9: `exit 1` failed with exit code 1 and was ignored")
    assert "| failed: /workspace/mods/mine/two.patch" in ignored
    assert lost.endswith("two.patch` failed; the script goes on without it")
