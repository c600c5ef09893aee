"""The owner of a machine: a patch from a forum goes into his vLLM, comes out again, and meets the next releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command_line import FILES, LOADER, write_tree
from doc_commands import small_release
from mod_making import diff_of
from package_server import make_sdist
from small_site import build, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Typed = Callable[..., Answer]

POST = """\
Hi all! My weights lie on a faster disk; with this Loader finds them (Saver shall not):

```diff
{diff}```

Works on my machine, hope it helps.
"""
FAST = LOADER.replace('"weights"', '"fast"', 1)
HEAD, TAIL = LOADER.split("\n\n\nclass Saver:\n")
IMPORT, CLASS = HEAD.split("\n\n\n")
SWAPPED = f"{IMPORT}\n\n\nclass Saver:\n{TAIL}\n\n{CLASS}\n\n\nclass Last:\n    pass\n"
"""The next release: the two classes have changed places."""
LATER = FAST.replace('os.path.join("fast", name)', 'os.path.join("disk", "weights", name)', 1)
"""The one after it: upstream has changed the very line."""


@pytest.fixture
def post(tmp_path: Path) -> str:
    (tmp_path / "index").mkdir()
    for version, loader in (
        ("0.19.0", LOADER + "# old\n"),
        ("0.19.1", LOADER),
        ("0.20.0", SWAPPED),
    ):
        sdist = make_sdist(FILES | {"vllm/loader.py": loader.encode()}, version=version)
        (tmp_path / f"index/vllm-{version}.tar.gz").write_bytes(sdist)
    diff = diff_of("vllm/loader.py", LOADER, FAST).decode()
    (tmp_path / "post.txt").write_text(POST.format(diff=diff))
    return "vllm-mods new fast --from-diff post.txt --tree auto --library mine"


@pytest.mark.slow
def test_a_forum_post_goes_in_and_out_and_meets_the_next_releases(
    typed: Typed, tmp_path: Path, post: str
) -> None:
    site = build(tmp_path / "env", FILES)
    before = snapshot(site)
    new = typed(post)
    assert "pypi:0.19.1 is the newest release where each hunk of post.txt matches" in new.err
    assert "wrote mine/patches/fast: applies" in new.out

    typed("vllm-mods apply fast --library mine --target env")
    assert (site / "vllm/loader.py").read_text() == FAST
    assert "fast 0.1.0" in typed("vllm-mods status --target env").out
    assert "all files unchanged" in typed("vllm-mods verify --target env").out
    again = typed("vllm-mods apply fast --library mine --target env")
    assert "fast 0.1.0  applied" in again.out
    typed("vllm-mods revert fast --target env")
    assert snapshot(site) == before

    write_tree(tmp_path / "next", "0.20.0", loader=SWAPPED)
    assert "moved" in typed("vllm-mods check fast --library mine --target pypi:0.20.0").out
    typed("vllm-mods apply fast --library mine --target next")
    text = (tmp_path / "next/vllm/loader.py").read_text()
    saver, loader = text.split("class Loader")
    assert ('"weights"' in saver, '"fast"' in saver) == (True, False)
    assert ('"weights"' in loader, '"fast"' in loader) == (False, True)


def test_a_release_that_changed_the_line_refuses_it_and_stays_as_it_is(
    typed: Typed, tmp_path: Path, post: str
) -> None:
    typed(post)
    later = write_tree(tmp_path / "later", "0.21.0", loader=LATER)
    before = snapshot(later)
    check = typed("vllm-mods check fast --library mine --target later", code=1)
    assert '"disk"' in check.out  # what stands there by now
    assert "port fast" in check.err
    typed("vllm-mods apply fast --library mine --target later", code=3)
    assert snapshot(later) == before
    port = typed("vllm-mods port fast --library mine --to later", code=1)
    assert "vllm/loader.py" in port.out
    found = tmp_path.glob("mine/patches/fast/**/loader.py")
    (place,) = [path for path in found if "<<<<<<<" in path.read_text()]
    place.write_text(LATER.replace('"disk", "weights"', '"disk", "fast"'))
    typed("vllm-mods port fast --library mine --continue")
    typed("vllm-mods apply fast --library mine --target later")
    assert '"disk", "fast"' in (later / "vllm/loader.py").read_text()


RGBA = """\
--- a/vllm/multimodal/media/connector.py
+++ b/vllm/multimodal/media/connector.py
@@ -300,5 +300,5 @@
         \"\"\"
         image_io = ImageMediaIO(
-            image_mode=image_mode, **self.media_io_kwargs.get("image", {})
+            image_mode="RGBA", **self.media_io_kwargs.get("image", {})
         )
\x20
"""


@pytest.mark.slow
@pytest.mark.network
def test_a_post_for_a_real_release_goes_into_the_method_that_it_is_for(
    typed: Typed, tmp_path: Path
) -> None:
    site = small_release(tmp_path / "env")
    before = snapshot(site)
    (tmp_path / "rgba.diff").write_text(RGBA)
    target = f"--target {site}"
    assert "fetch_image_async" in typed(f"vllm-mods check rgba.diff {target}", code=1).out
    typed("vllm-mods new rgba --from-diff rgba.diff --tree pypi:0.19.1 --library mine")
    typed(f"vllm-mods apply rgba --library mine {target}")
    text = (site / "vllm/multimodal/media/connector.py").read_text()
    first, _, behind = text.partition("async def fetch_image_async(")
    assert ('"RGBA"' in first, '"RGBA"' in behind.partition("def ")[0]) == (False, True)
    typed(f"vllm-mods revert {target}")
    assert snapshot(site) == before
    typed("vllm-mods check rgba --library mine --target pypi:0.22.0")
