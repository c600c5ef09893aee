"""Images in a registry, by the OCI distribution API: manifests and blobs, with a login or without."""

import io
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError, VllmModsError, no_network
from vllm_mods.base.hops import check_hop, is_local, place
from vllm_mods.base.sessions import BROKEN, is_unconnected, reason, session, until
from vllm_mods.base.untrusted import number_of
from vllm_mods.images import names, oci
from vllm_mods.images.model import Base, Descriptor, digest_of, with_ancestors

PLAIN_HTTP = "VLLM_MODS_PLAIN_HTTP"
"""The environment variable that lists, with commas, registries that may be asked without TLS."""

ACCEPT = ", ".join((*oci.INDEXES, *oci.MANIFESTS))
_PARAMETER = re.compile(r'([A-Za-z_]+)="((?:[^"\\]|\\.)*)"')
TOKEN_USER = "<token>"  # noqa: S105  (docker's own mark for an identity token)
_TRIES = 4


def open_registry(text: str, how: oci.Opening, *, offline: bool = False) -> Base:
    """Open ``HOST/NAME:TAG`` or ``HOST/NAME@DIGEST``. Raises ``UsageError``, ``TreeError``."""
    name = names.parse(text)
    if offline:
        why = f"{how.reference}: a registry cannot be read with --offline"
        raise TreeError(why, hint="run without --offline")
    client = Client(name, os.environ)
    return oci.OciImage(client.open, client.manifest(how.reference), "registry", how)


class Client:
    """One repository of a registry. A login is looked up when the registry asks for one."""

    def __init__(self, name: names.Name, environ: Mapping[str, str]) -> None:
        self.name = name
        self._environ = environ
        host = "registry-1.docker.io" if name.host == names.HUB else name.host
        scheme = "http" if is_plain(name.host, environ) else "https"
        self._root = f"{scheme}://{host}/v2/{name.repository}/"
        self._session = session(_TRIES - 1, plain=self._is_plain)
        # What is asked for here is already as small as it gets, and its digest is of these bytes.
        self._session.headers["Accept-Encoding"] = "identity"
        # Else a login of ~/.netrc would stand in for the token.
        self._session.auth = _no_login
        self._manifest: tuple[str, bytes] | None = None

    def manifest(self, reference: str) -> Descriptor:
        """Ask for the manifest or index that the name stands for."""
        with self.get(f"manifests/{self.name.version}", accept=ACCEPT) as response:
            data = self._whole(response, f"{reference}: its manifest")
            kind = response.headers.get("Content-Type", "")
            stated = response.headers.get("Docker-Content-Digest")
        digest = digest_of(data)
        for expected in (self.name.digest, stated):
            if expected and expected.startswith("sha256:") and expected != digest:
                why = f"{reference}: the registry sent a manifest with the digest {digest}, not {expected}"
                raise TreeError(why, hint="the registry or a proxy sent another file: try again")
        self._manifest = digest, data
        return Descriptor(kind, digest, len(data))

    def open(self, blob: Descriptor) -> io.IOBase:
        """Open a blob or, by its digest, a manifest. Raises ``TreeError``."""
        if self._manifest is not None and self._manifest[0] == blob.digest:
            return io.BytesIO(self._manifest[1])
        if "manifest" in blob.media_type or "index" in blob.media_type:
            with self.get(f"manifests/{blob.digest}", accept=ACCEPT) as response:
                return io.BytesIO(self._whole(response, f"{self.name}: {blob.digest}"))
        return _Resuming(self, f"blobs/{blob.digest}")

    def get(self, path: str, *, accept: str = "*/*", start: int = 0) -> requests.Response:
        """Ask, logging in if that is wanted. Raises ``TreeError`` for anything but an answer."""
        headers = {"Accept": accept}
        if start:
            headers["Range"] = f"bytes={start}-"
        return self._ask("GET", path, {200, 206}, headers=headers)

    def _whole(self, response: requests.Response, what: str) -> bytes:
        """Return the body of an answer that is no layer. Raises ``TreeError``."""
        try:
            return limits.bounded(response.raw, limits.ANSWER, what)
        except BROKEN as error:
            raise self._unreachable(error) from error

    def _ask(
        self,
        method: str,
        path: str,
        wanted: Collection[int] | None = None,
        **given: Any,  # noqa: ANN401
    ) -> requests.Response:
        """Send a request, and once more with a login if the registry asks for one; keywords are those of requests.

        ``path`` may be a URL that the registry has given: at another host it gets no login. Raises
        ``TreeError`` for an answer whose status is none of ``wanted``.
        """
        url = urljoin(self._root, path)
        check_hop(self._root, url, self._is_plain)
        if place(url) != place(self._root):
            given["auth"] = _no_login
        given |= {"timeout": limits.SILENT_SECONDS, "stream": True}
        try:
            response = self._session.request(method, url, **given)
            if response.status_code == requests.codes.unauthorized:
                response.close()
                if self._log_in(response):
                    response = self._session.request(method, url, **given)
        except (requests.exceptions.RequestException, *BROKEN, OSError) as error:
            raise self._unreachable(error) from error
        refused = wanted is not None and response.status_code not in wanted
        if refused or method != "GET":
            response.close()  # what matters is in its head
        if refused:
            raise self._refused(response, path, method)
        return response

    def _log_in(self, response: requests.Response) -> bool:
        """Set the login that the registry asks for; return False if there is none."""
        kind, _, rest = response.headers.get("WWW-Authenticate", "").partition(" ")
        login = find_login(self.name.host, self.name.repository, self._environ)
        if kind.lower() == "basic" and login is not None:
            self._session.auth = requests.auth.HTTPBasicAuth(*login)
            return True
        wanted = dict(_PARAMETER.findall(rest))
        if kind.lower() != "bearer" or "realm" not in wanted:
            return False
        token = self._token(wanted, login)
        if token is not None:
            self._session.auth = partial(_bear, token)
        return token is not None

    def _token(self, wanted: dict[str, str], login: tuple[str, str] | None) -> str | None:
        realm = wanted["realm"]
        try:
            check_hop(self._root, realm, self._is_plain)
        except ValueError:
            return None
        asked = {
            "service": wanted.get("service", ""),
            "scope": wanted.get("scope") or f"repository:{self.name.repository}:pull",
        }
        how: dict[str, Any] = {"timeout": limits.SILENT_SECONDS, "stream": True}
        what = f"{self.name}: its token"
        if login is not None and login[0] == TOKEN_USER:
            form = {**asked, "grant_type": "refresh_token", "refresh_token": login[1]}
            form["client_id"] = "vllm-mods"
            # the token is in the body, which a redirect would take along
            how |= {"auth": _no_login, "allow_redirects": False}
            answer = self._session.post(realm, data=form, **how)
        else:
            answer = self._session.get(realm, params=asked, auth=login or _no_login, **how)
        try:
            with answer:
                document = oci.parse(self._whole(answer, what), what)
        except TreeError:
            return None
        if answer.status_code != requests.codes.ok:
            return None
        token = document.get("token") or document.get("access_token")
        return token if isinstance(token, str) else None

    def _is_plain(self, url: str) -> bool:
        """Tell whether the user lets the host of a URL be asked without TLS."""
        return place(url) in self._environ.get(PLAIN_HTTP, "").split(",")

    def _refused(self, response: requests.Response, path: str, method: str) -> VllmModsError:
        host = self.name.host
        answer = f"the registry answered {response.status_code} {response.reason or ''}".rstrip()
        denied = response.status_code in {401, 403}
        if method != "GET":
            answer += ": you are not allowed to write there" if denied else ""
            hint = f"docker login {host}" if denied else "try again later"
            return TreeError(f"{self.name}: {answer}; no tag was moved", hint=hint)
        if denied:
            login = find_login(host, self.name.repository, self._environ)
            what = f"as {login[0]}" if login else "without a login"
            return TreeError(f"{self.name}: {answer} (asked {what})", hint=f"docker login {host}")
        if response.status_code == requests.codes.not_found:
            is_whole = path.startswith("manifests")
            what = "has no such image" if is_whole else f"has no {path} of this image"
            why = f"{self.name}: {host} {what}, or it is private and needs a login"
            hint = f"check the name and the tag; docker login {host}"
            return (UsageError if is_whole else TreeError)(why, hint=hint)
        return TreeError(f"{self.name}: {answer}", hint="try again later")

    def _unreachable(self, error: Exception) -> TreeError:
        host = self.name.host
        what = f"cannot connect to {host}: {reason(error)}"
        what = no_network(host, reason(error)) if is_unconnected(error) else what
        hint = f"curl -sS {self._root.partition('/v2/')[0]}/v2/  # does the registry answer? oci:FOLDER and images of an engine need no network"
        if isinstance(error, requests.exceptions.SSLError):
            hint = f"set REQUESTS_CA_BUNDLE=FILE for a registry with its own certificates, or {PLAIN_HTTP}={host} for one without TLS"
        return TreeError(f"{self.name}: {what}", hint=hint)


def is_plain(host: str, environ: Mapping[str, str]) -> bool:
    """Tell whether a registry is asked without TLS: on this machine, or where the user says so."""
    named = environ.get(PLAIN_HTTP, "").split(",")
    return host in named or is_local(urlsplit(f"//{host}").hostname or "-")


def find_login(host: str, repository: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return user and password (or ``TOKEN_USER`` and an identity token), ``None`` if none is kept.

    Asked are podman's auth.json and then docker's config.json, credential helpers included. Podman
    keeps logins for a part of a host too (``host/organisation``): the longest that fits is taken.
    Raises ``TreeError`` if a credential helper fails.
    """
    # The library is docker's own for this: the order of stores and helpers, and their protocol.
    from docker.auth import AuthConfig  # noqa: PLC0415
    from docker.errors import DockerException  # noqa: PLC0415

    for path in _login_files(environ):
        if not os.path.isfile(path):
            continue
        try:
            known = AuthConfig.load_config(path, None)
            places = reversed(with_ancestors(f"{host}/{repository}")[1:])
            fitting = next((known.auths[place] for place in places if place in known.auths), None)
            credentials = fitting or known.resolve_authconfig(host)
        except DockerException as error:
            why = f"{path}: the login for {host} cannot be read: {error}"
            raise TreeError(why, hint=f"docker login {host}") from error
        if credentials and credentials.get("IdentityToken"):
            return TOKEN_USER, str(credentials["IdentityToken"])
        # The library writes the keys in two ways: of the file, and of a credential helper.
        user = credentials and (credentials.get("username") or credentials.get("Username"))
        if credentials and user:
            return str(user), str(credentials.get("password") or credentials.get("Password") or "")
    return None


def _login_files(environ: Mapping[str, str]) -> Iterator[str]:
    home = environ.get("HOME") or os.path.expanduser("~")
    if environ.get("REGISTRY_AUTH_FILE"):
        yield environ["REGISTRY_AUTH_FILE"]
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    yield f"{runtime}/containers/auth.json"
    yield f"{environ.get('XDG_CONFIG_HOME') or f'{home}/.config'}/containers/auth.json"
    yield f"{environ.get('DOCKER_CONFIG') or f'{home}/.docker'}/config.json"


class _Resuming(io.RawIOBase):
    """A blob as it comes; if the connection breaks, the rest is asked for by range."""

    def __init__(self, client: Client, path: str) -> None:
        super().__init__()
        self._client = client
        self._path = path
        self._done = 0
        self._end = time.monotonic() + limits.DOWNLOAD_SECONDS
        with until(self._end):
            self._response = client.get(path)
        self._length = number_of(self._response.headers.get("Content-Length", ""))

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:  # noqa: ANN401  (a buffer)
        for attempt in range(_TRIES):
            try:
                data: bytes = self._response.raw.read(len(into), decode_content=False)
                if not data and into and self._length is not None and self._done < self._length:
                    raise urllib3.exceptions.ProtocolError("the answer was cut off")
            except (*BROKEN, requests.exceptions.RequestException, OSError) as error:
                if attempt + 1 == _TRIES:
                    why = f"{self._client.name}: {self._path}: interrupted {_TRIES} times, last after {self._done} bytes"
                    raise TreeError(why, hint="try again: complete layers are kept") from error
                self._resume()
            else:
                self._done += len(data)
                into[: len(data)] = data
                return len(data)
        raise AssertionError

    def _resume(self) -> None:
        self._response.close()
        with until(self._end):
            self._response = self._client.get(self._path, start=self._done)
        if self._done and self._response.status_code != requests.codes.partial_content:
            left = self._done  # It knows no ranges: what is here already is passed over.
            while left and (data := self._response.raw.read(min(left, 1 << 20))):
                left -= len(data)

    def close(self) -> None:
        self._response.close()
        super().close()


def _bear(token: str, request: requests.PreparedRequest) -> requests.PreparedRequest:
    request.headers["Authorization"] = f"Bearer {token}"
    return request


def _no_login(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
