"""Images and containers of a docker engine, read through its API.

docker's own client library is used: it knows contexts, DOCKER_HOST, ssh and TLS, so that the engine is the one that
`docker` itself would talk to. Files come out of a container that is made for that, never started, and removed.
"""

import base64
import contextlib
import json
import math
import os
import posixpath
import re
import tarfile
import weakref
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any, BinaryIO, cast

import docker.errors
import requests
import urllib3
from docker.api.client import APIClient
from docker.context import ContextAPI
from docker.utils import kwargs_from_env

from vllm_mods.base import limits
from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import TreeError, UsageError, VllmModsError
from vllm_mods.base.sessions import reason
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats import tars
from vllm_mods.images import oci, streams
from vllm_mods.images.layout import open_blob
from vllm_mods.images.model import DIR, FILE, LINK, Base, Descriptor, ImageEntry

LABEL = "vllm-mods.reading"
"""On every container that is made here: `docker ps -aq --filter label=vllm-mods.reading`."""
_AGAIN = "try again; `docker version` shows whether the engine works"
# What is kept of a listing, so that a search in vllm/ does not cost a request for each file.
_LARGEST_KEPT = 1 << 20
_KEPT = re.compile(r"\.(?:pyi?|pth|jinja|json)\Z|\.dist-info/|/\.vllm-mods/")
_LARGEST_PASSED = 8 << 20  # less than what another request costs; libraries of vLLM's are larger
# What is read as one stream: vLLM if it has no large library, else each package in it; metadata; a receipt with all it needs.
_PACKAGE = re.compile(r"(?s).*-packages/(?:vllm(?:/[^/]+)?|[^/]+\.dist-info|\.vllm-mods)(?=/|\Z)")
# os.ModeDir of Go, in which the engine is written, its links, and all that is no file
_GO_FOLDER, _GO_LINK, _GO_OTHERS = 1 << 31, 1 << 27, 0b1111 << 24
_NO_OWNER = -1
_ROOT = ImageEntry("", DIR, 0o755, _NO_OWNER, 0, 0)
_RECORDS, _FORMAT, _DAYS = "engine-images", "2", 90


def connect() -> APIClient:
    """Return a client of the engine that ``docker`` would talk to. Raises ``TreeError``."""
    where: dict[str, Any] = {}
    try:
        read = kwargs_from_env if os.environ.get("DOCKER_HOST") else ContextAPI.kwargs_from_context
        where, most = read(), limits.ENGINE_SECONDS
        return APIClient(version="auto", use_ssh_client=True, timeout=most, **where)
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        place = where.get("base_url") or "its default socket"
        why = f"no docker engine responds at {place}: {reason(error)}"
        raise TreeError(why, hint="docker version") from error


class EngineImage(Base):
    """An image of the engine; with ``container``, the files of a container, running or not, as they are now.

    ``_url``, where files are asked for, is made with the first of them. There is what the engine puts into each
    container: ``.dockerenv``, ``etc/hosts`` and its like, ``dev``.
    """

    def __init__(
        self, client: APIClient, name: str, cache: Cache, *, reference: str, container: bool
    ) -> None:
        self.reference = reference
        self._client = client
        self._cache = cache
        self._image: tuple[str, ...] = ()
        self._entries: dict[str, ImageEntry | None] = {"": _ROOT}
        self._contents: dict[str, bytes] = {}
        self._listed: set[str] = set()
        self._begun: set[str] = set()
        self._read: set[str] = set()
        self._unsure = False
        self._kept: dict[str, str] = {}
        self._read_from, image = "", name
        with _asking(reference):
            try:
                if container:
                    state = client.inspect_container(name)
                    self._read_from, image = state["Id"], state["Image"]
                self._inspected: dict[str, Any] = client.inspect_image(image)
                driver = (self._inspected.get("GraphDriver") or {}).get("Name")
                info = {} if driver == "overlay2" else client.info()
            except docker.errors.NotFound as error:
                why = f"{reference}: the docker engine here has no {'container' if container else 'image'} {name}"
                hint = "docker ps -a" if container else f"docker pull {name}"
                raise UsageError(why, hint=hint) from error
        # of docker's two image stores: containerd's, or a graph driver
        stores = str(info.get("DriverStatus"))
        self.where = "containerd" if "io.containerd.snapshotter" in stores else "docker"
        self.diff_ids = tuple((self._inspected.get("RootFS") or {}).get("Layers") or ())
        self.config_digest = self._inspected["Id"]
        self.config = rebuilt(self._inspected)
        if self.where == "containerd":
            self._read_content_store(info.get("DockerRootDir") or "/var/lib/docker")
        labels = (self._inspected.get("Config") or {}).get("Labels") or {}
        # What was built here is verified: it is read itself each time, as a container is.
        if not container and "vllm-mods.lock" not in labels:
            self._remember(self._inspected["Id"], *self.diff_ids)
        self._remove: weakref.finalize[Any, Any] | None = None

    def close(self) -> None:
        """Remove the container that was made to read from, and end the connection."""
        with contextlib.closing(self._client):
            try:
                self._finish()
            finally:
                if self._remove is not None:
                    self._remove()

    @cached_property
    def _url(self) -> str:
        client, identity = self._client, self._read_from
        if not identity:
            with _asking(self.reference):
                # By its ID: the name may point elsewhere by now. The command is never run.
                identity = client.create_container(
                    self._inspected["Id"], ["-"], labels={LABEL: "1"}, network_disabled=True
                )["Id"]
            self._remove = weakref.finalize(self, _remove, client, identity)
        return f"{client.base_url}/v{client.api_version}/containers/{identity}/archive"

    def _read_content_store(self, root: str) -> None:
        """Read manifest and configuration where containerd keeps blobs: the API hands out neither.

        They stay unknown if the engine is on another machine, or its files may not be read.
        """
        stated = self._inspected.get("Descriptor") or {}
        top = Descriptor("", stated.get("digest") or self._inspected["Id"], -1)
        self.manifest_digest = top.digest
        for place in (f"{root}/containerd/daemon", "/var/lib/containerd"):
            store = partial(open_blob, f"{place}/io.containerd.content.v1.content")
            try:
                data, picked = oci.pick(store, top, self.reference, oci.Choice())
                config, layers, self.config = oci.read_manifest(store, data, self.reference)
            except VllmModsError:
                continue  # Not there, or not to be read by us: the API's values have to do.
            self.manifest, self.manifest_digest, self.layers = data, picked.digest, layers
            self.config_digest = config.digest
            self.diff_ids = oci.diff_ids(self.config, self.reference)
            return

    def entry(self, path: str) -> ImageEntry | None:
        """Return what lies at a path. Links on the way are not followed, though the engine would."""
        for read in (self._read_package, self._stream):
            known = self._entries.get(path, _ROOT)
            if known is not None and known.uid == _NO_OWNER and self._may_be(path):
                read(path)
        return self._entries.get(path)

    def look(self, path: str) -> ImageEntry | None:
        """Return the entry of a path, of a file or a folder without its owner, and of a link where it ends."""
        if path not in self._entries and self._may_be(path):
            self._read_package(path)
            if path not in self._entries:
                self._entries[path] = self._stat(path)
        return self._entries.get(path)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file."""
        entry = self.entry(path)
        if entry is None or entry.kind != FILE:
            return None
        if path in self._kept and (data := self._cache.get(self._kept[path])) is not None:
            return data
        self._read.add(path)
        if path not in self._contents:
            self._read_package(path)
        if path not in self._contents:
            self._stream(path, content=True)
        return self._contents.get(path)

    def _remember(self, *image: str) -> None:
        """Begin with what ``_finish`` has kept of an image, which never changes."""
        self._image = image
        try:
            kept = json_of(self._cache.lookup(_RECORDS, _FORMAT, *image) or b"null")
            entries = {path: row and ImageEntry(*row) for path, row in kept["entries"].items()}
            self._listed, self._kept = set(kept["listed"]), {**kept["read"]}
            self._entries |= entries
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # Of another version, or cut short.

    def _finish(self) -> None:
        """Keep what is known of an image, if the engine was asked for anything, and the files that were read.

        Raises ``TreeError`` if the container is gone: the engine says of anything in it that it is not there, too.
        """
        if self._unsure and self._stat("") is None:
            why = "the container was removed while it was being read"
            raise TreeError(f"{self.reference}: {why}", hint=_AGAIN)
        if self._image and "_url" in vars(self):
            for path in self._read & self._contents.keys():
                self._kept[path] = self._cache.put(self._contents[path])
            record = {"entries": self._entries, "listed": sorted(self._listed), "read": self._kept}
            self._cache.sweep(_RECORDS, _DAYS)
            self._cache.record(_RECORDS, _FORMAT, *self._image, data=json.dumps(record).encode())

    def paths(self, under: str) -> Iterator[ImageEntry]:
        """Return everything below a folder. The engine sends the contents along."""
        if self._is_folder(under) and under not in self._listed:
            self._stream(under, math.inf)
        top = f"{under}/" if under else ""
        for path, entry in [*self._entries.items()]:
            if entry is not None and path and path.startswith(top):
                yield entry

    def _is_folder(self, path: str) -> bool:
        looked = self.look(path)
        return looked is not None and looked.kind == DIR

    def _may_be(self, path: str) -> bool:
        """Tell whether something may lie at a path, as far as that is known of what it lies in."""
        folder = posixpath.dirname(path)
        return not path or (self._is_folder(folder) and folder not in self._listed)

    def _read_package(self, path: str) -> None:
        """Read what a path lies in as one stream, once. Each request for files costs as much as some MB."""
        package = _PACKAGE.match(path)
        if package and package[0] not in self._begun:
            self._begun.add(package[0])
            self._stream(package[0], _LARGEST_PASSED)

    def _stream(self, under: str, most: float = 100, *, content: bool = False) -> None:
        """Read a path, and of a folder what is in it, up to a file of more than ``most`` bytes, or as many entries."""
        what = f"{self.reference}: /{under}"
        with self._ask("GET", under) as response:
            if self._unsure:
                self._entries[under] = None
                return
            if response.status_code != requests.codes.ok:
                why = f"the engine answered {response.status_code}: {_error_text(response)}"
                raise TreeError(f"{what}: {why}", hint=_AGAIN)
            with streams.reading(what, _AGAIN), _asking(self.reference):
                file = cast("BinaryIO", streams.Forward(response.raw))
                with tarfile.open(fileobj=file, mode="r|", tarinfo=tars.Info) as archive:
                    self._take(archive, under, most, content=content)

    def _take(self, archive: tarfile.TarFile, under: str, most: float, *, content: bool) -> None:
        entries: dict[str, ImageEntry] = {}
        for member in archive:
            if entries and max(member.size, len(entries)) > most:
                break
            # Its first component is the path itself.
            path = posixpath.join(under, member.name.strip("/").partition("/")[2]).rstrip("/")
            first = member.islnk() and posixpath.join(under, member.linkname.partition("/")[2])
            entries[path] = streams.entry(member, path, entries.get(first) if first else None)
            is_kept = member.size <= _LARGEST_KEPT and (path == under or _KEPT.search(path))
            if member.isreg() and (content or is_kept):
                self._contents[path] = streams.content(archive, member)
        else:
            self._listed |= {path for path, one in entries.items() if one.kind == DIR}
        if not entries or (under and under not in entries):
            raise TreeError(f"{self.reference}: the engine sent nothing for /{under}", hint=_AGAIN)
        self._entries |= entries

    def _stat(self, path: str) -> ImageEntry | None:
        """Ask for what lies at a path, without its owner."""
        with self._ask("HEAD", path) as response:
            if self._unsure:
                return None
        stat = response.headers.get("X-Docker-Container-Path-Stat", "")
        try:
            about = json_of(base64.b64decode(stat))
            mode, target = int(about["mode"]), str(about.get("linkTarget") or "")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            why = f"{self.reference}: /{path}: the engine answered {response.status_code} without a valid X-Docker-Container-Path-Stat"
            raise TreeError(why, hint=_AGAIN) from error
        kind = DIR if mode & _GO_FOLDER else LINK if mode & _GO_LINK and target else FILE
        if kind == FILE and mode & _GO_OTHERS:
            self._stream(path)
            return self._entries[path]
        return ImageEntry(path, kind, mode & 0o777, _NO_OWNER, 0, 0, target if kind == LINK else "")

    def _ask(self, verb: str, path: str) -> requests.Response:
        with _asking(self.reference):
            response: requests.Response = self._client.request(
                verb,
                self._url,
                params={"path": f"/{path}"},
                headers={"Accept-Encoding": "identity"},  # packing would cost more than it saves
                stream=True,
                timeout=self._client.timeout,
            )
        self._unsure = response.status_code == requests.codes.not_found
        return response


def rebuilt(inspected: dict[str, Any]) -> bytes:
    """Return an image's configuration from what ``docker inspect`` tells, as canonical JSON."""
    inner = inspected.get("Config") or {}
    keys = ("Architecture", "Os", "Variant", "Author", "Created")
    config: dict[str, Any] = {key.lower(): inspected[key] for key in keys if inspected.get(key)}
    if settings := {key: inner[key] for key in (*oci.SETTINGS, "ArgsEscaped") if inner.get(key)}:
        config["config"] = settings
    layers = (inspected.get("RootFS") or {}).get("Layers") or []
    config["rootfs"] = {"type": "layers", "diff_ids": layers}
    return json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def open_image(name: str, cache: Cache, *, reference: str, container: bool = False) -> EngineImage:
    """Open an image of the local engine, of which the cache may know much, or a container. Raises ``UsageError`` if it has none of that name."""
    client = connect()
    try:
        return EngineImage(client, name, cache, reference=reference, container=container)
    except BaseException:
        client.close()
        raise


def _remove(client: APIClient, identity: str) -> None:
    # With its volumes: an image that declares some gets them with the container.
    try:
        client.remove_container(identity, v=True, force=True)
    except docker.errors.NotFound:
        return
    except (docker.errors.APIError, requests.exceptions.RequestException) as error:
        short, cause = identity[:12], reason(error)
        why = f"the container {short}, whose files were read, could not be removed: {cause}"
        raise TreeError(why, hint=f"docker rm -v {short}") from error


@contextlib.contextmanager
def _asking(what: str) -> Iterator[None]:
    """Raise ``TreeError`` where the engine does not answer, or breaks off."""
    try:
        yield
    except docker.errors.APIError as error:
        words = error.explanation or str(error)
        raise TreeError(f"{what}: the engine refused: {words}", hint=_AGAIN) from error
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
        why = f"{what}: the engine stopped in the middle: {reason(error)}"
        raise TreeError(why, hint=_AGAIN) from error


def _error_text(response: requests.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, LookupError, TypeError):
        return response.reason or ""
