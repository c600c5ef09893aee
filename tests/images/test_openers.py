"""From a reference to an image: which words lead where, what of several platforms is there, how paths and names are read."""

from __future__ import annotations

import gc
import json
import os
from typing import TYPE_CHECKING

import pytest
from folder_base import FolderBase
from lowering import lower
from making_images import ARCHITECTURE, Image, layer, of_platforms

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.images import model, names, open as opening

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = Image([layer({"a": b"a"})])
OURS = f"linux/{ARCHITECTURE}"
FORMS = (
    "docker:NAME, podman:NAME, container:NAME, oci:FOLDER[:TAG], registry:HOST/NAME:TAG, "
    "or a bare NAME of an image that an engine here has"
)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("", "no image given"),
        *((f"{word}:", f"{word}: needs a name after the colon") for word in ("docker", "podman")),
        *((f"{word}:", f"{word}: needs a name after the colon") for word in ("oci", "registry")),
    ],
)
def test_a_reference_that_names_nothing_is_told_the_forms(reference: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        opening.open_base(reference)
    assert (caught.value.message, caught.value.hint) == (message, FORMS)


# docker's library leaves a socket that could not connect to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["x:1", "localhost/x"])
def test_a_bare_name_is_asked_of_every_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        opening.open_base(name)
    lines = caught.value.message.splitlines()
    assert lines[0] == f"{name}: no engine on this machine has this image"
    assert lines[1].startswith("  no docker engine responds at ")
    assert lines[2:] == ["  podman cannot be run: No such file or directory"]
    assert caught.value.hint == (
        f"docker pull {name}  # or write registry:{name}, which reads the image from its registry"
    )
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\necho Error: no such image >&2\nexit 125\n")
    podman.chmod(0o755)
    with pytest.raises(UsageError, match="podman has no image") as asked:
        opening.open_base(name)
    assert (asked.value.hint or "").startswith(f"podman pull {name}  # or write registry:")
    del caught, asked
    gc.collect()


def test_the_platform_that_is_named_is_opened_and_its_index_told(tmp_path: Path) -> None:
    place = of_platforms(IMAGE, tmp_path / "l", "linux/amd64", "linux/s390x")
    seen: list[object] = []
    base = opening.open_base(f"oci:{place}", platform="linux/s390x", known=seen.append)
    assert json.loads(base.config)["architecture"] == "s390x"
    assert len(seen) == 1
    notes: list[str] = []
    place = of_platforms(IMAGE, tmp_path / "2", OURS, "linux/s390x")
    opening.open_base(f"oci:{place}", note=notes.append)
    (note,) = notes
    assert note.endswith(f"reading the image for {OURS}; --platform selects another: linux/s390x")


@pytest.mark.parametrize("platforms", [("linux/s390x", "linux/ppc64le"), (OURS, "linux/s390x")])
def test_the_platforms_of_an_index(tmp_path: Path, platforms: tuple[str, ...]) -> None:
    reference = f"oci:{of_platforms(IMAGE, tmp_path / 'l', *platforms)}"
    assert opening.platforms_of(reference) == tuple(sorted(platforms))
    (index,) = opening.indexes_of(reference)
    entries = opening.entries_of([index, index], reference)
    assert [entry.platform for entry in entries] == [*platforms, *platforms]


def test_what_is_no_image_and_what_says_nothing_is_no_platform() -> None:
    index = {"manifests": [{"digest": "sha256:a", "size": 1}]}
    entries = opening.entries_of([index], "it")
    unknown = entries[0]._replace(platform="unknown/unknown")
    assert opening.platforms_in([*entries, unknown]) == ()
    with pytest.raises(TreeError, match="it: its index is broken"):
        opening.entries_of([{}], "it")


def test_an_image_alone_has_no_index_and_one_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert opening.indexes_of(f"oci:{IMAGE.layout(tmp_path / 'l')}") == ()
    with pytest.raises(UsageError, match="is not an OCI layout"):
        opening.indexes_of(f"oci:{tmp_path}/none")
    with pytest.raises(TreeError, match="cannot be read with --offline"):
        opening.indexes_of("registry:h.example/a:1", offline=True)


@pytest.mark.parametrize("reference", ["docker:x", "podman:x", "container:x", "x:1", "localhost/x"])
def test_an_engine_has_no_index(reference: str) -> None:
    assert opening.in_engine(reference)
    assert opening.indexes_of(reference) == ()


@pytest.mark.parametrize(
    ("where", "hint"),
    [
        ("docker", "docker pull --platform linux/s390x IMAGE, or leave --platform out"),
        ("containerd", "docker pull --platform linux/s390x IMAGE, or leave --platform out"),
        ("podman", "podman pull --platform linux/s390x IMAGE, or leave --platform out"),
        ("oci-layout", "leave --platform out, or name the image for that platform"),
        ("registry", "leave --platform out, or name the image for that platform"),
    ],
)
def test_an_image_for_another_platform_than_is_named(tmp_path: Path, where: str, hint: str) -> None:
    base = FolderBase(tmp_path, reference="it", where=where)
    opening.demand_platform(base, "linux/amd64/v2")
    with pytest.raises(UsageError) as caught:
        opening.demand_platform(base, "linux/s390x")
    message = "it: the image is for linux/amd64, not linux/s390x"
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (b'{"config": {"User": "0"}}', {"User": "0"}),
        (b'{"config": null}', {}),
        (b'{"config": []}', {}),
        (b"{}", {}),
    ],
)
def test_the_settings_of_an_image(
    tmp_path: Path, config: bytes, settings: dict[str, object]
) -> None:
    base = FolderBase(tmp_path)
    base.config = config
    assert model.settings(base) == settings


def test_the_environment_of_an_image() -> None:
    assert model.environment({"Env": ["A=1", "B=x=y", "C", 7]}) == {"A": "1", "B": "x=y", "C": ""}
    assert model.environment({"Env": None}) == model.environment({}) == {}


def test_the_children_of_a_folder(tmp_path: Path) -> None:
    base = FolderBase(tmp_path)
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/file").touch()
    assert sorted(entry.path for entry in model.children(base, "a")) == ["a/b", "a/file"]
    for folder in ("none", "a/file"):
        assert list(model.children(base, folder)) == []


@pytest.mark.parametrize(
    ("path", "leads"),
    [
        ("", ""),
        ("/", ""),
        ("//a/./b/", "a/b"),
        ("..", ""),
        ("../a/b", "a/b"),
        ("a/b/../c", "a/c"),
        ("link", "a"),
        ("link/b", "a/b"),
        ("link/none/x", "a/none/x"),
        ("a/up/x", "x"),
        ("a/up/link/../y", "y"),
        ("a/b/abs/b", "a/b"),
        ("two/b", "a/b"),
        ("link/../link/b", "a/b"),
        ("none/../link", "a"),
        ("link/none/../b", "a/b"),
    ],
)
def test_a_path_is_followed_inside_an_image(tmp_path: Path, path: str, leads: str) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    for place, target in (("link", "a"), ("a/up", ".."), ("a/b/abs", "/link"), ("two", "link")):
        (tmp_path / place).symlink_to(target)
    assert model.resolve(FolderBase(tmp_path), path) == leads


def test_links_are_followed_so_far_and_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "LINKS_FOLLOWED", 2)
    for place, target in (("1", "end"), ("2", "1"), ("3", "2")):
        (tmp_path / place).symlink_to(target)
    base = FolderBase(tmp_path, reference="it")
    assert model.resolve(base, "2") == "end"
    with pytest.raises(TreeError) as caught:
        model.resolve(base, "//3/x")
    assert caught.value.message == "it: /3/x is a loop of symbolic links (/1 points to end)"
    assert caught.value.hint == "the image is broken: rebuild it"


HEX = "a" * 64


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("h.io/a/b:t", ("h.io", "a/b", "t", None)),
        (f"h.io/a:t@sha256:{HEX}", ("h.io", "a", "t", f"sha256:{HEX}")),
        (f"a@sha256:{HEX}", ("docker.io", "library/a", "latest", f"sha256:{HEX}")),
        ("docker.io/a", ("docker.io", "library/a", "latest", None)),
        ("index.docker.io/a/b", ("docker.io", "a/b", "latest", None)),
        ("[::1]/a", ("[::1]", "a", "latest", None)),
        ("host/a", ("docker.io", "host/a", "latest", None)),
        ("localhost/a", ("localhost", "a", "latest", None)),
    ],
)
def test_the_parts_of_a_name(text: str, parts: tuple[str, str, str, str | None]) -> None:
    name = names.parse(text)
    assert name == parts
    assert name.version == (parts[3] or parts[2])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-h.io/a", "'-h.io' is not a host name"),
        ("[::g]/a", "'[::g]' is not a host name"),
        ("[::1/a", "'[::1' is not a host name"),
        ("h.io/A", "'A' is not a repository name"),
        ("h.io/a:-t", "'-t' is not a tag"),
        ("h.io/a:", "'' is not a tag"),
        ("h.io/a@", "'' is not a digest"),
        ("h.io/a@sha256:1", "'sha256:1' is not a digest"),
    ],
)
def test_what_is_wrong_with_a_name(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        names.parse(text)
    assert caught.value.message == f"{text}: not an image name: {why}"
    hint = "HOST/NAME:TAG or HOST/NAME@sha256:…; only tags may have capital letters"
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("docker:x:1", "x:1"),
        ("podman:x", "x"),
        ("registry:h/x", "h/x"),
        ("x:1", "x:1"),
        ("oci:x", "oci:x"),
        ("docker", "docker"),
    ],
)
def test_a_reference_without_the_word_in_front(reference: str, name: str) -> None:
    assert names.plain(reference) == name


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("h.io/a", True),
        ("h:5000/a", True),
        ("localhost/a", True),
        ("h/a", False),
        ("h.io", False),
        ("a@sha256:0/1", False),
    ],
)
def test_whether_a_name_says_its_registry(text: str, *, has: bool) -> None:
    assert names.has_host(text) is has


def test_a_file_is_not_taken_for_a_name(tmp_path: Path) -> None:
    place = str(tmp_path)
    with pytest.raises(UsageError) as caught:
        opening.open_base(place)
    message = f"{place} is a file or a folder, not an image name"
    assert (caught.value.message, caught.value.hint) == (message, f"oci:{place}")
    assert os.listdir(tmp_path) == []
