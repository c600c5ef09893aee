"""Scripts of our own after the forms that mods of launchers have; for the releases beside them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from mod_making import diff_of

from corpus.releases import BACKEND, ENVS, LOADER, OPS, PLAIN

TOP = "#!/bin/bash\nset -euo pipefail\n"
SITE = "/usr/local/lib/python3.12/dist-packages"
OLD = '"VLLM_KEEP_ALIVE", "5"'
NEW = '"VLLM_KEEP_ALIVE", "75"'
KEEP = diff_of("vllm/envs.py", ENVS, ENVS.replace(OLD, NEW)).decode()
SCALE = diff_of("vllm/attention/ops.py", OPS, OPS.replace("by=1.0", "by=2.0")).decode()
FIRST = diff_of(
    "vllm/attention/backend.py", BACKEND, BACKEND.replace("scale = 1.0", "scale = 0.5")
).decode()
LOAD = diff_of("vllm/loader.py", LOADER, LOADER.replace('"weights"', '"fast"', 1)).decode()
BESIDE = diff_of("tests/test_ops.py", "A = 1\n", "A = 2\n").decode()
HEAD = "import pathlib, re, sys\nfrom pathlib import Path\n"
ROOTS = {
    "by vllm": "import vllm\nroot = Path(vllm.__file__).parent\n",
    "by its path": "import vllm\nroot = Path(vllm.__path__[0])\n",
    "by site": "import site\nroot = Path(site.getsitepackages()[0]) / 'vllm'\n",
    "by sysconfig": "import sysconfig\nroot = Path(sysconfig.get_paths()['purelib'], 'vllm')\n",
    "by find_spec": "import importlib.util\n"
    "root = Path(importlib.util.find_spec('vllm').origin).parent\n",
    "by a variable": "import os\nroot = Path(os.environ['VLLM_PACKAGE_DIR'])\n",
    "by a fixed path": f"root = Path('{SITE}/vllm')\n",
    "by argv": "root = Path(sys.argv[1])\n",
}
EDITS = {
    "count, replace": f"""
        p = root / 'envs.py'
        s = p.read_text()
        assert s.count({OLD!r}) == 1, 'anchor'
        p.write_text(s.replace({OLD!r}, {NEW!r}))
    """,
    "marker, or stop": f"""
        p = root / 'envs.py'
        s = p.read_text()
        if '# keep-alive mod' in s:
            print('in already')
            sys.exit(0)
        if {OLD!r} not in s:
            sys.exit('anchor lost')
        p.write_text('# keep-alive mod\\n' + s.replace({OLD!r}, {NEW!r}, 1))
    """,
    "anchors with candidates": """
        p = root / 'attention/backend.py'
        s = p.read_text()
        for old, new in [('scale = 1.0', 'scale = 0.5'), ('scale = self.scale()', 'scale = 0.5')]:
            if s.count(old) == 1:
                p.write_text(s.replace(old, new))
                break
        else:
            sys.exit('no anchor')
    """,
    "a regular expression": """
        p = root / 'config.py'
        s, n = re.subn(r'^MAX_LEN = \\d+$', 'MAX_LEN = 1 << 20', p.read_text(), flags=re.M)
        assert n == 1
        p.write_text(s)
    """,
    "a regular expression over lines": """
        p = root / 'attention/backend.py'
        s = p.read_text()
        s2 = re.sub(r'(def supports\\(self, capability\\):\\n\\s+return capability >= )90', r'\\g<1>80', s)
        if s2 == s:
            raise SystemExit('nothing matched')
        p.write_text(s2)
    """,
    "behind a line": """
        p = root / 'attention/backend.py'
        out = []
        for line in p.read_text().splitlines(keepends=True):
            out.append(line)
            if line.startswith('def choose('):
                out.append('    capability = min(capability, 120)\\n')
        assert len(out) == len(p.read_text().splitlines()) + 1
        p.write_text(''.join(out))
    """,
    "line numbers of ast": """
        import ast
        p = root / 'attention/ops.py'
        s = p.read_text()
        node = next(n for n in ast.walk(ast.parse(s)) if isinstance(n, ast.FunctionDef) and n.name == 'scale')
        lines = s.split('\\n')
        lines.insert(node.body[-1].lineno - 1, '    by = float(by)')
        p.write_text('\\n'.join(lines))
    """,
    "a segment of ast": """
        import ast
        p = root / 'attention/backend.py'
        s = p.read_text()
        for node in ast.walk(ast.parse(s)):
            if isinstance(node, ast.FunctionDef) and node.name == 'supports':
                old = ast.get_source_segment(s, node)
                p.write_text(s.replace(old, old.replace('90', '89')))
                break
        else:
            raise RuntimeError('no such function')
    """,
    "one of two layouts": """
        for name in ('model_executor/loader.py', 'loader.py'):
            p = root / name
            if p.exists():
                break
        else:
            sys.exit('no loader')
        s = p.read_text()
        i = s.index('os.path.join("')
        p.write_text(s[:i] + s[i:].replace('os.path.join("', 'os.path.join("fast/', 1))
    """,
    "three files": f"""
        edits = [
            ('envs.py', {OLD!r}, {NEW!r}),
            ('attention/ops.py', 'by=1.0', 'by=2.0'),
            ('config.py', 'raise ValueError("too long")', 'return None'),
        ]
        for name, old, new in edits:
            p = root / name
            s = p.read_text()
            assert old in s, name
            p.write_text(s.replace(old, new))
    """,
    "whatever has the text": """
        found = [p for p in sorted(root.rglob('*.py')) if '"weights"' in p.read_text()]
        if len(found) != 1:
            sys.exit(f'{len(found)} files have it')
        found[0].write_text(found[0].read_text().replace('"weights"', '"fast"', 1))
    """,
    "a module more, and its name": """
        (root / 'parsers/mine.py').write_text('def parse(text):\\n    return text.strip()\\n')
        p = root / 'parsers/__init__.py'
        s = p.read_text()
        at = s.index('}')
        p.write_text(s[:at] + '    "mine": "vllm.parsers.mine",\\n' + s[at:])
    """,
    "by version": """
        import importlib.metadata
        old = tuple(map(int, importlib.metadata.version('vllm').split('.')[:2])) < (0, 22)
        p = root / 'attention/ops.py'
        s = p.read_text()
        assert 'by=1.0' in s
        p.write_text(s.replace('by=1.0', 'by=2.0' if old else 'by=3.0'))
    """,
    "with a copy kept": """
        import shutil
        p = root / 'attention/ops.py'
        shutil.copy(p, str(p) + '.bak')
        s = p.read_text()
        assert 'left + right' in s
        p.write_text(s.replace('left + right', 'right + left'))
    """,
    "an import on top": """
        p = root / 'attention/ops.py'
        lines = p.read_text().split('\\n')
        lines.insert(1, 'import functools')
        s = '\\n'.join(lines).replace('def add(', '@functools.cache\\ndef add(')
        compile(s, str(p), 'exec')
        p.write_text(s)
    """,
    "open and write": f"""
        with open(root / 'envs.py') as f:
            text = f.read()
        before, anchor, after = text.partition({OLD!r})
        if not anchor:
            raise SystemExit(2)
        with open(root / 'envs.py', 'w') as f:
            f.write(before + {NEW!r} + after)
    """,
}
# Which way to the package, and which of the three ways to be run, each edit has: every one of each occurs.
WAYS = ("heredoc", "file", "-c")


def _edit(root: str, edit: str, way: str) -> dict[str, str]:
    code = HEAD + ROOTS[root] + textwrap.dedent(EDITS[edit])
    argument = ' "$VLLM_PACKAGE_DIR"' if root == "by argv" else ""
    if way == "heredoc":
        return {"run.sh": f"{TOP}python3 -{argument} <<'PY'\n{code}PY\necho done\n"}
    if way == "file":
        run = f'{TOP}cd "$(dirname "$0")"\npython3 patch_it.py{argument}\n'
        return {"run.sh": run, "patch_it.py": code}
    run = (
        f'{TOP}HERE=$(cd "$(dirname "$0")" && pwd)\npython3 -c "$(cat $HERE/edit.txt)"{argument}\n'
    )
    return {"run.sh": run, "edit.txt": code}


def _python() -> Iterator[tuple[str, dict[str, str]]]:
    roots = list(ROOTS)
    for i, edit in enumerate(EDITS):
        root = roots[i % len(roots)]
        yield f"python: {edit}, {root}", _edit(root, edit, WAYS[i % 3])
    for i, edit in enumerate(list(EDITS)[:8]):
        root = roots[(i + 3) % len(roots)]
        yield f"python: {edit}, {root}, otherwise", _edit(root, edit, WAYS[(i + 1) % 3])


PATCH = 'patch -p1 -F0 -d "$PYTHON_ROOT" < "$WORKSPACE_DIR/mods/mine/'
HERE = 'HERE="$WORKSPACE_DIR/mods/mine"\n'


def _sh(body: str, **files: str) -> dict[str, str]:
    return {"run.sh": TOP + body, **{name.replace("_", "."): text for name, text in files.items()}}


SHELL: dict[str, dict[str, str]] = {
    "patch -p1": _sh(f'{PATCH}keep.patch"\n', keep_patch=KEEP),
    "patch -p0 in the package": _sh(
        'cd "$VLLM_PACKAGE_DIR"\npatch -p0 < "$WORKSPACE_DIR/mods/mine/keep.patch"\n',
        keep_patch=KEEP.replace("a/vllm/", "").replace("b/vllm/", ""),
    ),
    "two patches, one survived": _sh(
        f'{PATCH}scale.patch"\n{PATCH}first.patch" || echo skipping\n',
        scale_patch=SCALE,
        first_patch=FIRST,
    ),
    "patches that are all survived": _sh(
        f'for p in keep first load; do\n  {PATCH}$p.patch" || echo "skipping $p"\ndone\n',
        keep_patch=KEEP,
        first_patch=FIRST,
        load_patch=LOAD,
    ),
    "git apply, asked before": _sh(
        f'{HERE}cd "$PYTHON_ROOT"\nif git apply --check "$HERE/scale.patch"; then\n'
        '  git apply "$HERE/scale.patch"\nelse\n  echo "does not fit" >&2\n  exit 1\nfi\n',
        scale_patch=SCALE,
    ),
    "git apply --exclude": _sh(
        f'{HERE}cd "$PYTHON_ROOT"\ngit apply --exclude="tests/*" "$HERE/all.patch"\n',
        all_patch=SCALE + BESIDE,
    ),
    "git apply --include": _sh(
        f'{HERE}cd "$PYTHON_ROOT"\ngit apply --include="vllm/attention/*" "$HERE/all.patch"\n',
        all_patch=SCALE + BESIDE,
    ),
    "git apply -C1": _sh(
        f'{HERE}cd "$PYTHON_ROOT"\ngit apply -C1 -v "$HERE/scale.patch"\n', scale_patch=SCALE
    ),
    "git apply --directory": _sh(
        f'{HERE}cd "$PYTHON_ROOT"\ngit apply -p2 --directory=vllm "$HERE/scale.patch"\n',
        scale_patch=SCALE,
    ),
    "a stack": _sh(
        f'{HERE}cd "$PYTHON_ROOT"\nfor p in "$HERE"/*.patch; do git apply "$p"; done\n',
        a_patch=KEEP,
        b_patch=SCALE,
    ),
    "an .orig header": _sh(
        'cd "$VLLM_PACKAGE_DIR"\npatch -p0 -i "$WORKSPACE_DIR/mods/mine/keep.diff"\n',
        keep_diff=KEEP.replace("--- a/vllm/envs.py", "--- envs.py.orig").replace(
            "+++ b/vllm/envs.py", "+++ envs.py"
        ),
    ),
    "a change taken out": _sh(
        f'{PATCH}undo.patch" -R\n',
        undo_patch=diff_of("vllm/envs.py", ENVS.replace(OLD, NEW), ENVS).decode(),
    ),
    "a patch in the script": _sh(f"patch -p1 -d \"$PYTHON_ROOT\" <<'END'\n{SCALE}END\n"),
    "sed": _sh("sed -i 's/by=1.0/by=2.0/' \"$VLLM_PACKAGE_DIR/attention/ops.py\"\n"),
    "sed, asked before": _sh(
        'F="$VLLM_PACKAGE_DIR/config.py"\nif grep -q "MAX_LEN = " "$F"; then\n'
        "  sed -i 's/^MAX_LEN = .*/MAX_LEN = 65536/' \"$F\"\nfi\n"
    ),
    "sed, lines more": _sh(
        "sed -i '/^def scale/i CONSTANT = 1\\n' \"$VLLM_PACKAGE_DIR/attention/ops.py\"\n"
    ),
    "perl": _sh("perl -pi -e 's/\\bqwen\\b/qwen3/' \"$VLLM_PACKAGE_DIR/parsers/__init__.py\"\n"),
    "sed over several files": _sh(
        'grep -rl "10000" --include="*.py" "$VLLM_PACKAGE_DIR" | xargs sed -i "s/10000/20000/"\n'
    ),
    "a file over one that is there": _sh(
        'cp "$WORKSPACE_DIR/mods/mine/plain.py" "$VLLM_PACKAGE_DIR/parsers/plain.py"\n',
        plain_py=PLAIN.replace("return text", "return text.strip()"),
    ),
    "a file more": _sh(
        'install -m 644 mine.py "$PYTHON_ROOT/vllm/parsers/mine.py"\n', mine_py="MINE = 1\n"
    ),
    "a file from a document": _sh(
        "cat > \"$VLLM_PACKAGE_DIR/parsers/made.py\" <<'PY'\nMADE = 1\nPY\n"
    ),
    "a chat template": _sh(
        'cp mine.jinja "$WORKSPACE_DIR/mine.jinja"\n', mine_jinja="{{ messages }}\n"
    ),
    "a package and a patch": {
        "run.sh": f'{TOP}cp -r mypart "$PYTHON_ROOT/"\n{PATCH}scale.patch"\npip install einops==0.8.1\n',
        "mypart/__init__.py": "",
        "mypart/run.py": "RUN = 1\n",
        "scale.patch": SCALE,
    },
    "where pip says": _sh(
        "SP=$(pip show vllm 2>/dev/null | awk '/^Location:/ {print $2}')\n"
        "sed -i 's/by=1.0/by=4.0/' \"$SP/vllm/attention/ops.py\"\n"
    ),
    "where Python says": _sh(
        'D=$(python3 -c "import vllm, os; print(os.path.dirname(vllm.__file__))")\n'
        'cd "$D/.."\npatch -p1 -F0 < "$WORKSPACE_DIR/mods/mine/scale.patch"\n',
        scale_patch=SCALE,
    ),
    "by version in the shell": _sh(
        f"{HERE}V=$(python3 -c 'import vllm; print(vllm.__version__)')\n"
        'case "$V" in\n  0.21.*|0.22.*) P=load.patch ;;\n  *) P=scale.patch ;;\nesac\n'
        'cd "$PYTHON_ROOT" && git apply "$HERE/$P"\n',
        load_patch=LOAD,
        scale_patch=SCALE,
    ),
    "the first layout that is there": _sh(
        'for F in "$VLLM_PACKAGE_DIR/model_executor/loader.py" "$VLLM_PACKAGE_DIR/loader.py"; do\n'
        '  if [[ -f "$F" ]]; then TARGET="$F"; break; fi\ndone\n'
        'if [[ -z "${TARGET:-}" ]]; then echo "no loader" >&2; exit 1; fi\n'
        'sed -i \'0,/os.path.join("/s//os.path.join("fast-/\' "$TARGET"\n'
    ),
    "an elif for each layout": _sh(
        'if [ -f "$VLLM_PACKAGE_DIR/loader.py" ]; then\n'
        f'  {PATCH}load.patch"\n'
        'elif [ -d "$VLLM_PACKAGE_DIR/model_executor" ]; then\n'
        '  sed -i \'s/"checkpoints"/"fast"/\' "$VLLM_PACKAGE_DIR/model_executor/loader.py"\n'
        "else\n  exit 3\nfi\n",
        load_patch=LOAD,
    ),
    "a function and a marker": _sh(
        'apply_once() {\n  local f="$1" marker="$2"\n  if grep -q "$marker" "$f"; then echo "in: $f"; return 0; fi\n'
        '  echo "$marker" >> "$f"\n}\napply_once "$VLLM_PACKAGE_DIR/attention/ops.py" "# mine: ops"\n'
        'apply_once "$VLLM_PACKAGE_DIR/config.py" "# mine: config"\n'
    ),
    "what find finds": _sh(
        'F=$(find "$PYTHON_ROOT/vllm" -name backend.py | head -n 1)\n[[ -n "$F" ]]\n'
        "sed -i 's/capability >= 90/capability >= 80/' \"$F\"\n"
    ),
    "caches emptied": _sh(
        f'{PATCH}keep.patch"\nfind "$PYTHON_ROOT/vllm" -name __pycache__ -prune -exec rm -rf {{}} +\n'
        "rm -rf ~/.cache/vllm/torch_compile_cache\n",
        keep_patch=KEEP,
    ),
    "no set -e": {
        "run.sh": f'#!/bin/bash\n{PATCH}load.patch"\n{PATCH}scale.patch"\necho done\n',
        "load.patch": LOAD,
        "scale.patch": SCALE,
    },
    # what nobody has offline
    "a pull request's diff": _sh(
        'cd "$PYTHON_ROOT"\ncurl -fsSL https://x.test/vllm/pull/1.diff | git apply\n'
    ),
    "a diff from the network, survived": _sh(
        f'{PATCH}keep.patch"\ncurl -sL https://x.test/2.diff | patch -p1 -d "$PYTHON_ROOT" || echo Warning\n',
        keep_patch=KEEP,
    ),
    "a parser from the network": _sh(
        'wget -q https://x.test/parser.py -O "$VLLM_PACKAGE_DIR/parsers/theirs.py"\n'
    ),
    "a package of a repository": _sh(
        f'{PATCH}keep.patch"\npip install git+https://x.test/part@main\n', keep_patch=KEEP
    ),
    "what the GPU says": _sh(
        "CAP=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader)\n"
        'sed -i "s/>= 90/>= ${CAP/./}/" "$VLLM_PACKAGE_DIR/attention/backend.py"\n'
    ),
}

SCRIPTS: dict[str, dict[str, str]] = {**dict(_python()), **SHELL}
