"""Python packages that a mod needs: chosen when a pairing is locked, unpacked when it is built.

pip chooses and fetches, with its own settings (index, proxy, certificates), for the image's Python
and platform and not for the ones it runs on. Nothing is ever installed: a wheel is unpacked into the
layer as an installer would, and only one whose sha256 the lock has.
"""

import contextlib
import io
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from vllm_mods.base import limits
from vllm_mods.base.cache import Cache, cache_folder
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, TreeError
from vllm_mods.building.tarball import TarEntry
from vllm_mods.formats import record, tree_names
from vllm_mods.formats.pairing_lock import LockedWheel
from vllm_mods.trees import packages, pip
from vllm_mods.trees.archive import ZipArchive

_PYTHON = re.compile(r"/python(3)\.(\d+)(?:/|\Z)")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le", "s390x": "s390x"}
_INSTALLER = b"vllm-mods\n"


class WheelTarget(NamedTuple):
    """The Python that wheels are for: ``python`` as ``3.12``, ``machine`` as ``uname -m`` says it.

    ``installed`` are the versions of what is there already, by canonical name.
    """

    python: str
    machine: str
    installed: Mapping[str, str]


def target(site_root: str, platform: str, folders: Iterable[str]) -> WheelTarget:
    """Return the target of an image: site root, ``os/architecture``, names of its dist-infos.

    Raises ``Refused`` where the site root does not say which Python it belongs to.
    """
    match = _PYTHON.search(f"/{site_root}")
    machine = _MACHINES.get(platform.split("/")[1])
    if match is None or machine is None:
        why = f"/{site_root} on {platform}: a mod needs wheels, but the Python or the platform for them is unknown"
        hint = "install the mod's requirements in the base, then lock the pairing again"
        raise Refused(why, hint=hint)
    distributions = tree_names.dist_infos(folders).values()
    installed = {str(canonicalize_name(name)): version for name, version in distributions}
    return WheelTarget(python=f"{match[1]}.{match[2]}", machine=machine, installed=installed)


def resolve(requirements: Iterable[str], wanted: WheelTarget) -> tuple[LockedWheel, ...]:
    """Choose a wheel for each requirement that the image does not meet yet, sorted by name.

    What a chosen wheel itself requires has to be in the image or among ``requirements``: a base for
    vLLM has its torch, and no other one may come in beside it. Raises ``Refused`` where that is not
    so or another version is installed, ``TreeError`` if pip finds none.
    """
    asked = [_requirement(text) for text in dict.fromkeys(requirements)]
    missing = [one for one in asked if _is_missing(one, wanted)]
    if not missing:
        return ()
    locked, needs = [], {}
    for filename, data in _downloaded([str(one) for one in missing], wanted):
        name, version, _build, _tags = parse_wheel_filename(filename)
        locked.append(LockedWheel(name, str(version), filename, sha256(data)))
        needs[filename] = _needs(filename, data, wanted)
    chosen = {str(canonicalize_name(one.name)): one.version for one in locked}
    complete = wanted._replace(installed={**wanted.installed, **chosen})
    for filename, others in needs.items():
        if lacking := [str(one) for one in others if _is_missing(one, complete)]:
            why = f"{filename} needs {', '.join(lacking)}, which neither the base nor the mod provides; nothing was built"
            hint = "use a base that has them, or add them to `python` in the mod's mod.toml"
            raise Refused(why, hint=hint)
    return tuple(sorted(locked))


def fetch(wheel: LockedWheel, wanted: WheelTarget) -> bytes:
    """Return a locked wheel, out of the cache or from pip's index, its sha256 checked."""
    cached = Cache(cache_folder(os.environ)).get(wheel.sha256)
    if cached is not None:
        return cached
    asked = f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}"
    downloaded = dict(_downloaded([asked], wanted))
    data = downloaded.get(wheel.filename)
    if data is None:
        why = f"{wheel.filename} is no longer in the index, which has {', '.join(downloaded)}"
        raise TreeError(why, hint="vllm-mods lock PAIRING --check")
    if sha256(data) != wheel.sha256:
        why = f"{wheel.filename}: its sha256 is {sha256(data)}, but the lock says {wheel.sha256}"
        raise TreeError(why, hint=pip.SETTINGS)
    return data


def unpack(data: bytes, wheel: LockedWheel, site_root: str, *, epoch: int) -> tuple[TarEntry, ...]:
    """Return the files that installing a wheel leaves, RECORD and INSTALLER among them.

    Raises ``Refused`` for a wheel that would put files outside the site root.
    """
    files: dict[str, tuple[bytes, int]] = {}
    archive = ZipArchive(io.BytesIO(data), label=wheel.filename)
    if sum(info.file_size for info in archive.infos.values()) > limits.WHEEL:
        why = f"{wheel.filename}: it unpacks to more than {limits.WHEEL}"
        raise TreeError(why, hint=pip.SETTINGS)
    for name, info in archive.infos.items():
        path = _place(name, wheel)
        if path in files:
            raise Refused(f"{wheel.filename} has two files for {path}; nothing was built")
        is_program = (info.external_attr >> 16) & stat.S_IXUSR
        files[path] = (archive.read(name, most=limits.WHEEL) or b"", 0o755 if is_program else 0o644)
    recorded = [path for path in files if re.fullmatch(r"[^/]+\.dist-info/RECORD", path)]
    if len(recorded) != 1:
        raise Refused(f"{wheel.filename} has {len(recorded)} RECORD files; a wheel has exactly one")
    folder = recorded[0].rpartition("/")[0]
    own, mode = files[recorded[0]]
    files[f"{folder}/INSTALLER"] = (_INSTALLER, 0o644)
    added = {f"{folder}/INSTALLER": (sha256(_INSTALLER), len(_INSTALLER))}
    files[recorded[0]] = (record.edit(own, added), mode)
    rows = sorted(files.items())
    return tuple(TarEntry(f"{site_root}/{path}", blob, mode, epoch) for path, (blob, mode) in rows)


def _requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise Refused(f"{text!r} is not a requirement (PEP 508): {error}") from error


def _is_missing(requirement: Requirement, wanted: WheelTarget) -> bool:
    environment = packages.markers(wanted.python, wanted.machine)
    if requirement.marker is not None and not requirement.marker.evaluate(environment):
        return False
    installed = wanted.installed.get(canonicalize_name(requirement.name))
    if installed is None:
        return True
    if requirement.specifier.contains(installed, prereleases=True):
        return False
    why = f"the mod needs {requirement}, but the base has {requirement.name} {installed}; nothing was built"
    hint = f"use a base with {requirement}: `RUN pip install '{requirement}'` in its Dockerfile"
    raise Refused(why, hint=hint)


def _needs(filename: str, data: bytes, wanted: WheelTarget) -> list[Requirement]:
    archive = ZipArchive(io.BytesIO(data), label=filename)
    metadata = (name for name in archive.names if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
    data = archive.read(next(metadata, "")) or b""
    return packages.needs(data, packages.markers(wanted.python, wanted.machine))


def _downloaded(requirements: list[str], wanted: WheelTarget) -> Iterator[tuple[str, bytes]]:
    """Yield wheels, those named and no others, by their filenames; they are kept, so that building needs no network."""
    minor = wanted.python.partition(".")[2]
    words = ["--python-version", wanted.python, "--implementation", "cp"]
    words += [f"--abi={abi}" for abi in (f"cp3{minor}", "abi3", "none")]
    # glibc 2.35 and older: vLLM's images have that (Ubuntu 22.04) or a newer one
    platforms = [f"manylinux_2_{n}_{wanted.machine}" for n in range(35, 16, -1)]
    words += [f"--platform={one}" for one in (*platforms, f"linux_{wanted.machine}", "any")]
    names = ", ".join(line.split(" --")[0] for line in requirements)
    what = f"{names} for Python {wanted.python} on {wanted.machine}"
    with tempfile.TemporaryDirectory(prefix="vllm-mods-") as folder:
        pip.run(
            "download", *words, "--dest", folder, "-r", "/dev/stdin", what=what,
            requirements="".join(f"{line}\n" for line in requirements),
        )  # fmt: skip
        for filename in sorted(os.listdir(folder)):
            with open(os.path.join(folder, filename), "rb") as file:
                data = file.read()
            with contextlib.suppress(OSError):
                Cache(cache_folder(os.environ)).put(data)
            yield filename, data


def _place(name: str, wheel: LockedWheel) -> str:
    """Return where a file of a wheel goes, from the site root."""
    top, _, rest = name.partition("/")
    scheme, _, inside = rest.partition("/")
    known = not top.endswith(".data") or scheme in {"purelib", "platlib"}
    place = inside if top.endswith(".data") else name
    if known and place:
        return place
    why = f"{wheel.filename} contains {name}, which belongs outside site-packages; vllm-mods does not install such a wheel"
    hint = f"use a base image that has the package: `RUN pip install {wheel.name}=={wheel.version}` in its Dockerfile"
    raise Refused(why, hint=hint)
