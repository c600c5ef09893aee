"""Images and containers of a docker engine, read through its API.

docker's own client library is used: it knows contexts, DOCKER_HOST, ssh and TLS, so that the engine
is the one that `docker` itself would talk to. Files come out of a container that is made for that,
never started, and removed.
"""

import base64
import contextlib
import json
import math
import os
import posixpath
import tarfile
import weakref
from collections.abc import Iterator
from functools import cached_property
from typing import Any, BinaryIO, cast

import docker.errors
import requests
import urllib3
from docker.api.client import APIClient
from docker.context import ContextAPI
from docker.utils import kwargs_from_env

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError, VllmModsError
from vllm_mods.formats import tars
from vllm_mods.images import oci, streams
from vllm_mods.images.layout import LayoutFolder
from vllm_mods.images.model import DIR, FILE, OTHER, Descriptor, ImageEntry, Opened
from vllm_mods.images.oci import SETTINGS

LABEL = "vllm-mods.reading"
"""On every container that is made here: `docker ps -aq --filter label=vllm-mods.reading`."""

# What is kept of a listing, so that a search in vllm/ does not cost a request for each file.
_LARGEST_KEPT = 1 << 20
_KEPT = (".py", ".pyi", ".pth", ".jinja", ".json")
_LARGEST_PASSED = 8 << 20  # less than what another request costs; libraries of vLLM's are larger
# os.ModeDir of Go, in which the engine is written, and its links, devices, pipes and sockets
_GO_FOLDER, _GO_OTHERS = 1 << 31, 0b1111 << 24


def connect() -> APIClient:
    """Return a client of the engine that ``docker`` would talk to. Raises ``TreeError``."""
    where: dict[str, Any] = {}
    try:
        if os.environ.get("DOCKER_HOST"):
            where = kwargs_from_env()
        else:
            where = ContextAPI.kwargs_from_context()
        return APIClient(
            version="auto", use_ssh_client=True, timeout=limits.ENGINE_SECONDS, **where
        )
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        place = where.get("base_url") or "its default socket"
        raise TreeError(
            f"no docker engine responds at {place}: {_reason(error)}", hint="docker version"
        ) from error


class Container:
    """The files of a container, running or not.

    It has what the engine puts into each: ``.dockerenv``, ``etc/hosts`` and its like, ``dev``.
    """

    def __init__(self, client: APIClient, identity: str, what: str) -> None:
        self._client = client
        self._url = f"{client.base_url}/v{client.api_version}/containers/{identity}/archive"
        self._what = what
        self._entries: dict[str, ImageEntry | None] = {}
        self._looked: dict[str, ImageEntry | None] = {"": ImageEntry("", DIR, 0o755, 0, 0, 0)}
        self._contents: dict[str, bytes] = {}
        self._listed: set[str] = set()
        self._begun: set[str] = set()
        self._unsure = False

    def entry(self, path: str) -> ImageEntry | None:
        """Return what lies at a path. Links on the way are not followed, though the engine would."""
        if path not in self._entries:
            self._read_package(path)
        if path not in self._entries:
            folder = posixpath.dirname(path)
            may_be = self._is_folder(folder) and not self._is_listed(folder)
            self._entries[path] = self._fetch(path) if may_be else None
        return self._entries[path]

    def look(self, path: str) -> ImageEntry | None:
        """Return the entry of a path, of a file or a folder without its owner."""
        looked = self._look(path)
        return self.entry(path) if looked is not None and looked.kind == OTHER else looked

    def _look(self, path: str) -> ImageEntry | None:
        if path in self._entries:
            return self._entries[path]
        if path not in self._looked:
            folder = posixpath.dirname(path)
            may_be = self._is_folder(folder) and not self._is_listed(folder)
            if (mode := self._mode(path) if may_be else None) is None:
                self._looked[path] = None
            else:
                kind = DIR if mode & _GO_FOLDER else OTHER if mode & _GO_OTHERS else FILE
                self._looked[path] = ImageEntry(path, kind, mode & 0o777, 0, 0, 0)
        return self._looked[path]

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file."""
        entry = self.entry(path)
        if entry is None or entry.kind != FILE:
            return None
        if path not in self._contents:
            self._fetch(path, content=True)
        return self._contents.get(path)

    def paths(self, under: str) -> Iterator[ImageEntry]:
        """Return everything below a folder. The engine sends the contents along."""
        if not self._is_folder(under):
            return
        if not self._is_listed(under):
            self._list(under)
            self._listed.add(under)
        top = f"{under}/" if under else ""
        for path, entry in self._entries.items():
            if entry is not None and path and path.startswith(top):
                yield entry

    def _is_folder(self, path: str) -> bool:
        looked = self._look(path)
        return looked is not None and looked.kind == DIR

    def _read_package(self, path: str) -> None:
        """Read what a path lies in as one stream: a package of vLLM's, metadata. Each request for files costs as much as some MB."""
        site, _, below = path.rpartition("-packages/")
        top, *inner = below.split("/")
        package = f"{site}-packages/{top}"
        if inner[1:] and top == "vllm":
            package = f"{package}/{inner[0]}"
        is_one = top == "vllm" or (top.endswith(".dist-info") and inner)
        is_new = package not in self._begun and not self._is_listed(package)
        if site and is_one and is_new and self._is_folder(package):
            self._begun.add(package)
            if self._list(package, most=_LARGEST_PASSED):
                self._listed.add(package)

    def _is_listed(self, folder: str) -> bool:
        while folder not in self._listed:
            if not folder:
                return False
            folder = posixpath.dirname(folder)
        return True

    def _fetch(self, path: str, *, content: bool = False) -> ImageEntry | None:
        """Return the entry of a path: the first member that the engine sends; the rest is not read."""
        with self._archive(path) as archive:
            if archive is None:
                self.check()
                return None
            member = archive.next()
            if member is None:
                raise TreeError(f"{self._what}: the engine sent nothing for /{path}", hint=_AGAIN)
            if content or (member.isreg() and member.size <= _LARGEST_KEPT):
                self._contents[path] = streams.content(archive, member)
            return streams.entry(member, path)

    def _list(self, under: str, most: float = math.inf) -> bool:
        """Read a folder, up to a file of more than ``most`` bytes. Return whether that was all of it."""
        entries: dict[str, ImageEntry] = {}
        first: dict[str, str] = {}
        with self._archive(under) as archive:
            if archive is None:
                self.check()
            for member in archive or ():
                if member.size > most:
                    break
                # Its first component is the folder itself.
                path = posixpath.join(under, member.name.strip("/").partition("/")[2]).rstrip("/")
                entries[path] = streams.entry(member, path)
                is_kept = path.endswith(_KEPT) or ".dist-info/" in path
                if member.islnk():
                    first[path] = posixpath.join(under, member.linkname.partition("/")[2])
                elif member.isreg() and member.size <= _LARGEST_KEPT and is_kept:
                    assert archive is not None  # noqa: S101  (there is a member)
                    self._contents[path] = streams.content(archive, member)
            else:
                most = math.inf
        for path, target in first.items():
            if target in entries:
                entries[path] = entries[path]._replace(size=entries[target].size)
        self._entries.update(entries)
        return most == math.inf

    def check(self) -> None:
        """Raise ``TreeError`` if the container is gone: the engine says of anything in it that it is not there, too."""
        if self._unsure:
            self._mode("")

    def _mode(self, path: str) -> int | None:
        """Return the mode of a path in Go's form, ``None`` if it is not there."""
        with asking(self._what):
            response = self._client.head(
                self._url, params={"path": f"/{path}"}, timeout=self._client.timeout
            )
        self._unsure = response.status_code == requests.codes.not_found
        if self._unsure:
            if path:
                return None
            raise TreeError(
                f"{self._what}: the container was removed while it was being read", hint=_AGAIN
            )
        stat = response.headers.get("X-Docker-Container-Path-Stat", "")
        try:
            return int(json.loads(base64.b64decode(stat))["mode"])
        except (ValueError, KeyError, TypeError) as error:
            raise TreeError(
                f"{self._what}: /{path}: the engine answered {response.status_code} without describing the file",
                hint=_AGAIN,
            ) from error

    @contextlib.contextmanager
    def _archive(self, path: str) -> Iterator[tarfile.TarFile | None]:
        with asking(self._what):
            response = self._client.get(
                self._url,
                params={"path": f"/{path}"},
                # Packing it would cost more than it saves.
                headers={"Accept-Encoding": "identity"},
                stream=True,
                timeout=self._client.timeout,
            )
        with response:
            self._unsure = response.status_code == requests.codes.not_found
            if self._unsure:
                yield None
                return
            if response.status_code != requests.codes.ok:
                raise TreeError(
                    f"{self._what}: /{path}: the engine answered {response.status_code}: "
                    f"{_said(response)}",
                    hint=_AGAIN,
                )
            with streams.reading(f"{self._what}: /{path}", _AGAIN), asking(self._what):
                file = cast("BinaryIO", streams.Forward(response.raw))
                with tarfile.open(fileobj=file, mode="r|", tarinfo=tars.Info) as archive:
                    yield archive


class EngineImage(Opened):
    """An image of the engine; with ``container``, the files of a container as they are now."""

    def __init__(self, client: APIClient, name: str, *, reference: str, container: bool) -> None:
        self.reference = reference
        self._client = client
        identity = ""
        image = name
        with asking(reference):
            try:
                if container:
                    state = client.inspect_container(name)
                    identity, image = state["Id"], state["Image"]
                self._inspected: dict[str, Any] = client.inspect_image(image)
                info = client.info()
            except docker.errors.NotFound as error:
                raise UsageError(
                    f"{reference}: the docker engine here has no {'container' if container else 'image'} {name}",
                    hint="docker ps -a" if container else f"docker pull {name}",
                ) from error
        # of docker's two image stores: containerd's, or a graph driver
        stores = str(info.get("DriverStatus"))
        self.where = "containerd" if "io.containerd.snapshotter" in stores else "docker"
        self.diff_ids = tuple((self._inspected.get("RootFS") or {}).get("Layers") or ())
        self.config_digest = self._inspected["Id"]
        self.config = b""
        if self.where == "containerd":
            self._read_content_store(info.get("DockerRootDir") or "/var/lib/docker")
        self.config = self.config or rebuilt(self._inspected)
        if container:
            self._files = Container(client, identity, reference)
        self._remove: weakref.finalize[Any, Any] | None = None

    def close(self) -> None:
        """Remove the container that was made to read from, and end the connection."""
        with contextlib.closing(self._client):
            try:
                if "_files" in vars(self):
                    self._files.check()
            finally:
                if self._remove is not None:
                    self._remove()

    @cached_property
    def _files(self) -> Container:
        with asking(self.reference):
            # By its ID: the name may point elsewhere by now. The command is never run.
            created = self._client.create_container(
                self._inspected["Id"], ["-"], labels={LABEL: "1"}, network_disabled=True
            )
        self._remove = weakref.finalize(self, _remove, self._client, created["Id"])
        return Container(self._client, created["Id"], self.reference)

    def _read_content_store(self, root: str) -> None:
        """Read manifest and configuration where containerd keeps blobs: the API hands out neither.

        They stay unknown if the engine is on another machine, or its files may not be read.
        """
        stated = self._inspected.get("Descriptor") or {}
        top = Descriptor("", stated.get("digest") or self._inspected["Id"], -1)
        self.manifest_digest = top.digest
        for place in (f"{root}/containerd/daemon", "/var/lib/containerd"):
            store = LayoutFolder(f"{place}/io.containerd.content.v1.content")
            try:
                data, picked = oci.pick(store, top, self.reference)
                config, layers, self.config = oci.read_manifest(store, data, self.reference)
            except VllmModsError:
                continue  # Not there, or not to be read by us: the API's values have to do.
            self.manifest, self.manifest_digest, self.layers = data, picked.digest, layers
            self.config_digest = config.digest
            self.diff_ids = oci.diff_ids(self.config, self.reference)
            return


def rebuilt(inspected: dict[str, Any]) -> bytes:
    """Return an image's configuration from what ``docker inspect`` tells, as canonical JSON."""
    inner = inspected.get("Config") or {}
    keys = ("Architecture", "Os", "Variant", "Author", "Created")
    config: dict[str, Any] = {key.lower(): inspected[key] for key in keys if inspected.get(key)}
    if settings := {key: inner[key] for key in (*SETTINGS, "ArgsEscaped") if inner.get(key)}:
        config["config"] = settings
    layers = (inspected.get("RootFS") or {}).get("Layers") or []
    config["rootfs"] = {"type": "layers", "diff_ids": layers}
    return json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def open_image(name: str, *, reference: str, container: bool = False) -> EngineImage:
    """Open an image of the local engine, or a container. Raises ``UsageError`` if it has none of that name."""
    client = connect()
    try:
        return EngineImage(client, name, reference=reference, container=container)
    except BaseException:
        client.close()
        raise


@contextlib.contextmanager
def asking(what: str) -> Iterator[None]:
    """Raise ``TreeError`` where the engine does not answer, or breaks off."""
    try:
        yield
    except docker.errors.APIError as error:
        words = error.explanation or str(error)
        raise TreeError(f"{what}: the engine refused: {words}", hint=_AGAIN) from error
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
        raise TreeError(
            f"{what}: the engine stopped in the middle: {_reason(error)}", hint=_AGAIN
        ) from error


def _remove(client: APIClient, identity: str) -> None:
    # With its volumes: an image that declares some gets them with the container.
    try:
        client.remove_container(identity, v=True, force=True)
    except docker.errors.NotFound:
        return
    except (docker.errors.APIError, requests.exceptions.RequestException) as error:
        raise TreeError(
            f"the container {identity[:12]} that was read from could not be removed: "
            f"{_reason(error)}",
            hint=f"docker rm -v {identity[:12]}",
        ) from error


def _said(response: requests.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, LookupError, TypeError):
        return response.reason or ""


def _reason(error: BaseException) -> str:
    inner = error
    while inner.__cause__ or inner.__context__:
        inner = inner.__cause__ or inner.__context__  # type: ignore[assignment]
    return inner.strerror if isinstance(inner, OSError) and inner.strerror else str(inner)


_AGAIN = "try again; `docker version` tells whether the engine is well"
