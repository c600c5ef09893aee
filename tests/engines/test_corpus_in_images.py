"""Thirty scripts in images of three releases: the mod of each does what the script does there, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import release_images
from corpus.image_scripts import ELSEWHERE, SCRIPTS
from corpus.importing import digest, imported

from vllm_mods.api.access import Access
from vllm_mods.base.errors import Refused
from vllm_mods.making import recording
from vllm_mods.making.recording import Limits
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from real_engines import Engine

    from vllm_mods.base.tree import Tree

RELEASES = "0.19.1", "0.21.0", "0.24.0"
pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def docker_releases(
    dockerd: Engine, python_layer: bytes, tmp_path_factory: pytest.TempPathFactory
) -> Engine:
    """Return a dockerd that has ``localhost/vllm`` of each release."""
    shell = release_images.shell_layer()
    for version in RELEASES:
        whole = Releases().whole(version)
        files = {path: whole.read(path) or b"" for path in whole.paths("vllm")}
        image = release_images.release_image(python_layer, shell, version, files)
        place = image.archive(tmp_path_factory.mktemp("archive") / "release.tar")
        dockerd("load", "-i", place)
        place.unlink()
    return dockerd


@pytest.fixture(scope="module")
def images(docker_releases: Engine) -> Iterator[dict[str, Tree]]:
    """Open the image of each release, once for all scripts: to read one takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in docker_releases.environ.items():
            patch.setenv(name, value)
        access = Access()
        opened = {name: access.open(f"image:localhost/vllm:{name}") for name in RELEASES}
        yield opened
        for tree in opened.values():
            tree.close()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_mod_does_what_its_script_does_in_the_image(
    name: str, docker_releases: Engine, images: dict[str, Tree], tmp_path: Path
) -> None:
    for path, text in SCRIPTS[name].items():
        (tmp_path / "mine" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / path).write_text(text)
    does = {}
    for version in RELEASES:
        image = f"localhost/vllm:{version}"
        code, left = release_images.ran(docker_releases, image, "mine", tmp_path / "mine")
        kept = {
            path.replace("/workspace/", "templates/"): digest(data) for path, data in left.items()
        }
        does[version] = kept if code == 0 else None
    found = imported(SCRIPTS[name], does, images)
    assert not found.wrong, found
    if name in ELSEWHERE:
        assert ELSEWHERE[name] in found.why
    else:
        assert all(does.values()), does
        assert (found.why, found.lost) == ("", ()), found


@pytest.mark.usefixtures("docker_releases")
def test_a_self_test_that_fails_in_the_image_is_left_out_if_its_author_says_so(
    images: dict[str, Tree],
) -> None:
    tree = images[RELEASES[1]]
    script = SCRIPTS["a self-test at the end that imports torch"]
    broken = {
        name: text.replace("import torch,", "import torch_npu,") for name, text in script.items()
    }
    files = {name: text.encode() for name, text in broken.items()}
    container = recording.container_of(tree)
    given = (["./run.sh"], "mine", files, tree)
    with pytest.raises(Refused, match="No module named 'torch_npu'") as caught:
        recording.record(*given, Limits(seconds=60), container=container)
    assert "or --ignore-checks, if run.sh:5: `python3 -` only checks" in (caught.value.hint or "")
    effect = recording.record(*given, Limits(seconds=60, ignore_checks=True), container=container)
    (change,) = effect.changes
    assert change.path == "vllm/utils/math_utils.py"
    assert b"return x - x % y" in (change.after or b"")
    (note,) = effect.notes
    assert "was ignored, because without this step the script makes the same changes" in note


def test_twenty_eight_of_thirty_have_all_that_they_need_in_an_image() -> None:
    assert len(SCRIPTS) == 30
    assert ELSEWHERE.keys() <= SCRIPTS.keys()
    assert len(ELSEWHERE) == 2
