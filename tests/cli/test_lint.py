"""``lint``: each way to fail open is named with its line; what fails closed passes."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from vllm_mods.base import limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

TOP = "#!/bin/bash\nset -euo pipefail\n"
SOUND = f"""{TOP}
root=${{VLLM_SITE_PACKAGES:-/usr/local/lib/python3.12/dist-packages}}
if ! patch -p1 -F0 --dry-run -d "$root" < fix.patch; then
    echo "it does not fit" >&2
    exit 1
fi
patch -p1 -F0 -d "$root" < fix.patch
cp overlay.py "$root/vllm/overlay.py"
cp qwen.jinja "$WORKSPACE_DIR/qwen.jinja"
pip install --no-deps ./flash_qla-0.1.3-py3-none-any.whl einops==0.8.1
python3 - <<'PY'
import pathlib
file = pathlib.Path("x.py")
text = file.read_text()
assert text.count("old") == 1
file.write_text(text.replace("old", "new"))
PY
find "$root/vllm" -name __pycache__ -prune -exec rm -r {{}} +
"""


def folder(parent: Path, text: str) -> Path:
    place = parent / "mod"
    place.mkdir()
    (place / "run.sh").write_text(text)
    return place


def test_a_script_that_fails_closed_passes(call: Call, tmp_path: Path) -> None:
    answer = call("lint", folder(tmp_path, SOUND))
    assert (answer.code, answer.out) == (0, "")
    assert "1 looked at, no findings" in answer.err


@pytest.mark.parametrize(
    ("text", "line", "code"),
    [
        (f"{TOP}patch -p1 -F0 < a.patch || true\n", 3, "fail-open"),
        (f'{TOP}cd x && git apply a.patch || echo "already applied"\n', 3, "fail-open"),
        (f"{TOP}cp a b || {{ echo oops; }}\n", 3, "fail-open"),
        (f"{TOP}python3 - <<'PY' || true\nraise SystemExit\nPY\n", 3, "fail-open"),
        ("#!/bin/bash\n\npatch -p1 -F0 < a.patch\n", 3, "no-set-e"),
        (f"{TOP}curl -sL https://x.test/a.patch | patch -p1 -F0\n", 3, "network-patch"),
        (f"{TOP}curl -L https://github.com/a/b/pull/12.diff -o x\n", 3, "live-diff"),
        (f"{TOP}curl -O https://x.test/1.0/x.py\n", 3, "network"),
        (f"{TOP}export VLLM_USE_X=1\n", 3, "lost-export"),
        (f"{TOP}sed -i 's/a/b/' x.py\n", 3, "edit-unchecked"),
        (f"{TOP}if grep -q other x.py; then sed -i 's/name/b/' x.py; fi\n", 3, "edit-unchecked"),
        (
            f"{TOP}if ! grep -q new_name x.py; then sed -i 's/new_name/b/' x; fi\n",
            3,
            "edit-unchecked",
        ),
        (
            f"{TOP}python3 - <<'PY'\nopen('x','w').write(t.replace('a','b'))\nPY\n",
            3,
            "edit-unchecked",
        ),
        (f"{TOP}patch -p1 < a.patch\n", 3, "fuzz"),
        (f"{TOP}if true; then\n", 3, "not-bash"),
    ],
)
def test_each_flaw_is_named_with_its_line(
    call: Call, tmp_path: Path, text: str, line: int, code: str
) -> None:
    answer = call("lint", folder(tmp_path, text), "--json")
    assert answer.code == 1
    found = [(one["line"], one["code"]) for one in answer.json["findings"]]
    assert (line, code) in found
    # and nothing else but what the same line brings along
    assert {one for one, _ in found} == {line}


@pytest.mark.parametrize(
    "text",
    [
        f"{TOP}if grep -q fixed x.py; then exit 0; fi\n",
        f"{TOP}grep -q fixed x.py || true\n",
        f"{TOP}if git apply --check a.patch; then git apply a.patch; else exit 3; fi\n",
        f"{TOP}patch -p1 -F0 < a.patch || {{ echo no >&2; exit 1; }}\n",
        f"{TOP}patch -p1 -F0 < a.patch || exit 1\n",
        f"{TOP}rm -rf ~/.cache/vllm/torch_compile_cache\n",
        f'{TOP}export ROOT=/x\ncp a "$ROOT/a"\n',
        "#!/bin/bash -e\ncp a b\n",
        # the `grep` has found what the `sed` edits
        f"{TOP}if grep -q 'old_name(x)' f.py; then sed -i 's/old_name(x)/new(x)/' f.py; fi\n",
        f"{TOP}grep -qF 'old_name' f.py && sed -i 's|old_name|new|g' f.py\n",
        f"{TOP}grep -q 'old_name' f.py || exit 1\nsed -i 's/old_name/new/' f.py\n",
        # these are for the script's own programs
        f"{TOP}export http_proxy=http://proxy:1 HTTPS_PROXY=x no_proxy=y PIP_INDEX_URL=z\n",
        f"{TOP}export UV_CACHE_DIR=/x DEBIAN_FRONTEND=noninteractive TMPDIR=/tmp\n",
        # a constraint installs nothing
        f"{TOP}pip install -c constraints.txt flash-qla==0.1.3\n",
        f"{TOP}uv pip install --constraint c.txt einops==0.8.1\n",
        "set -o errexit\ncp a b\n",
    ],
)
def test_what_fails_closed_is_no_finding(call: Call, tmp_path: Path, text: str) -> None:
    answer = call("lint", folder(tmp_path, text))
    assert (answer.code, answer.out) == (0, "")


def test_a_zip_and_a_collection_of_folders(call: Call, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "mods" / name).mkdir(parents=True)
        (tmp_path / "mods" / name / "run.sh").write_text(f"{TOP}cp a b || true\n")
    packed = tmp_path / "three.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("run.sh", f"{TOP}cp a b || true\n")
    answer = call("lint", tmp_path / "mods", packed)
    assert answer.code == 1
    assert len(answer.out.splitlines()) == 3
    assert f"{packed}:run.sh:3: " in answer.out


def test_a_zip_is_read_up_to_the_size_of_a_script(call: Call, tmp_path: Path) -> None:
    packed = tmp_path / "mod.zip"

    def lint(more: int) -> Answer:
        head, last = f"{TOP}#".encode(), b"cp a b || true # \xff\n"
        fill = b"x" * (limits.SCRIPT - len(head) - len(last) - 1 + more)
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("run.sh", head + fill + b"\n" + last)
        return call("lint", packed)

    assert lint(0).code == 1
    answer = lint(1)
    assert answer.code == 2
    assert f"{packed}:run.sh is larger than a script" in answer.err


def test_a_library_is_read_with_its_patches(call: Call, library: Path) -> None:
    assert call("lint", library).code == 0
    patch = library / "patches/fast/x.patch"
    patch.write_text(patch.read_text().replace("@@ -3,7", "@@ -3,9"))
    answer = call("lint", library)
    assert answer.code == 1
    assert "[broken-mod]" in answer.out


def test_a_path_with_nothing_to_look_at(call: Call, tmp_path: Path) -> None:
    assert call("lint", tmp_path / "none").code == 2
    (tmp_path / "empty").mkdir()
    answer = call("lint", tmp_path / "empty")
    assert answer.code == 2
    assert "holds neither a run.sh nor a mod.toml" in answer.err
    (tmp_path / "Dockerfile").write_text("# x\nARG A\nFROM x\nRUN patch || true\n")
    answer = call("lint", tmp_path / "Dockerfile")
    assert (answer.code, "is a Dockerfile, and scripts are read" in answer.err) == (2, True)
    (tmp_path / "x.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    assert call("lint", tmp_path / "x.zip").code == 2


@pytest.mark.parametrize(
    "text",
    [
        "unknown",
        "none",
        "TODO",
        "NOASSERTION",
        "n/a",
        "?",
        " ",
        "M",
        "MIT or",
        "LicenseRef-unstated",
        "LicenseRef-TODO",
        "MIT OR LicenseRef-Unknown",
        "see LICENSE",
    ],
)
def test_a_licence_that_says_nothing_is_refused_with_its_line(
    call: Call, library: Path, text: str
) -> None:
    place = library / "patches/fast/mod.toml"
    assert call("lint", library).code == 0
    place.write_text(place.read_text().replace('license = "MIT"', f'license = "{text}"'))
    line = place.read_text().splitlines().index(f'license = "{text}"') + 1
    answer = call("lint", library)
    assert answer.code == 1
    assert answer.out.startswith(f"{place}:{line}: `{text}` does not say")
    assert answer.out.endswith("[license-unstated]\n")


@pytest.mark.parametrize(
    "text",
    [
        "mit",
        "Apache-2.0 OR (MIT AND BSD-3-Clause)",
        "LicenseRef-our-terms",
        "GPL-2.0-only WITH Classpath-exception-2.0",
        "LicenseRef-None-of-ours",
    ],
)
def test_a_licence_by_spdx_is_taken(call: Call, library: Path, text: str) -> None:
    place = library / "patches/fast/mod.toml"
    place.write_text(place.read_text().replace('license = "MIT"', f'license = "{text}"'))
    assert call("lint", library).code == 0
