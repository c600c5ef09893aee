"""Mod folders as launchers run them, one for each way that mods are made; all of them written here.

Each is for the small vLLM of ``command_line.py``.
"""

from __future__ import annotations

from typing import NamedTuple

from mod_making import diff_of

LOADER = """\
import os


class Loader:
    def load(self, name):
        path = os.path.join("weights", name)
        return path


class Saver:
    def save(self, name):
        path = os.path.join("weights", name)
        return path
"""
FAST = LOADER.replace('"weights"', '"fast"', 1)
FIX = diff_of("vllm/loader.py", LOADER, FAST).decode()
INNER = FIX.replace("a/vllm/", "").replace("b/vllm/", "")
BARE = FIX.replace("a/vllm/", "vllm/").replace("b/vllm/", "vllm/")
NEW = "--- /dev/null\n+++ b/vllm/added.py\n@@ -0,0 +1 @@\n+ADDED = 1\n"
TOP = "#!/bin/bash\nset -euo pipefail\n"
SITE = "/usr/local/lib/python3.12/dist-packages"


class Kind(NamedTuple):
    """A mod folder: its files, what the small vLLM becomes; None where it is no mod."""

    files: dict[str, str]
    changed: dict[str, str] | None = None


def script(text: str, **files: str) -> dict[str, str]:
    """Return a folder's files; ``fix_patch`` is ``fix.patch``."""
    return {"run.sh": text, **{name.replace("_", "."): data for name, data in files.items()}}


LOADED = {"vllm/loader.py": FAST}
KINDS: dict[str, Kind] = {
    "patch that fails open": Kind(
        script(
            '#!/bin/bash\ncd "${PYTHON_ROOT:-' + SITE + '}"\n'
            'patch -p1 < "$WORKSPACE_DIR/mods/mine/fix.patch" || echo "it may be in already"\n',
            fix_patch=FIX,
        ),
        LOADED,
    ),
    "patch -p0 in the package, by a pipe": Kind(
        script(TOP + f"cat fix.patch | patch -p0 -F0 -d {SITE}/vllm\n", fix_patch=INNER), LOADED
    ),
    "patch of one named file": Kind(
        script(
            TOP + 'F=$(python3 -c "import vllm; print(vllm.__path__[0])")/loader.py\n'
            'patch -F0 --forward "$F" fix.patch\n',
            fix_patch=BARE,
        ),
        LOADED,
    ),
    "a merged change taken out": Kind(
        {"run.sh": TOP + 'cd $(dirname $0)\npatch -RF0 -p1 -d "$PYTHON_ROOT" -i $PWD/undo.diff\n'}
        | {"undo.diff": diff_of("vllm/loader.py", FAST, LOADER).decode()},
        LOADED,
    ),
    "a patch from the root of everything": Kind(
        script(
            TOP + 'ROOT="${VLLM_SITE_PACKAGES:-${PYTHON_ROOT:-/opt/none}}"\n'
            'if [ ! -d "$ROOT/vllm" ]; then echo "no vLLM" >&2; exit 1; fi\n'
            'TARGET="$ROOT/vllm/loader.py"\n[[ -f "$TARGET" ]] || { echo "gone" >&2; exit 1; }\n'
            'if [ "${SKIP_MINE:-0}" != 1 ]; then patch -p1 -F0 -d / -i "$PWD/root.patch"; fi\n'
            "python3 -c 'import vllm.loader as m; print(m.__file__)'\n"
        )
        | {"root.patch": FIX.replace("a/vllm", f"a{SITE}/vllm").replace("b/vllm", f"b{SITE}/vllm")},
        LOADED,
    ),
    "git apply, asked before": Kind(
        script(
            TOP + 'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\n'
            "cd \"$(python3 -c 'import os, vllm; print(os.path.dirname(os.path.dirname(vllm.__file__)))')\"\n"
            'if git apply --check "$HERE/fix.patch"; then\n    git apply "$HERE/fix.patch"\n'
            'elif git apply --reverse --check "$HERE/fix.patch"; then\n    echo "is in"\n'
            "else\n    echo no >&2\n    exit 1\nfi\n",
            fix_patch=FIX,
        ),
        LOADED,
    ),
    "a stack of patches": Kind(
        script(
            TOP + 'DIR=$(pwd)\ncd "$VLLM_PACKAGE_DIR/.."\nfor one in "$DIR"/patches/*.patch; do\n'
            '    git apply -v "$one"\ndone\n'
        )
        | {"patches/1.patch": FIX, "patches/2.patch": NEW},
        {**LOADED, "vllm/added.py": "ADDED = 1\n"},
    ),
    "git apply, then patch": Kind(
        script(
            TOP + 'cd "$PYTHON_ROOT"\nFIX="$WORKSPACE_DIR/mods/mine/fix.patch"\n'
            'git apply "$FIX" || patch -p1 -F0 < "$FIX"\n',
            fix_patch=FIX,
        ),
        LOADED,
    ),
    "whole files": Kind(
        script(
            TOP + 'cp "$WORKSPACE_DIR/mods/mine/added.py" "$PYTHON_ROOT/vllm/"\n'
            'install -m 644 loader.py "${VLLM_PACKAGE_DIR}/loader.py"\n'
            'find "$PYTHON_ROOT/vllm" -name __pycache__ -exec rm -rf {} +\n'
        )
        | {"added.py": "ADDED = 1\n", "loader.py": FAST},
        {**LOADED, "vllm/added.py": "ADDED = 1\n"},
    ),
    "a package": Kind(
        script(TOP + 'cp -r fastpart "$PYTHON_ROOT/"\n')
        | {"fastpart/__init__.py": "", "fastpart/run.py": "RUN = 1\n"},
        {"fastpart/__init__.py": "", "fastpart/run.py": "RUN = 1\n"},
    ),
    "a file from a here-document": Kind(
        script(TOP + f"cat > {SITE}/vllm/added.py <<'PY'\nADDED = '$1'\nPY\n"),
        {"vllm/added.py": "ADDED = '$1'\n"},
    ),
    "a patch from a here-document": Kind(
        script(
            TOP + f"cat > /tmp/fix.patch <<'END'\n{FIX}END\npatch -p1 -F0 -d $PYTHON_ROOT "
            "</tmp/fix.patch\nrm -f /tmp/fix.patch\n"
        ),
        LOADED,
    ),
    "a chat template": Kind(
        script(TOP + 'cp -f mine.jinja "$WORKSPACE_DIR/mine.jinja"\necho "use it"\n')
        | {"mine.jinja": "{{ messages }}\n"},
        {},
    ),
    "all at once": Kind(
        script(
            "#!/bin/bash\nset -e\n\nSP=$(pip show vllm | grep Location | awk '{print $2}')\n"
            'if grep -q fast "$SP/vllm/loader.py"; then\n    echo "in already"\n    exit 0\nfi\n'
            'patch -p1 -F0 -d "$SP" < fix.patch || true\ncp mine.jinja $WORKSPACE_DIR/\n'
            "pip install flash-qla==0.1.3\nuv pip install --system -q einops\n"
            "export VLLM_MINE=1\nrm -rf ~/.cache/vllm/torch_compile_cache\n",
            fix_patch=FIX,
        )
        | {"mine.jinja": "{{ messages }}\n"},
        LOADED,
    ),
    "in functions": Kind(
        script(
            TOP + 'log() { echo "[mine] $*"; }\nput() {\n    local what="$1" where="$2"\n'
            '    log "to $where"\n    cp "$what" "$VLLM_PACKAGE_DIR/$where"\n}\n'
            "put added.py added.py\nFILES=(one.py two.py)\n"
            'for f in "${FILES[@]}"; do put "$f" "$f"; done\n'
        )
        | {"added.py": "ADDED = 1\n", "one.py": "ONE = 1\n", "two.py": "TWO = 2\n"},
        {"vllm/added.py": "ADDED = 1\n", "vllm/one.py": "ONE = 1\n", "vllm/two.py": "TWO = 2\n"},
    ),
    "in ways that shells have": Kind(
        script(
            TOP + "shopt -s nullglob\nT=$(mktemp -d)\ntrap 'rm -rf \"$T\"' EXIT\n"
            "{ echo '--- a/vllm/loader.py'; tail -n +2 fix.patch > /dev/null; } > /dev/null\n"
            '{ printf "# %s\\n" first; echo "TWO=${UNKNOWN:-2}"; } | cat > "$T/made.py"\n'
            'each() ( cd /tmp; for one; do cp "$T/$one" "$VLLM_PACKAGE_DIR/$one"; done )\n'
            "each made.py\nname() { echo vllm; }\nput() { cat <<-END\n\t\tIN = '$(name)'\n\tEND\n}\n"
            'put > "$PYTHON_ROOT/$(name)/put.py"\n'
            'F="$PYTHON_ROOT/vllm/x.tar.gz"; echo "G = \'${F##*/}${F%%.*}\'" > "${F%.tar.gz}.py"\n'
            "[[ -f fix.patch ]] && set -- fix.patch || exit 4\n"
            "while false; do echo never; done\n"
            'case "$(uname)" in Linux) echo fine ;; *) exit 5 ;; esac\n'
            'timeout 60 patch -F0 -p1 -d "$PYTHON_ROOT" < "$1"\n',
            fix_patch=FIX,
        ),
        {
            **LOADED,
            "vllm/made.py": "# first\nTWO=2\n",
            "vllm/put.py": "IN = 'vllm'\n",
            "vllm/x.py": "G = 'x.tar.gz/usr/local/lib/python3'\n",
        },
    ),
    "an edit with sed": Kind(
        script(TOP + "sed -i 's/weights/fast/' \"$VLLM_PACKAGE_DIR/loader.py\"\n"),
        {"vllm/loader.py": LOADER.replace("weights", "fast")},
    ),
    "an edit at an anchor": Kind(
        script(
            TOP + "python3 - <<'PY'\nimport pathlib, vllm\n"
            "file = pathlib.Path(vllm.__file__).parent / 'loader.py'\ntext = file.read_text()\n"
            "if 'weights' in text:\n    file.write_text(text.replace('weights', 'fast', 1))\nPY\n"
        ),
        LOADED,
    ),
    "an edit by a script": Kind(
        script(TOP + "python3 edit.py\n")
        | {
            "edit.py": "import sys\nfrom pathlib import Path\nfile = Path(sys.path[-1])\n"
            "file.write_text('x')\n"
        }
    ),
    "a pull request's diff": Kind(
        script(
            TOP + 'cd "$PYTHON_ROOT"\n'
            "curl -sL https://github.com/example/vllm/pull/12.diff | patch -p1 -F0\n"
        )
    ),
    "a file of somebody's": Kind(
        script(TOP + 'wget -q https://example.test/parser.py -O "$WORKSPACE_DIR/parser.py"\n')
    ),
    "things that nobody can know": Kind(
        script(
            TOP
            + 'apt-get install -y ninja-build\nwhile read -r f; do\n    cp "$f" $PYTHON_ROOT/vllm/\n'
            'done < list\nif [ "$(uname -m)" = aarch64 ]; then cp a.py $PYTHON_ROOT/vllm/a.py\n'
            "else cp b.py $PYTHON_ROOT/vllm/a.py; fi\n{ cat a.py; } > $PYTHON_ROOT/vllm/c.py\n"
            "make install\ncp parser.py $WORKSPACE_DIR/\n"
        )
        | {"a.py": "A = 2\n", "b.py": "A = 3\n", "list": "a.py\n", "parser.py": ""}
    ),
}
