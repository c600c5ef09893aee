"""Thirty scripts of our own that are run inside an image of vLLM, in the forms that people's mods have."""

from __future__ import annotations

import textwrap

KEEP = """\
diff --git a/vllm/envs.py b/vllm/envs.py
--- a/vllm/envs.py
+++ b/vllm/envs.py
@@ -930,5 +930,5 @@
     # Timeout in seconds for keeping HTTP connections alive in API server
     "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": lambda: int(
-        os.environ.get("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "5")
+        os.environ.get("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "75")
     ),
     # Maximum allowed value for the `n` sampling parameter (number of output
"""
ROUND = '''\
diff --git a/vllm/utils/math_utils.py b/vllm/utils/math_utils.py
--- a/vllm/utils/math_utils.py
+++ b/vllm/utils/math_utils.py
@@ -20,6 +20,6 @@
 def round_up(x: int, y: int) -> int:
     """Round up x to the nearest multiple of y."""
-    return ((x + y - 1) // y) * y
+    return cdiv(x, y) * y


 def round_down(x: int, y: int) -> int:
'''
BESIDE = """\
diff --git a/tests/utils_/test_math.py b/tests/utils_/test_math.py
--- a/tests/utils_/test_math.py
+++ b/tests/utils_/test_math.py
@@ -1 +1,2 @@
 import pytest
+import math
"""
OTHER = KEEP.replace("HTTP_TIMEOUT_KEEP_ALIVE", "NO_SUCH_SETTING")
TOP = "#!/bin/bash\nset -euo pipefail\n"
AT = 'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\n'
FIND = "D=$(python3 -c 'import os, vllm; print(os.path.dirname(vllm.__file__))')\n"
ROOT = "import pathlib\nimport vllm\nroot = pathlib.Path(vllm.__file__).parent\n"


def _sh(body: str, *, top: str = TOP, **files: str) -> dict[str, str]:
    named = {name.replace("_", ".", 1): textwrap.dedent(text) for name, text in files.items()}
    return {"run.sh": top + textwrap.dedent(body).lstrip("\n"), **named}


def _python(body: str, *, after: str = "") -> dict[str, str]:
    code = ROOT + textwrap.dedent(body)
    return {"run.sh": f'{TOP}cd "$(dirname "$0")"\npython3 edit.py\n{after}', "edit.py": code}


SCRIPTS: dict[str, dict[str, str]] = {
    # text patchers
    "anchors with asserts": _python("""
        p = root / "envs.py"
        s = p.read_text()
        old = 'os.environ.get("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "5")'
        assert s.count(old) == 1, f"anchor in {p}: {s.count(old)}"
        p.write_text(s.replace(old, old.replace('"5"', '"75"')))
        print("done")
    """),
    "already patched, by a marker": _python("""
        MARK = "# mine: keep-alive v2"
        p = root / "envs.py"
        s = p.read_text()
        if MARK in s:
            print("already patched")
            raise SystemExit(0)
        new = s.replace('KEEP_ALIVE", "5")', f'KEEP_ALIVE", "75")  {MARK}', 1)
        if new == s:
            raise SystemExit("anchor not found")
        p.write_text(new)
        assert MARK in p.read_text()
    """),
    "a registry of edits with marks": _python("""
        import sys
        REGISTRY = [
            ("KA", "envs.py", 'KEEP_ALIVE", "5"', 'KEEP_ALIVE", "75"'),
            ("RU", "utils/math_utils.py", "return ((x + y - 1) // y) * y", "return cdiv(x, y) * y"),
            ("GB", "utils/mem_constants.py", "GB_bytes = 1_000_000_000", "GB_bytes = 10**9"),
        ]
        failed = []
        for mark, name, old, new in REGISTRY:
            p = root / name
            s = p.read_text()
            if f"# [{mark}]" in s:
                continue
            if s.count(old) != 1:
                failed.append(mark)
                continue
            p.write_text(s.replace(old, new) + f"# [{mark}]\\n")
            print("applied", mark)
        sys.exit(f"failed: {failed}" if failed else 0)
    """),
    "anchors by release": _python("""
        import re
        places = ["model_executor/layers/quantization/inc.py", "model_executor/layers/quantization/inc/inc.py"]
        p = next(root / one for one in places if (root / one).exists())
        s, n = re.subn(r"(def get_min_capability\\(cls\\) -> int:\\n\\s+return )60", r"\\g<1>70", p.read_text())
        assert n == 1, n
        p.write_text(s)
    """),
    "rows of a table by ast": _python("""
        import ast
        p = root / "tool_parsers/__init__.py"
        s = p.read_text()
        node = next(
            n for n in ast.parse(s).body
            if isinstance(n, ast.Assign) and n.targets[0].id == "_TOOL_PARSERS_TO_REGISTER"
        )
        lines = s.splitlines(keepends=True)
        lines.insert(node.lineno, '    "mine": (\\n        "mine_tool_parser",\\n        "MineToolParser",\\n    ),\\n')
        p.write_text("".join(lines))
        (root / "tool_parsers/mine_tool_parser.py").write_text(
            "from vllm.tool_parsers.abstract_tool_parser import ToolParser\\n\\n\\n"
            "class MineToolParser(ToolParser):\\n    pass\\n"
        )
    """),
    "a copy kept, compiled, put back if not": _python("""
        import py_compile, shutil
        p = root / "utils/math_utils.py"
        backup = p.with_suffix(".py.bak")
        shutil.copy2(p, backup)
        try:
            p.write_text(p.read_text().replace("RCP_LN2 = 1.4426950216", "RCP_LN2 = 1.4426950408889634"))
            py_compile.compile(str(p), doraise=True)
        except Exception:
            shutil.copy2(backup, p)
            raise
        backup.unlink()
    """),
    "functions behind a module": _python("""
        p = root / "utils/math_utils.py"
        if "def is_power_of_2" not in p.read_text():
            with open(p, "a") as f:
                f.write("\\n\\ndef is_power_of_2(n: int) -> bool:\\n    return n > 0 and n & (n - 1) == 0\\n")
    """),
    "a self-test at the end that imports torch": _python(
        """
        p = root / "utils/math_utils.py"
        s = p.read_text()
        assert "return (x // y) * y" in s
        p.write_text(s.replace("return (x // y) * y", "return x - x % y"))
        """,
        after="python3 - <<'PY'\n"
        "import torch, transformers\n"
        "print('torch', torch.__version__, transformers.__version__)\n"
        "from vllm.utils.math_utils import round_down\n"
        "assert round_down(13, 4) == 12, 'self-test'\nprint('self-test passed')\nPY\n",
    ),
    "versions of torch decide": _python("""
        import importlib.metadata
        major = int(importlib.metadata.version("torch").split(".")[0])
        p = root / "utils/math_utils.py"
        s = p.read_text()
        assert "RCP_LN2 = 1.4426950216" in s and major >= 2
        p.write_text(s.replace("RCP_LN2 = 1.4426950216", f"RCP_LN2 = 1.44269502  # torch {major}"))
    """),
    # patches
    "git apply, checked before": _sh(
        AT
        + FIND
        + 'cd "$D/.."\ngit apply --check "$HERE/keep.patch" && git apply -v "$HERE/keep.patch"\n',
        keep_patch=KEEP,
    ),
    "git apply --exclude": _sh(
        AT + 'cd "$VLLM_SITE_PACKAGES"\ngit apply -p1 --exclude="tests/*" "$HERE/pr.patch"\n',
        pr_patch=KEEP + BESIDE,
    ),
    "git apply or already in": _sh(
        AT
        + 'cd "$PYTHON_ROOT"\nfor p in "$HERE"/*.patch; do\n'
        + '  if git apply --reverse --check "$p" 2>/dev/null; then\n    echo "in already: $p"\n'
        + '  elif git apply --check "$p"; then\n    git apply "$p"\n  else\n    exit 1\n  fi\ndone\n',
        a_patch=KEEP,
        b_patch=ROUND,
    ),
    "patch --forward": _sh(
        AT
        + 'patch --forward --batch -p1 -d "$PYTHON_ROOT" < "$HERE/keep.patch" || '
        + '{ r=$?; [ $r -eq 1 ] || exit $r; }\nfind "$PYTHON_ROOT/vllm" -name "*.rej" -delete\n',
        keep_patch=KEEP,
    ),
    "patch after a dry run": _sh(
        AT
        + 'cd "$PYTHON_ROOT"\nif patch -p1 --dry-run --silent < "$HERE/round.patch"; then\n'
        + '  patch -p1 --no-backup-if-mismatch < "$HERE/round.patch"\nelse\n  exit 1\nfi\n',
        round_patch=ROUND,
    ),
    ".orig headers": _sh(
        'patch -p0 -d "$VLLM_PACKAGE_DIR" < round.diff\n',
        round_diff=ROUND.split("\n", 1)[1]
        .replace("--- a/vllm/utils/math_utils.py", "--- utils/math_utils.py.orig\t2026-01-01")
        .replace("+++ b/vllm/utils/math_utils.py", "+++ utils/math_utils.py\t2026-01-01"),
    ),
    "patches of which one is optional": _sh(
        AT
        + 'cd "$PYTHON_ROOT"\ngit apply "$HERE/keep.patch"\n'
        + 'git apply "$HERE/other.patch" || echo "skipping other"\n',
        keep_patch=KEEP,
        other_patch=OTHER,
    ),
    "a patch in a heredoc": _sh(f"cd \"$PYTHON_ROOT\"\npatch -p1 <<'EOF'\n{ROUND}EOF\n"),
    # the shell
    "sed in branches": _sh(
        FIND
        + """
        V=$(python3 -c 'import vllm; print(vllm.__version__)')
        case "$V" in
          0.1*|0.20*|0.21*) F="$D/model_executor/layers/quantization/inc.py" ;;
          *) F="$D/model_executor/layers/quantization/inc/inc.py" ;;
        esac
        grep -q 'return 60' "$F" || { echo "no anchor in $F" >&2; exit 1; }
        sed -i 's/return 60/return 70/' "$F"
    """.replace("\n        ", "\n")
    ),
    "sed with a backup suffix": _sh(
        'sed -i.bak \'s/KEEP_ALIVE", "5"/KEEP_ALIVE", "75"/\' "$VLLM_PACKAGE_DIR/envs.py"\n'
        'diff -q "$VLLM_PACKAGE_DIR/envs.py" "$VLLM_PACKAGE_DIR/envs.py.bak" && exit 1\n'
        'rm "$VLLM_PACKAGE_DIR/envs.py.bak"\n'
    ),
    "perl over lines": _sh(
        "perl -0pi -e 's/return \\(\\(x \\+ y - 1\\) \\/\\/ y\\) \\* y/return cdiv(x, y) * y/' "
        '"$VLLM_PACKAGE_DIR/utils/math_utils.py"\ngrep -q "cdiv(x, y)" "$VLLM_PACKAGE_DIR/utils/math_utils.py"\n'
    ),
    "heredocs for new files and a loop": _sh(
        FIND
        + """
        for kind in fast slow; do
        cat > "$D/utils/mine_$kind.py" <<PY
        KIND = "$kind"
        PY
        done
        cat >> "$D/utils/math_utils.py" <<'PY'

        from vllm.utils.mine_fast import KIND  # noqa: E402
        PY
    """.replace("\n        ", "\n")
    ),
    "a template and its variable": _sh(
        'cp mine.jinja "$WORKSPACE_DIR/mine.jinja"\nexport VLLM_MINE=1\n'
        'sed -i \'s/KEEP_ALIVE", "5"/KEEP_ALIVE", "75"/\' "$VLLM_PACKAGE_DIR/envs.py"\n',
        mine_jinja="{{ messages }}\n",
    ),
    "where site-packages are by itself": _sh(
        """
        for SP in /usr/local/lib/python3*/dist-packages /usr/local/lib/python3*/site-packages; do
          [ -d "$SP/vllm" ] && break
        done
        [ -d "$SP/vllm" ]
        sed -i 's/^RCP_LN2 = .*/RCP_LN2 = 1.442695/' "$SP/vllm/utils/math_utils.py"
    """.replace("\n        ", "\n")
    ),
    # packages beside vllm
    "pip install, then patch": _sh(
        AT
        + 'pip install --no-cache-dir "einops==0.8.1"\ncd "$PYTHON_ROOT" && git apply "$HERE/keep.patch"\n',
        keep_patch=KEEP,
    ),
    "a monkey patch by sitecustomize": _sh(
        'cp sitecustomize.py "$VLLM_SITE_PACKAGES/sitecustomize.py"\ncp -r mypatch "$VLLM_SITE_PACKAGES/"\n',
        sitecustomize_py="import mypatch\n",
    )
    | {"mypatch/__init__.py": "PATCHED = True\n"},
    "a monkey patch by a .pth": _sh(
        "SP=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()[\"purelib\"])')\n"
        'install -m 644 mine_hook.py "$SP/mine_hook.py"\necho "import mine_hook" > "$SP/zz_mine.pth"\n'
    )
    | {"mine_hook.py": "HOOKED = True\n"},
    "a plugin of vllm": _sh(
        'cp -r mine_plugin mine_plugin-1.0.dist-info "$VLLM_SITE_PACKAGES/"\n'
        "python3 -c 'import mine_plugin; mine_plugin.register()'\n"
    )
    | {
        "mine_plugin/__init__.py": "def register():\n    pass\n",
        "mine_plugin-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: mine-plugin\nVersion: 1.0\n",
        "mine_plugin-1.0.dist-info/entry_points.txt": "[vllm.general_plugins]\nmine = mine_plugin:register\n",
    },
    "transformers is changed, too": _python("""
        import transformers
        p = pathlib.Path(transformers.__file__).parent / "configuration_utils.py"
        s = p.read_text()
        assert "LIMIT = 1" in s
        p.write_text(s.replace("LIMIT = 1", "LIMIT = 2"))
        q = root / "utils/math_utils.py"
        q.write_text(q.read_text().replace("RCP_LN2 = 1.4426950216", "RCP_LN2 = 1.4426950409"))
    """),
    # what nobody has offline, or without a GPU
    "a pull request's diff": _sh(
        'cd "$PYTHON_ROOT"\ncurl -fsSL https://example.test/vllm/pull/1.diff | git apply --exclude="tests/*"\n'
    ),
    "what the GPU says": _sh(
        "CAP=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader)\n"
        'sed -i "s/KEEP_ALIVE\\", \\"5\\"/KEEP_ALIVE\\", \\"${CAP/./}\\"/" "$VLLM_PACKAGE_DIR/envs.py"\n'
    ),
}
ELSEWHERE = {
    "a pull request's diff": "run.sh:4: `curl -fsSL https://example.test/vllm/pull/1.diff`",
    "what the GPU says": "run.sh:3: `nvidia-smi --query-gpu=compute_cap --format=csv,noheader`",
}
"""What a script needs that no recording gives by itself, as the refusal names it."""
