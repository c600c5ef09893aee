"""An image of a pairing that somebody has changed does not pass for it: `image verify` says what was changed.

Whoever changes it is careful: every digest is right again afterwards.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import small_site
from making_images import CONFIG, LAYER, MANIFEST, OLD, Folder, Image, Link, digest, from_disk
from making_images import layer as tar_of
from paired import NAME, library

from vllm_mods.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SITE = "usr/local/lib/python3.12/dist-packages"
LOCK = f"{SITE}/.vllm-mods/pairing.lock"
RECEIPT = f"{SITE}/.vllm-mods/receipt.json"
TEMPLATE = f"{SITE}/.vllm-mods/templates/small.jinja"


@dataclass
class Opened:
    """An image taken apart: configuration, plain layers, annotations, and where layers are swapped."""

    config: dict[str, Any]
    layers: list[bytes]
    annotations: dict[str, str]
    stated: list[str] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = self.config["config"]
        return settings

    def write(self, folder: Path) -> str:
        self.config["rootfs"]["diff_ids"] = self.stated or [digest(one) for one in self.layers]
        config = json.dumps(self.config, sort_keys=True, separators=(",", ":")).encode()
        packed = [gzip.compress(one, 1, mtime=0) for one in self.layers]
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {"mediaType": CONFIG, "digest": digest(config), "size": len(config)},
                "layers": [
                    {"mediaType": f"{LAYER}+gzip", "digest": digest(one), "size": len(one)}
                    for one in packed
                ],
                "annotations": self.annotations,
            }
        ).encode()
        (folder / "blobs/sha256").mkdir(parents=True)
        for data in (config, manifest, *packed):
            (folder / "blobs" / digest(data).replace(":", "/")).write_bytes(data)
        entry = {"mediaType": MANIFEST, "digest": digest(manifest), "size": len(manifest)}
        (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
        return f"oci:{folder}"


def opened(folder: Path) -> Opened:
    def blob(one: dict[str, Any]) -> bytes:
        return (folder / "blobs" / str(one["digest"]).replace(":", "/")).read_bytes()

    (entry,) = json.loads((folder / "index.json").read_bytes())["manifests"]
    manifest = json.loads(blob(entry))
    layers = [
        gzip.decompress(data) if (data := blob(one))[:2] == b"\x1f\x8b" else data
        for one in manifest["layers"]
    ]
    return Opened(json.loads(blob(manifest["config"])), layers, manifest["annotations"])


def edited(
    layer: bytes, change: Callable[[tarfile.TarInfo, bytes], bytes | None], more: bytes = b""
) -> bytes:
    """Return a layer with each member as ``change`` leaves it, None being gone."""
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(layer)) as old,
        tarfile.open(fileobj=out, mode="w:") as new,
    ):
        for member in old:
            file = old.extractfile(member)
            data = change(member, file.read() if file else b"")
            if data is not None:
                member.size = len(data)
                new.addfile(member, io.BytesIO(data))
        if more:
            with tarfile.open(fileobj=io.BytesIO(more)) as added:
                for member in added:
                    if not member.isdir():
                        new.addfile(member, added.extractfile(member))
    return out.getvalue()


def above(**things: Any) -> Callable[[Opened], None]:
    """Put a layer on top."""
    named = {key.replace("__", "/"): thing for key, thing in things.items()}
    return lambda image: image.layers.append(tar_of(named))


def put(path: str, thing: Any) -> Callable[[Opened], None]:
    return lambda image: image.layers.append(tar_of({path: thing}))


def setting(key: str, value: Any) -> Callable[[Opened], None]:
    return lambda image: image.settings.update({key: value})


def env(change: Callable[[list[str]], list[str]]) -> Callable[[Opened], None]:
    return lambda image: image.settings.update(Env=change(image.settings["Env"]))


def label(key: str, value: str) -> Callable[[Opened], None]:
    return lambda image: image.settings["Labels"].update({key: value})


def whole(key: str, value: Any) -> Callable[[Opened], None]:
    return lambda image: image.config.update({key: value})


def ours(
    change: Callable[[tarfile.TarInfo, bytes], bytes | None], more: bytes = b""
) -> Callable[[Opened], None]:
    """Write our own layer anew."""

    def tamper(image: Opened) -> None:
        image.layers[-1] = edited(image.layers[-1], change, more)

    return tamper


def content(path: str, old: bytes, new: bytes) -> Callable[[Opened], None]:
    def change(member: tarfile.TarInfo, data: bytes) -> bytes:
        if member.name == path:
            assert old in data
        return data.replace(old, new) if member.name == path else data

    return ours(change)


def marked(path: str, **values: int) -> Callable[[Opened], None]:
    def change(member: tarfile.TarInfo, data: bytes) -> bytes:
        if member.name == path:
            for key, value in values.items():
                setattr(member, key, value)
        return data

    return ours(change)


def without(path: str) -> Callable[[Opened], None]:
    return ours(lambda member, data: None if member.name == path else data)


def slipped_under(image: Opened) -> None:
    image.layers.insert(2, tar_of({f"{SITE}/vllm/other.py": b"evil\n"}))


def swapped(image: Opened) -> None:
    image.layers[0], image.layers[1] = image.layers[1], image.layers[0]


def left_out(image: Opened) -> None:
    del image.layers[0]


def other_bytes(image: Opened) -> None:
    """The packed layer is another one than the configuration, which is left as it is, says."""
    image.stated = [digest(one) for one in image.layers]
    image.layers[1] = tar_of({f"{SITE}/vllm/other.py": b"evil\n"})


def annotated(image: Opened) -> None:
    image.annotations["vllm-mods.model"] = "org/evil"


def history(image: Opened) -> None:
    image.config["history"][0]["created_by"] = "a builder that can be trusted"


def env_order(image: Opened) -> None:
    image.settings["Env"].reverse()


def link_for_template(image: Opened) -> None:
    image.layers.append(tar_of({TEMPLATE: Link("/srv/theirs")}))


TAMPERED: dict[str, tuple[Callable[[Opened], None], str]] = {
    "a file beside vLLM": (put(f"{SITE}/evil.py", b"1"), "is no part of it (sha256:"),
    "a file beside vLLM is named": (put(f"{SITE}/evil.py", b"1"), f": /{SITE}/evil.py"),
    "a file more in our layer": (
        ours(lambda _, data: data, tar_of({f"{SITE}/evil.py": b"1"})),
        f": /{SITE}/evil.py",
    ),
    "sitecustomize.py": (put(f"{SITE}/sitecustomize.py", b"1"), f": /{SITE}/sitecustomize.py"),
    "a .pth": (put(f"{SITE}/evil.pth", b"import evil"), f": /{SITE}/evil.pth"),
    "PYTHONPATH": (
        env(lambda env: [*env, "PYTHONPATH=/evil"]),
        "the environment's PYTHONPATH is /evil, and the lock makes it not there",
    ),
    "a value of the environment": (
        env(lambda env: [one.replace("GREETING=hello", "GREETING=bye") for one in env]),
        "the environment's GREETING is bye, and the lock makes it hello",
    ),
    "a variable taken out": (
        env(lambda env: [one for one in env if not one.startswith("GREETING")]),
        "the environment's GREETING is not there, and the lock makes it hello",
    ),
    "the order of the environment": (env_order, "the environment is in another order"),
    "the entrypoint": (
        setting("Entrypoint", ["/evil"]),
        'the setting Entrypoint is ["/evil"], and the lock makes it ["vllm", "serve", "org/small"',
    ),
    "arguments": (setting("Cmd", ["--model", "x"]), 'the setting Cmd is ["--model", "x"]'),
    "the user": (setting("User", "nobody"), "the setting User is nobody"),
    "the working folder": (setting("WorkingDir", "/evil"), "the setting WorkingDir is /evil"),
    "the health check": (
        setting("Healthcheck", {"Test": ["CMD", "true"]}),
        'the setting Healthcheck is {"Test": ["CMD", "true"]}',
    ),
    "the signal": (setting("StopSignal", "SIGKILL"), "the setting StopSignal is SIGKILL"),
    "a port": (setting("ExposedPorts", {"22/tcp": {}}), 'the setting ExposedPorts is {"22/tcp": {}}'),
    "a trigger": (setting("OnBuild", ["RUN evil"]), 'the setting OnBuild is ["RUN evil"]'),
    "the model in the label": (
        label("vllm-mods.model", "org/evil"),
        "the label vllm-mods.model is org/evil, and the lock makes it org/small",
    ),
    "the lock in the label": (label("vllm-mods.lock", "sha256:0"), "the label vllm-mods.lock"),
    "the model in the annotation": (annotated, "the annotation vllm-mods.model is org/evil"),
    "the machine": (whole("architecture", "s390x"), "its architecture is s390x"),
    "the time": (whole("created", "2020-01-01T00:00:00Z"), "its created is 2020-01-01T00:00:00Z"),
    "the history": (history, "its history is"),
    "a word that the format does not know": (whole("author", "me"), "its author is me"),
    "a layer slipped under ours": (slipped_under, "below the one that the lock makes, is no part"),
    "the order of layers": (swapped, "its layers are in another order"),
    "a layer of the base left out": (left_out, "layer 1 of the base base:1 is not in it"),
    "other bytes under the same name": (other_bytes, "somebody has put another layer in its place"),
    "a file of vLLM taken away": (
        put(f"{SITE}/vllm/.wh.other.py", b""),
        f"/{SITE}/vllm/other.py taken away",
    ),
    "old bytecode that shows again": (
        without(f"{SITE}/vllm/__pycache__/.wh.a.cpython-311.pyc"),
        "a.cpython-311.pyc is there, and the lock hides it",
    ),
    "the mode of a file": (
        marked(f"{SITE}/vllm/a.py", mode=0o4755),
        "vllm/a.py: its mode is 4755 and was 0644",
    ),
    "the mode of a folder": (marked("usr/local", mode=0o777), "/usr/local: has mode 0777"),
    "the owner of a file": (marked(f"{SITE}/vllm/a.py", uid=1000), "vllm/a.py: belongs to 1000:0"),
    "the time of a file": (marked(f"{SITE}/vllm/a.py", mtime=OLD), "vllm/a.py: is of 2017-"),
    "a link for the template": (link_for_template, "is a symbolic link to /srv/theirs"),
    "the patched file": (content(f"{SITE}/vllm/a.py", b"A = 2", b"A = 9"), "vllm/a.py: "),
    "the template": (content(TEMPLATE, b"messages", b"evil"), "small.jinja: "),
    "the receipt": (content(RECEIPT, b"1.0.0", b"1.0.1"), "receipt.json: has another content"),
    "the original": (
        content(f"{SITE}/.vllm-mods/originals/vllm/a.py", b"A = 1", b"A = 7"),
        "originals/vllm/a.py",
    ),
    "the lock": (content(LOCK, b"org/small", b"org/evil!"), "vllm-mods.lock"),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the small pairing; return its layout and its lock."""
    folder = tmp_path_factory.mktemp("made")
    files = {**small_site.FILES, "vllm/_version.py": b"__version__ = '0.19.1'\n"}
    site = small_site.build(folder / "site", files)
    things = {f"{SITE}/{path}": thing for path, thing in from_disk(site).items()}
    below = tar_of({"etc/os-release": b"x", "usr/local": Folder(0o755)})
    settings = {"Env": ["PATH=/usr/local/bin"], "User": "0", "WorkingDir": "/srv"}
    base = Image([below, tar_of(things)], settings, "base:1").layout(folder / "base", "gzip")
    mods = library(folder / "library", "base:1")
    with (mods / f"pairings/{NAME}.toml").open("a") as file:
        file.write('[env]\nGREETING = "hello"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_MODS_CACHE", str(folder / "cache"))
        patch.setenv("VLLM_MODS_LIBRARY", str(mods))
        assert run(["lock", NAME, "--base", f"oci:{base}"]) == 0
        place = f"oci:{folder}/image"
        assert run(["build", NAME, "--base", f"oci:{base}", "--output", place]) == 0
    return folder / "image", mods / f"pairings/{NAME}.lock"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("locked", [True, False], ids=["with the lock", "without"])
def test_what_nobody_has_changed_passes(
    made: tuple[Path, Path], capfd: pytest.CaptureFixture[str], *, locked: bool
) -> None:
    image, lock = made
    code = run(["image", "verify", f"oci:{image}", *(["--lock", str(lock)] if locked else [])])
    assert code == 0, capfd.readouterr()


@pytest.mark.sampled(40)
@pytest.mark.parametrize("locked", [True, False], ids=["with the lock", "without"])
@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_image_is_found_out(
    made: tuple[Path, Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    name: str,
    *,
    locked: bool,
) -> None:
    tamper, said = TAMPERED[name]
    image = opened(made[0])
    tamper(image)
    reference = image.write(tmp_path / "tampered")
    capfd.readouterr()
    code = run(["image", "verify", reference, *(["--lock", str(made[1])] if locked else [])])
    out, err = capfd.readouterr()
    assert code, out
    assert said in out + err


def test_an_honest_image_of_another_lock_is_not_this_ones(
    made: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    raw = json.loads(made[1].read_bytes())
    raw["revision"] = "another"
    other = tmp_path / "other.lock"
    other.write_text(json.dumps(raw))
    assert run(["image", "verify", f"oci:{made[0]}", "--lock", str(other)]) == 1
    assert f"revision is not there in the image and another in {other}" in capfd.readouterr().out
