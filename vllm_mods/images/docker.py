"""Images and containers of a docker engine, read through its API.

docker's own client library is used: it knows contexts, DOCKER_HOST, ssh and TLS, so that the engine is the one that
`docker` itself would talk to. Files come out of a container that is made for that, never started, and removed.
"""

import contextlib
import json
import os
import weakref
from functools import cached_property, partial
from typing import Any

import docker.errors
import requests
from docker.api.client import APIClient
from docker.context import ContextAPI
from docker.utils import kwargs_from_env

from vllm_mods.base import limits
from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import TreeError, UsageError, VllmModsError
from vllm_mods.base.sessions import reason
from vllm_mods.images import oci
from vllm_mods.images.container_files import ContainerFiles, asking
from vllm_mods.images.layout import open_blob
from vllm_mods.images.model import Descriptor

LABEL = "vllm-mods.reading"
"""On every container that is made here: `docker ps -aq --filter label=vllm-mods.reading`."""


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


class EngineImage(ContainerFiles):
    """An image of the engine; with ``container``, the files of a container as they are now."""

    def __init__(
        self, client: APIClient, name: str, cache: Cache, *, reference: str, container: bool
    ) -> None:
        super().__init__(client, reference, cache)
        self._read_from, image = "", name
        with asking(reference):
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
            self.remember(self._inspected["Id"], *self.diff_ids)
        self._remove: weakref.finalize[Any, Any] | None = None

    def close(self) -> None:
        """Remove the container that was made to read from, and end the connection."""
        with contextlib.closing(self._client):
            try:
                self.finish()
            finally:
                if self._remove is not None:
                    self._remove()

    @cached_property
    def _url(self) -> str:
        client, identity = self._client, self._read_from
        if not identity:
            with asking(self.reference):
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
