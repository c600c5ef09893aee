"""Where checkpoints lie: a folder here, or a repository on the Hub, of which byte ranges are asked."""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Mapping
from urllib.parse import quote

from vllm_mods.base.errors import TreeError, Unreachable, UsageError, reading
from vllm_mods.base.limits import Limit
from vllm_mods.checkpoints import checkpoint
from vllm_mods.formats.safetensors import table
from vllm_mods.trees.pip_config import read_settings

_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9_][\w.-]*)?\Z", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_HUB = "https://huggingface.co"
_FOLDER = "download it (`hf download`), and name the folder"
BLOBS = "../../blobs"
"""Where the links of a snapshot of the Hub's client lead, from its folder."""
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


def open_checkpoint(
    model: str,
    revision: str | None = None,
    *,
    folder: str | None = None,
    environ: Mapping[str, str] | None = None,
    here: bool = False,
) -> checkpoint.Checkpoint:
    """Read a model: a folder, or an id on the Hub at a revision, ``main`` if none is named.

    ``folder`` is where it lies, whatever it is called. Where the Hub cannot be asked now, and if it is to be read
    ``here`` alone, it is read as the Hub's client keeps it (``HF_HUB_CACHE``, ``HF_HOME``). Raises ``UsageError`` for a
    name that is neither, ``TreeError`` for one that cannot be read, and ``Unreachable`` where nobody has it.
    """
    variables = os.environ if environ is None else environ
    if folder is not None and not os.path.isdir(folder):
        raise UsageError(f"{folder}: no such folder", hint=_FOLDER)
    if folder is not None or os.path.isdir(model):
        return checkpoint.read(_ModelFolder(folder or model))._replace(name=model)
    if not is_hub_id(model):
        why = f"{model}: no such folder, and not a model id on the Hub (ORGANISATION/NAME)"
        raise UsageError(why, hint="name the folder that contains its config.json")
    revision = revision or "main"
    if here:
        return _read_kept(model, revision, variables)
    try:
        return checkpoint.read(_HubModel(model, revision, variables))
    except Unreachable as unreachable:
        try:
            return _read_kept(model, revision, variables)
        except Unreachable:
            raise unreachable from None


def _read_kept(model: str, revision: str, environ: Mapping[str, str]) -> checkpoint.Checkpoint:
    """Read a model as the Hub's client keeps it. Raises ``Unreachable`` where it has not all of it."""
    home = environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    cache = environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    place = os.path.join(cache, f"models--{model.replace('/', '--')}")
    named = os.path.join(place, "refs", revision)  # a commit has no such file
    with contextlib.suppress(OSError, ValueError), open(named, "rb", opener=_open) as file:
        revision = file.read(40).decode("ascii")
    folder = os.path.join(place, "snapshots", revision)
    if not _COMMIT.match(revision) or not os.path.isdir(folder):
        raise Unreachable(f"{model} is not in {cache}", hint=_FOLDER)
    try:
        return checkpoint.read(_ModelFolder(folder))._replace(name=model)
    except TreeError as error:  # part of a download: the client fetches the rest
        raise Unreachable(error.message, hint=error.hint) from error


def is_hub_id(model: str) -> bool:
    """Tell whether a model that is no folder here can be one on the Hub."""
    return _ID.match(model) is not None


def blobs_of(folder: str) -> str | None:
    """Return the folder to which the links of a snapshot of the Hub's client lead, None for a folder without links to elsewhere.

    ``folder`` has no link in its path. Raises ``UsageError`` for links that lead to anywhere else: a container that has
    the folder has not what they lead to.
    """
    blobs, is_kept = None, os.path.basename(os.path.dirname(folder)) == "snapshots"
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        target = os.readlink(path) if os.path.islink(path) else ""
        if is_kept and target.startswith(f"{BLOBS}/"):
            blobs = os.path.realpath(os.path.join(folder, BLOBS))
        elif not os.path.realpath(path).startswith(f"{folder}/"):
            why = f"{path} links to {target}, which a container that mounts {folder} cannot see"
            raise UsageError(why, hint=f"cp -rL {folder} DIR, then --model-folder DIR")
    return blobs


class _ModelFolder:
    """A checkpoint in a folder. Links are followed: a download keeps its files behind them."""

    def __init__(self, folder: str) -> None:
        self.name = folder
        last = os.path.basename(folder)
        self.commit = last if _COMMIT.match(last) else None  # a snapshot of the Hub's client
        with reading(folder, hint=_FOLDER):
            self.names = tuple(os.listdir(folder))
        paths = (os.path.join(folder, name) for name in self.names)
        lost = [path for path in sorted(paths) if os.path.islink(path) and not os.path.exists(path)]
        if lost:
            raise TreeError(
                f"{folder}: {len(lost)} of its {len(self.names)} files are dangling links "
                f"(such as {lost[0]} to {os.readlink(lost[0])})",
                hint="a snapshot of the Hub's cache needs its blobs/: mount or copy the whole models--… folder, "
                "or run `hf download --local-dir DIR`",
            )

    def read(self, name: str, most: Limit) -> bytes:
        size, data = self.span(name, 0, most + 1)
        if size > most:
            raise _too_large(f"{self.name}/{name}", size, most)
        return data

    def span(self, name: str, start: int, end: int) -> tuple[int, bytes]:
        path = os.path.join(self.name, name)
        with reading(path), open(path, "rb", opener=_open) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(start)
            return size, file.read(end - start)


def _open(path: str, flags: int) -> int:
    """Open a regular file: a pipe would be waited for."""
    file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "not a regular file")
    return file


class _HubModel:
    """A repository on the Hub, at the commit that a revision stands for when it is opened."""

    def __init__(self, model: str, revision: str, environ: Mapping[str, str]) -> None:
        if environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE:
            raise Unreachable(f"{model}: the Hub was not asked (HF_HUB_OFFLINE)", hint=_FOLDER)
        from vllm_mods.trees.http import Http  # noqa: PLC0415  (requests: 0.2 s)

        self.name = model
        self._hub = (environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
        # What cannot be had is told soon: a lock is made without it, and says so.
        self._http = Http(read_settings(environ)._replace(retries=1))
        asked = f"{self._hub}/api/models/{model}/revision/{quote(revision, safe='')}"
        try:
            page = self._http.page(asked, "application/json")
        except Unreachable as error:
            raise Unreachable(error.message, hint=f"HF_ENDPOINT=URL; or {_FOLDER}") from None
        if page is None:
            why = f"{model}: the Hub has no such model at {revision}, or wants a login"
            raise UsageError(why, hint=_FOLDER)
        answer = table(page.body, asked)
        commit, files = answer.get("sha"), answer.get("siblings")
        if not isinstance(commit, str) or not _COMMIT.match(commit) or not isinstance(files, list):
            why = f"{asked}: the answer is not the Hub's description of a model"
            raise TreeError(why, hint="HF_ENDPOINT=https://…")
        self.commit: str | None = commit
        names = (one.get("rfilename") for one in files if isinstance(one, dict))
        self.names = tuple(name for name in names if isinstance(name, str))

    def read(self, name: str, most: Limit) -> bytes:
        url = self._url(name)
        first = self._http.span(url, 0, 1)
        if first is None:  # a small file, of a server without ranges
            page = self._http.page(url, "*/*")
            data = b"" if page is None else page.body
            size = len(data)
        else:
            size = first.total
            data = self.span(name, 0, size)[1] if size <= most else b""
        if size > most:
            raise _too_large(url, size, most)
        return data

    def span(self, name: str, start: int, end: int) -> tuple[int, bytes]:
        url = self._url(name)
        part = self._http.span(url, start, end)
        if part is None:
            why = f"it has fewer than {end} bytes, or the server does not support byte ranges"
            raise TreeError(f"{url}: {why}", hint=_FOLDER)
        return part.total, part.data

    def _url(self, name: str) -> str:
        return f"{self._hub}/{self.name}/resolve/{self.commit}/{quote(name)}"


def _too_large(what: str, size: int, most: Limit) -> TreeError:
    return TreeError(f"{what} has {size:,} bytes, and the limit for {most.what} is {most}")
