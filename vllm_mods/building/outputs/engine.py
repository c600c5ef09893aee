"""Into the local engine that has the base: the new layer alone is handed over."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable

from vllm_mods.base.errors import Refused, TreeError
from vllm_mods.building import archive
from vllm_mods.building.oci import BuiltImage
from vllm_mods.images import names

# What opens an image store, by the place that a base lies in.
PROGRAMS = {"docker": "docker", "containerd": "docker", "podman": "podman", "buildah": "buildah"}
_DOCKER = "docker"
TagLookup = Callable[[], str | None]
"""Waits for what ``tagged`` answers."""
_ID = re.compile("[0-9a-f]{64}")
_WHOSE = {
    "docker": ["image", "inspect", "--format", "{{.Id}}"],
    "podman": ["image", "inspect", "--format", "{{.Id}}"],
    "buildah": ["inspect", "--type", "image", "--format", "{{.FromImageID}}"],
}


def tagged(where: str, tag: str) -> str | None:
    """Ask the engine ``where`` a base lies for the ID of what a tag names, None if it names nothing.

    Raises ``TreeError``.
    """
    program = PROGRAMS[where]
    done = _run([program, *_WHOSE[program], _named(program, tag)])
    if done.returncode:
        said = _words(done.stderr)
        if any(words in said.lower() for words in ("no such", "not known", "not found")):
            return None
        raise _failed(program, said)
    found = _words(done.stdout)
    return found if ":" in found else f"sha256:{found}"


def write(image: BuiltImage, where: str, tag: str, asked: TagLookup) -> str:
    """Load an image under a tag into the engine ``where`` its base lies, and return its ID.

    ``asked`` is what looks the tag up. Raises ``Refused`` for a tag that names another image, for a base that is gone by now and where
    the engine takes an image only by a manifest that nobody has, ``TreeError`` for an engine that
    fails. The tag is then as it was.
    """
    program = PROGRAMS[where]
    if image.manifest is None and where != _DOCKER:
        raise Refused(
            f"{where} wants to be told how a registry names the base's layers, and does not know "
            "it itself; nothing was built",
            hint=f"--base registry:REF --output oci:DIR, then `{program} pull oci:DIR`",
        )
    ours = {image.config_digest, image.manifest_digest}
    there = asked()
    name = _named(program, tag)
    if there is not None and there not in ours:
        raise moved(name, there, image.config_digest)
    if there is None:
        there = _load(program, archive.thin(image, name), name) or tagged(where, tag)
        if there is None or there not in ours:
            raise TreeError(
                f"{program} took the image for {there or 'nothing'}, and it is "
                f"{image.config_digest}",
                hint=f"{program} rmi {name}  # then run the command again, or with `--output oci:DIR`",
            )
    return there


def moved(tag: str, there: str, ours: str) -> Refused:
    """Say that a tag is taken by another image."""
    return Refused(
        f"{tag} is {there} already, and what was built is {ours}: a tag is not moved; nothing was "
        "changed",
        hint="--tag another-name:tag, or remove the old image first",
    )


def _load(program: str, data: bytes, tag: str) -> str | None:
    """Hand an archive over, and return the ID that the engine says it has, if it says one."""
    if program == _DOCKER:
        done = _run([program, "load", "--quiet"], data)
    else:
        # Only from a file do they know that the base's layers need not be in it.
        with tempfile.TemporaryDirectory(prefix="vllm-mods-") as folder:
            place = os.path.join(folder, "image.tar")
            with open(place, "wb") as file:
                file.write(data)
            done = _run([program, "pull", "--quiet", f"oci-archive:{place}"])
    if done.returncode == 0:
        words = _words(done.stdout).split()
        return f"sha256:{words[-1]}" if words and _ID.fullmatch(words[-1]) else None
    said = _words(done.stderr)
    if program == _DOCKER and ("no such file" in said or "does not exist" in said):
        raise Refused(
            f"{tag}: docker no longer has every layer of the base ({said}); no tag was moved",
            hint="pull or build the base again, then run the command again",
        )
    raise _failed(program, said)


def _run(command: list[str], data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, input=data, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise TreeError(f"{command[0]} is not installed here", hint="--output oci:DIR") from error


def _words(said: bytes) -> str:
    return said.decode("utf-8", "replace").strip()


def _failed(program: str, said: str) -> TreeError:
    return TreeError(
        f"{program} failed: {said or 'without a word'}; no tag was moved", hint=f"{program} info"
    )


def _named(program: str, ref: str) -> str:
    """Return a name as an engine gives it to what was built here."""
    return ref if program == _DOCKER or names.has_host(ref) else f"localhost/{ref}"
