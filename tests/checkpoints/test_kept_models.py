"""A model as the Hub's client keeps it here: snapshots, whose files are links to blobs; and what a folder lacks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hybrid_checkpoints import bf16, write_checkpoint, write_file

from vllm_mods.base.errors import TreeError, Unreachable, UsageError
from vllm_mods.checkpoints import sources
from vllm_mods.checkpoints.sources import open_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"
AGAIN = "run `hf download` again, which continues where it stopped"


def kept(home: Path, model: str = "org/model") -> Path:
    """A model of two files in the cache; return its snapshot."""
    place = home / f"hub/models--{model.replace('/', '--')}"
    snapshot = place / "snapshots" / COMMIT
    write_checkpoint(str(snapshot), [bf16("a"), bf16("b")], config={"model_type": "llama"})
    (place / "blobs").mkdir()
    for file in list(snapshot.iterdir()):
        file.rename(place / "blobs" / f"h-{file.name}")
        file.symlink_to(f"../../blobs/h-{file.name}")
    (place / "refs").mkdir()
    (place / "refs/main").write_text(COMMIT)
    return snapshot


def read(home: Path, revision: str | None = None, **more: str) -> tuple[str, str | None, int]:
    environ = {"HF_HOME": str(home), **more}
    model = open_checkpoint("org/model", revision, environ=environ, here=True)
    return model.name, model.commit, len(model.tensors)


def test_a_model_of_the_hub_is_read_where_its_client_keeps_it(tmp_path: Path) -> None:
    kept(tmp_path)
    assert read(tmp_path) == read(tmp_path, COMMIT) == ("org/model", COMMIT, 2)
    assert read(Path("/nowhere"), HF_HUB_CACHE=f"{tmp_path}/hub") == ("org/model", COMMIT, 2)
    offline = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    assert open_checkpoint("org/model", environ=offline).commit == COMMIT
    for home, revision in ((tmp_path, "v2"), (tmp_path, "f" * 40), (tmp_path / "none", None)):
        with pytest.raises(Unreachable) as caught:
            read(home, revision)
        assert caught.value.message == f"org/model is not in {home}/hub"


def test_a_part_of_a_download_is_nothing_that_can_be_read(tmp_path: Path) -> None:
    snapshot = kept(tmp_path)
    (snapshot / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(Unreachable, match="1 of its 2 weight files are missing"):
        read(tmp_path)
    offline = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    with pytest.raises(Unreachable, match="the Hub was not asked"):
        open_checkpoint("org/model", environ=offline)


@pytest.mark.parametrize("text", ["", "main", "../../x", "é"])
def test_a_reference_that_names_no_commit_leads_nowhere(tmp_path: Path, text: str) -> None:
    kept(tmp_path).parents[1].joinpath("refs/main").write_text(text)
    with pytest.raises(Unreachable, match="org/model is not in"):
        read(tmp_path)


def test_a_snapshot_without_its_blobs_is_told_by_its_links(tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    shutil.copytree(kept(tmp_path), mounted, symlinks=True)
    with pytest.raises(TreeError) as caught:
        open_checkpoint(str(mounted))
    assert caught.value.message == (
        f"{mounted}: 4 of its 4 files are dangling links "
        f"(such as {mounted}/config.json to ../../blobs/h-config.json)"
    )
    assert caught.value.hint == (
        "a snapshot of the Hub's cache needs its blobs/: mount or copy the whole models--… folder, "
        "or run `hf download --local-dir DIR`"
    )


@pytest.mark.parametrize("index", [True, False])
def test_files_of_weights_that_are_missing_are_counted(tmp_path: Path, *, index: bool) -> None:
    files = [bf16(name) for name in "abcdef"]
    place = Path(write_checkpoint(str(tmp_path), files, config={"model_type": "llama"}))
    if not index:
        (place / "model.safetensors.index.json").unlink()
    for number in range(2, 7):
        (place / f"model-{number:05}-of-00006.safetensors").unlink()
    with pytest.raises(TreeError) as caught:
        open_checkpoint(str(place))
    three = ", ".join(f"model-{number:05}-of-00006.safetensors" for number in (2, 3, 4))
    assert caught.value.message == (f"{place}: 5 of its 6 weight files are missing ({three}, …)")
    assert caught.value.hint == AGAIN


@pytest.mark.parametrize("alone", [True, False])
def test_weights_that_are_there_in_two_forms_are_read_once(tmp_path: Path, *, alone: bool) -> None:
    place = write_checkpoint(str(tmp_path), [bf16("a")], config={"model_type": "llama"})
    write_file(f"{place}/consolidated.safetensors", bf16("b"))
    if alone:
        os.unlink(f"{place}/model.safetensors")
    assert list(open_checkpoint(place).tensors) == ["b.weight" if alone else "a.weight"]


def test_a_file_that_is_cut_short_is_told(tmp_path: Path) -> None:
    place = write_checkpoint(str(tmp_path), [bf16("a")], config={"model_type": "llama"})
    path = f"{place}/model.safetensors"
    os.truncate(path, os.path.getsize(path) - 1)
    with pytest.raises(
        TreeError, match=r"cut off: it has 131,071 bytes .* a\.weight ends at 131,072"
    ):
        open_checkpoint(place)


def test_a_folder_has_the_name_that_its_model_is_called_by(tmp_path: Path) -> None:
    place = write_checkpoint(str(tmp_path), [bf16("a")], config={"model_type": "llama"})
    assert open_checkpoint("org/model", folder=place).name == "org/model"
    with pytest.raises(UsageError) as caught:
        open_checkpoint("org/model", folder=f"{place}/none")
    assert caught.value.message == f"{place}/none: no such folder"
    assert caught.value.hint == "download it (`hf download`), and name the folder"


def test_what_a_container_needs_beside_a_folder_is_where_its_links_lead(tmp_path: Path) -> None:
    snapshot = kept(tmp_path)
    blobs = str(snapshot.parents[1] / "blobs")
    assert sources.blobs_of(str(snapshot)) == blobs
    (snapshot / "own.json").write_text("{}")
    (snapshot / "also.json").symlink_to("own.json")
    (snapshot / "folder").mkdir()
    assert sources.blobs_of(str(snapshot)) == blobs
    assert sources.blobs_of(blobs) is None
    (snapshot / "tokenizer.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError) as caught:
        sources.blobs_of(str(snapshot))
    assert caught.value.message == (
        f"{snapshot}/tokenizer.json links to {tmp_path}/elsewhere, which a container that mounts {snapshot} cannot see"
    )
    assert caught.value.hint == f"cp -rL {snapshot} DIR, then --model-folder DIR"
