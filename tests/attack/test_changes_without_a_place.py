"""What a mod changes and the target has not got any more is a patch to do away with: no port is finished without that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command_line import LOADER, write_library, write_tree
from mod_making import diff_of

import vllm_mods as vm
from vllm_mods.api.port import continue_port

if TYPE_CHECKING:
    from pathlib import Path

CLASS = LOADER[LOADER.index("class Loader") : LOADER.index("class Saver")]
GONE = {
    "its class": LOADER.replace(CLASS, ""),
    "its class, which has another name and other methods": LOADER.replace(
        CLASS, "class Reader:\n    def read(self, url):\n        return url\n\n\n"
    ),
    "all but the imports": "import os\n",
    "its class, put into a string": LOADER.replace(CLASS, f'OLD = """\n{CLASS}"""\n\n\n'),
}


@pytest.mark.parametrize("what", GONE)
@pytest.mark.parametrize("more", [False, True])
def test_nothing_is_finished_without_a_decision_on_what_has_no_place(
    tmp_path: Path, what: str, *, more: bool
) -> None:
    """``more`` has the mod change something that the target still has, too."""
    base = str(write_tree(tmp_path / "base", "0.19.1"))
    library = vm.Library(str(write_library(tmp_path / "library")))
    folder = tmp_path / "library/patches/fast"
    changed = LOADER.replace('"weights"', '"fast"', 1)
    if more:
        changed = changed.replace("import os\n", "import os\nimport sys\n", 1)
    (folder / "x.patch").write_bytes(diff_of("vllm/loader.py", LOADER, changed))
    ported = vm.port(
        library,
        "fast",
        str(write_tree(tmp_path / "target", "0.20.0", loader=GONE[what])),
        base=base,
        access=vm.Access(offline=True),
    )
    assert not ported.ok
    assert ported.unfinished is not None
    left = sorted(tmp_path.glob("library/patches/fast/.port-*/*.patch"))
    assert any('"fast"' in path.read_text() for path in left) or any(
        b"<<<<<<<" in path.read_bytes()
        for path in tmp_path.glob("library/patches/fast/.port-*/files/**/*.py")
    )
    for _ in range(2):  # and not the second time
        with pytest.raises(vm.Refused):
            continue_port(library, "fast")
    assert [one.id for one in library.load("fast").variants] == ["a"]
