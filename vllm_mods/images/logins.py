"""User and password for a registry, from where ``docker login`` and ``podman login`` put them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from vllm_mods.base.errors import TreeError

TOKEN_USER = "<token>"  # noqa: S105  (docker's own mark for an identity token)


def login(host: str, repository: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return user and password (or ``TOKEN_USER`` and an identity token), ``None`` if none is kept.

    Asked are podman's auth.json and then docker's config.json, credential helpers included. Podman
    keeps logins for a part of a host too (``host/organisation``): the longest that fits is taken.
    Raises ``TreeError`` if a credential helper fails.
    """
    # The library is docker's own for this: the order of stores and helpers, and their protocol.
    from docker.auth import AuthConfig  # noqa: PLC0415
    from docker.errors import DockerException  # noqa: PLC0415

    for path in _files(environ):
        if not os.path.isfile(path):
            continue
        try:
            known = AuthConfig.load_config(path, None)
            credentials = next(
                (known.auths[place] for place in _places(host, repository) if place in known.auths),
                None,
            )
            credentials = credentials or known.resolve_authconfig(host)
        except DockerException as error:
            raise TreeError(
                f"{path}: the login for {host} cannot be read: {error}",
                hint=f"docker login {host}",
            ) from error
        if credentials and credentials.get("IdentityToken"):
            return TOKEN_USER, str(credentials["IdentityToken"])
        # The library writes the keys in two ways: of the file, and of a credential helper.
        user = credentials and (credentials.get("username") or credentials.get("Username"))
        if credentials and user:
            return str(user), str(credentials.get("password") or credentials.get("Password") or "")
    return None


def _files(environ: Mapping[str, str]) -> Iterator[str]:
    home = environ.get("HOME") or os.path.expanduser("~")
    if environ.get("REGISTRY_AUTH_FILE"):
        yield environ["REGISTRY_AUTH_FILE"]
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    yield f"{runtime}/containers/auth.json"
    yield f"{environ.get('XDG_CONFIG_HOME') or f'{home}/.config'}/containers/auth.json"
    yield f"{environ.get('DOCKER_CONFIG') or f'{home}/.docker'}/config.json"


def _places(host: str, repository: str) -> Iterator[str]:
    parts = [host, *repository.split("/")]
    for end in range(len(parts), 1, -1):
        yield "/".join(parts[:end])
