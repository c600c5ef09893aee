"""Into the local engine that has the base: the new layer alone is handed over, some ten kilobytes."""

import os
import re
import tempfile

from vllm_mods.base import limits
from vllm_mods.base.errors import Refused, TreeError
from vllm_mods.building import oci, tarball
from vllm_mods.images import engine_command, names
from vllm_mods.images.model import digest_of

_ID = re.compile("[0-9a-f]{64}")


def _tagged(program: str, name: str) -> str | None:
    """Ask an engine for the ID of what a name stands for, None if it is nothing."""
    done = engine_command.run(program, "image", "inspect", "--format", "{{.Id}}", name)
    if done.is_absent:
        return None
    if done.code:
        raise _failed(program, done)
    return done.out if ":" in done.out else f"sha256:{done.out}"


def write(image: oci.BuiltImage, where: str, tag: str) -> None:
    """Load an image under a tag into the engine ``where`` its base lies.

    Raises ``Refused`` for a tag that names another image, for a base that is gone by now and where the engine takes an
    image only by a manifest that nobody has, ``TreeError`` for an engine that fails. The tag is then as it was.
    """
    program = engine_command.STORES[where]
    if image.manifest is None and where != engine_command.DOCKER:
        why = f"{where} does not have the registry digests of the base's layers, and cannot add a layer without them; nothing was built"
        hint = f"--base registry:REF --output oci:DIR, then `{program} pull oci:DIR`"
        raise Refused(why, hint=hint)
    ours = {image.config_digest, image.manifest_digest}
    # as the engine names what was built here
    name = tag if program == engine_command.DOCKER or names.has_host(tag) else f"localhost/{tag}"
    current = _tagged(program, name)
    if current is not None and current not in ours:
        raise tag_refusal(name, current, image.config_digest)
    if current is None:
        current = _load(program, thin(image, name), name) or _tagged(program, name)
        if current is None or current not in ours:
            why = f"{program} loaded the image as {current or 'nothing'}, but its ID should be {image.config_digest}"
            hint = f"{program} rmi {name}  # then run the command again, or with `--output oci:DIR`"
            raise TreeError(why, hint=hint)


def thin(image: oci.BuiltImage, ref: str) -> bytes:
    """Return an image as one tar without the base's layers, an OCI layout and a docker archive at once."""
    digest, layer = image.layer_blob
    # docker asks for the path of a layer only if it lacks the layer.
    layers = [*map(oci.blob_path, image.diff_ids[:-1]), oci.blob_path(digest)]
    files = {
        "manifest.json": oci.docker_manifest(image, ref, layers),
        oci.blob_path(image.config_digest): image.config,
        oci.blob_path(digest): layer,
    }
    if image.manifest is not None:
        files |= {
            "oci-layout": oci.LAYOUT,
            "index.json": oci.index(image.manifest, ref),
            oci.blob_path(digest_of(image.manifest)): image.manifest,
        }
    entries = [tarball.TarEntry(path, None, 0o755) for path in ("blobs", "blobs/sha256")]
    entries += [tarball.TarEntry(path, data, 0o644) for path, data in files.items()]
    return tarball.write(sorted(entries, key=lambda entry: entry.path))


def tag_refusal(
    tag: str, current: str, ours: str, other: str = "--tag another-name:tag"
) -> Refused:
    """Return the error of a tag that another image has."""
    return Refused(
        f"{tag} already names {current}, but the new image is {ours}: vllm-mods does not move a tag; nothing was changed",
        hint=f"{other}, or remove the old image first",
    )


def _load(program: str, data: bytes, tag: str) -> str | None:
    """Hand an archive over, and return the ID that the engine says it has, if it says one."""
    most = limits.DOWNLOAD_SECONDS
    if program == engine_command.DOCKER:
        done = engine_command.run(program, "load", "--quiet", given=data, within=most)
    else:
        # Only from a file does it know that the base's layers need not be in it.
        with tempfile.TemporaryDirectory(prefix="vllm-mods-") as folder:
            place = os.path.join(folder, "image.tar")
            with open(place, "wb") as file:
                file.write(data)
            archive = f"oci-archive:{place}"
            done = engine_command.run(program, "pull", "--quiet", archive, within=most)
    if done.code == 0:
        words = done.out.split()
        return f"sha256:{words[-1]}" if words and _ID.fullmatch(words[-1]) else None
    gone = ("no such file", "does not exist")
    if program == engine_command.DOCKER and any(word in done.errors for word in gone):
        why = (
            f"{tag}: docker no longer has every layer of the base ({done.errors}); no tag was moved"
        )
        raise Refused(why, hint="pull or build the base again, then run the command again")
    raise _failed(program, done)


def _failed(program: str, done: engine_command.EngineOutcome) -> TreeError:
    error = engine_command.failure(program, "load", done)
    return TreeError(f"{error.message}; no tag was moved", hint=error.hint)
