"""A command run on a scratch copy of a tree, laid out as in an image; what it changed, and what it did elsewhere."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.model import FileChange
from vllm_mods.base.tree import Tree
from vllm_mods.making import fetching, sandbox, scratch_copy, served, watching
from vllm_mods.making.effects import HOME, SITE, WORKSPACE, is_template
from vllm_mods.making.fetching import Fetcher, TakenRepository
from vllm_mods.making.sandbox import Ran
from vllm_mods.making.scratch_copy import ScratchCopy
from vllm_mods.making.watching import Watched, WatchedCommand

_TEMPORARY = "/tmp"  # noqa: S108  (as it is called in there)
_DIST_INFO = re.compile(r"([\w.]+)-([^-/]+)\.dist-info/METADATA\Z")
_LINES = 15
_PYTHON = "/launcher"
# Scripts import vllm to ask where it lies. Its __init__ needs torch, which is not there, and may want a
# GPU; of its other modules as much is run as goes without.
_SITE_CUSTOMIZE = """\
import importlib.machinery, site, sys, sysconfig

site.getsitepackages = lambda prefixes=None: [{site!r}]
_paths = sysconfig.get_paths
sysconfig.get_paths = lambda *given, **more: {{
    **_paths(*given, **more), "purelib": {site!r}, "platlib": {site!r}
}}
sysconfig.get_path = lambda name, *given, **more: sysconfig.get_paths(*given, **more)[name]

class Vllm:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] != "vllm":
            return None
        for end in (".py", "/__init__.py"):
            _opened("{site}/" + name.replace(".", "/") + end)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = Vllm(spec.loader)
        return spec

    def __init__(self, loader=None):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        if module.__name__ != "vllm":
            try:
                self.loader.exec_module(module)
            except ImportError:
                pass
        if module.__name__ in ("vllm", "vllm.version", "vllm._version"):
            for name in ("__version__", "version"):
                vars(module).pop(name, None)
            module.__getattr__ = Vllm.version

    @staticmethod
    def version(name):
        if name not in ("__version__", "version"):
            raise AttributeError(name)
        _opened("version")
        return {version!r}

sys.meta_path.insert(0, Vllm)
"""


class Recording(NamedTuple):
    """What a command did. ``elsewhere`` are files that it wrote and no mod can have.

    ``paths`` are the files that it changed or read; ``everywhere`` says that it asked for more than files.
    """

    changes: tuple[FileChange, ...]
    templates: dict[str, bytes]
    python: tuple[str, ...]
    elsewhere: tuple[str, ...]
    output: str
    paths: frozenset[str]
    everywhere: bool
    points: bytes = b""
    """What ``entries.py`` told of, where its places were marked."""

    @property
    def lost(self) -> tuple[str, ...]:
        """What is to be said of the files that no mod can have."""
        return tuple(f"it wrote {path}, which no mod can have" for path in self.elsewhere)


class Limits(NamedTuple):
    """What a command may do, and for how long; ``also`` are packages that it sees beside vllm."""

    network: bool = False
    seconds: float = 600
    also: tuple[str, ...] = ()
    environ: tuple[str, ...] = ()
    """Variables of the container, each ``NAME=value``."""
    fetched: Mapping[str, bytes] = {}
    """What lies at URLs: ``curl`` and ``wget`` are served that."""
    repositories: Sequence[TakenRepository] | None = None
    """What ``git`` is served of repositories; None if nothing is taken of any."""
    chosen: Mapping[str, object] | None = None
    """Which entries of which place of its Python programs are there; of none with ``{}``, which marks all places."""


def record(
    argv: Sequence[str], name: str, files: Mapping[str, bytes], tree: Tree, limits: Limits
) -> Recording:
    """Run a command as launchers run a mod of these files, on a copy of a tree.

    Raises ``Refused`` if it fails, takes too long, leaves a patch half applied or makes what a mod cannot
    have, or where nothing can be run without harm; ``UsageError`` for a tree that cannot be copied.
    """
    with scratch_copy.copied(tree, limits.also) as copy:
        return record_on(copy, argv, name, files, limits)


def record_on(
    copy: ScratchCopy,
    argv: Sequence[str],
    name: str,
    files: Mapping[str, bytes],
    limits: Limits,
) -> Recording:
    """Run a command on a copy that is as new. Raises as ``record`` does."""
    with tempfile.TemporaryDirectory(prefix="run-", dir=copy.scratch) as scratch:
        tree = copy.tree
        places = {WORKSPACE: "workspace", HOME: "home", _TEMPORARY: "tmp", _PYTHON: "python"}
        folders = {place: os.path.join(scratch, part) for place, part in places.items()}
        root = os.path.join(scratch, "root")
        for folder in (*folders.values(), root):
            os.mkdir(folder)
        folders[SITE] = copy.site
        customize = _SITE_CUSTOMIZE.format(version=tree.version, site=SITE)
        customize += watching.AUDIT.replace("__HOME__", _PYTHON).replace("__SITE__", SITE)
        scratch_copy.put(os.path.join(folders[_PYTHON], "sitecustomize.py"), customize.encode())
        watching.prepare(folders[_PYTHON], _PYTHON)
        if not limits.network:
            fetching.serve(folders[_PYTHON], _PYTHON, limits.fetched, limits.repositories)
        if limits.chosen is not None:
            watching.mark(folders[_PYTHON], _PYTHON, limits.chosen)
        home = f"{WORKSPACE}/mods/{name}"
        _put_all(os.path.join(folders[WORKSPACE], "mods", name), files)
        ran = sandbox.run(
            argv,
            folders,
            cwd=home,
            environ=_environ(limits),
            root=root,
            network=limits.network,
            seconds=limits.seconds,
        )
        roots = SITE, copy.site
        seen = watching.read(folders[_PYTHON], files, roots, network=limits.network)
        if ran.code:
            alone = "it had no network; if that is why: --fetch takes URLs once, or --allow-network"
            last = f"\n  the last step: {seen.ended}" if seen.ended else ""
            why = f"the command failed with exit code {ran.code}; nothing was written{last}"
            hint = None if limits.network else alone
            raise _lacking(why + _listed(seen.lacked) + told(ran.output), hint, seen)
        written, gone = _written(copy)
        if rejects := [path for path in written if path.endswith(".rej")]:
            raise Refused(
                f"a patch went in by half: {', '.join(rejects)}; nothing was written{told(ran.output)}",
                hint="--tree TREE, the vLLM that it was written for",
            )
        _check(seen, ran)
        python, owned = _installed(written)
        python = tuple(dict.fromkeys((*seen.installed, *python)))
        owned |= {path for path in written if path.endswith(".orig") and path[:-5] in copy.paths}
        changes = [
            FileChange(
                path=path, before=tree.read(path) if path in copy.paths else None, after=data
            )
            for path, data in {**written, **dict.fromkeys(gone)}.items()
            if path not in owned
        ]
        net = tuple(change for change in changes if change.before != change.after)
        if other := [one.path for one in net if copy.whole.read(one.path) != one.before]:
            raise Refused(
                f"{', '.join(other)}: the sdist that the command ran on has other bytes than {tree.spec}",
                hint=f"pip download --no-deps vllm=={tree.version}, and --tree wheel:FILE",
            )
        templates, elsewhere = _elsewhere(folders, home)
        paths = seen.opened | {change.path for change in net}
        points = watching.points(folders[_PYTHON]) if limits.chosen == {} else b""
        return Recording(
            net, templates, python, elsewhere, ran.output, paths, seen.everywhere, points
        )


def fed(
    name: str, files: Mapping[str, bytes], tree: Tree, limits: Limits, fetcher: Fetcher | None
) -> Recording:
    """Record ``run.sh`` until it has what it asks for and ``fetcher`` can take. Raises as ``changed`` does."""
    while True:
        given = limits
        if fetcher is not None:
            repositories = tuple(fetcher.repositories.values())
            given = limits._replace(fetched=fetcher.taken, repositories=repositories)
        try:
            return changed(["./run.sh"], name, files, tree, given)
        except fetching.Lacked as error:
            if fetcher is None:
                raise
            if not fetcher.take(error.urls, error.repositories):
                raise


def changed(
    argv: Sequence[str], name: str, files: Mapping[str, bytes], tree: Tree, limits: Limits
) -> Recording:
    """Record a command. Raises ``Refused`` also if it changes nothing."""
    return useful(record(argv, name, files, tree, limits))


def useful(done: Recording) -> Recording:
    """Return a recording. Raises ``Refused`` for one of a command that changed nothing: it may have failed unseen."""
    if not done.changes and not done.templates:
        raise Refused(
            f"the command ended with 0 and changed nothing in vLLM{told(done.output)}",
            hint="does it fail open? vllm-mods lint PATH",
        )
    return done


def _check(seen: Watched, ran: Ran) -> None:
    """Refuse a run that lacked something, or survived the failure of a step: nobody knows the mod whole."""
    if seen.lacked or ran.unreached:
        lines = _listed(seen.lacked) or "\n  something in it reached for the network"
        raise _lacking(
            f"it was not given what it asked for, so that what it does is not known; nothing was written{lines}",
            "--fetch, or keep a copy of what it fetches in the mod's folder; or --allow-network",
            seen,
        )
    if seen.failed:
        raise Refused(
            "a step failed and the command went on, so that it did not do all that it is for; nothing was "
            f"written{_listed(seen.failed)}{told(ran.output)}",
            hint="--tree TREE, the vLLM that it was written for",
        )


def _lacking(message: str, hint: str | None, seen: Watched) -> fetching.Lacked:
    """Return a refusal that knows the URLs that were asked for in vain."""
    error = fetching.Lacked(message, hint=hint)
    asked = (served.parse([*one.argv]) for one in seen.lacked if one.argv[0] in {"curl", "wget"})
    error.urls = tuple(one[0] for one in asked if one is not None)
    error.repositories = seen.repositories
    return error


def _listed(steps: Sequence[WatchedCommand]) -> str:
    return "".join(f"\n  {one}" for one in dict.fromkeys(steps))


def told(output: str) -> str:
    """Return the last lines that a command printed, to stand below a message."""
    lines = [line for line in output.splitlines() if line.strip()]
    return "".join(f"\n  | {line}" for line in lines[-_LINES:])


def contents(folder: str) -> dict[str, bytes]:
    """Read the folder that a command needs. Raises ``UsageError`` for one that holds far more."""
    found: dict[str, bytes] = {}
    size = 0
    for path, info in scratch_copy.walk(folder):
        if not stat.S_ISREG(info.st_mode):
            continue
        size += info.st_size
        if len(found) >= limits.MOD_FILES or size > limits.MOD_BYTES:
            raise UsageError(
                f"{folder} holds more than a mod does, and the command would be given all of it",
                hint="run it from a folder that holds what it needs, and nothing else",
            )
        found[os.path.relpath(path, folder)] = Path(path).read_bytes()
    return found


def _environ(limits: Limits) -> dict[str, str]:
    given = {}
    for one in limits.environ:
        name, equals, value = one.partition("=")
        if not (name and equals):
            raise UsageError(f"--env {one} is not NAME=VALUE", hint="--env VLLM_USE_X=1")
        given[name] = value
    return {
        **watching.environ(_PYTHON, network=limits.network),
        "PATH": f"{_PYTHON}/{watching.BIN}",
        "HOME": HOME,
        "LANG": "C.UTF-8",
        "WORKSPACE_DIR": WORKSPACE,
        "PYTHON_ROOT": SITE,
        "VLLM_SITE_PACKAGES": SITE,
        "VLLM_PACKAGE_DIR": f"{SITE}/vllm",
        "PYTHONPATH": f"{_PYTHON}:{SITE}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PIP_TARGET": SITE,
        "PIP_NO_CACHE_DIR": "1",
        **({} if limits.network else {"PIP_RETRIES": "0", "UV_OFFLINE": "1"}),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        **given,
    }


def _put_all(folder: str, files: Mapping[str, bytes]) -> None:
    os.makedirs(folder)  # also where there are none
    for path, data in files.items():
        place = os.path.join(folder, path)
        scratch_copy.put(place, data)
        if data.startswith(b"#!") or path.endswith(".sh"):
            os.chmod(place, 0o755)  # noqa: S103  (launchers do so)


def _written(copy: ScratchCopy) -> tuple[dict[str, bytes], set[str]]:
    """Return the files that were written, and those that are gone."""
    gone = set(copy.paths)
    written: dict[str, bytes] = {}
    for path, info in scratch_copy.walk(copy.site):
        inner = os.path.relpath(path, copy.site)
        gone.discard(inner)
        if copy.is_as_it_was(inner, info):
            continue
        if not stat.S_ISREG(info.st_mode):
            raise Refused(
                f"{inner} became a link, or no file at all, and a mod has plain files only",
                hint="have the command copy the file itself",
            )
        written[inner] = Path(path).read_bytes()
    return dict(sorted(written.items())), gone


def _installed(written: Mapping[str, bytes]) -> tuple[tuple[str, ...], set[str]]:
    """Return the packages that were installed, and the files that are theirs."""
    python: list[str] = []
    owned: set[str] = set()
    for path in written:
        match = _DIST_INFO.match(path)
        if match is None:
            continue
        python.append(f"{match[1].replace('_', '-')}=={match[2]}")
        folder = path.rpartition("/")[0]
        rows = written.get(f"{folder}/RECORD", b"").decode("utf-8", "replace").splitlines()
        owned |= {row.split(",")[0] for row in rows}
        owned |= {one for one in written if one.startswith(f"{folder}/")}
    return tuple(sorted(python)), owned


def _elsewhere(folders: Mapping[str, str], home: str) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the chat templates in the workspace, and every other file outside of the tree."""
    templates: dict[str, bytes] = {}
    elsewhere: list[str] = []
    for place, folder in sorted(folders.items()):
        if place in {SITE, _PYTHON}:
            continue
        for path, info in scratch_copy.walk(folder):
            seen = f"{place}/{os.path.relpath(path, folder)}"
            if seen.startswith(f"{home}/"):
                continue
            if is_template(seen) and stat.S_ISREG(info.st_mode):
                templates[os.path.basename(seen)] = Path(path).read_bytes()
            else:
                elsewhere.append(seen)
    return templates, tuple(elsewhere)
