"""A command run on a copy of a tree, laid out as in an image; what it changed, and what it did elsewhere."""

import contextlib
import itertools
import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base.errors import EXIT_NO, Refused, UsageError
from vllm_mods.base.model import FileChange
from vllm_mods.base.tree import Tree
from vllm_mods.formats import image_paths
from vllm_mods.images import engine_command
from vllm_mods.making import compose, entries, sandbox, watching
from vllm_mods.making.compose import ModEffect
from vllm_mods.making.fetching import DownloadedFile, Fetcher, Lacked
from vllm_mods.making.inside import served
from vllm_mods.making.watching import LAUNCHER, SITE, WORKSPACE, Watched, WatchedCommand
from vllm_mods.trees.image import ImageTree

HOME = "/root"
TEMPORARY = "/tmp"  # noqa: S108  (as it is called in the container)
_TEMPLATE = re.compile(rf"{WORKSPACE}/[^/]*\.(?:jinja2?|j2)\Z")
_LINES = 15
_COMPILED = re.compile(r".*\.(?:pyc|so(?:\.\d+)*)\Z")
_OPTIONAL_STEPS = 30  # so many are recorded one by one; of more, all that went in are needed
_EACH = "--each NAME names a Python function in the script's files, or a program, that the script calls once for each patch; bash functions are neither"
_CHECKS = 9  # so many may fail and be left out: each is one more run
_Once = tuple[ModEffect, tuple[WatchedCommand, ...], str]
_PATCH = re.compile(r"([A-Za-z0-9._-]+)\.(?:patch|diff)\b")


class Limits(NamedTuple):
    """What a command may do, and for how long; ``also`` are packages that it sees beside vllm."""

    seconds: float = 600
    also: tuple[str, ...] = ()
    environ: tuple[str, ...] = ()
    """Variables of the container, each ``NAME=value``."""
    ignore_checks: bool = False
    """Whether a step that fails and changes nothing is left out, and said."""
    each: str | None = None
    partial: bool = False
    """The program or Python function that puts in each entry of a registry, and whether some may fail."""


def record(
    argv: Sequence[str],
    name: str,
    files: Mapping[str, bytes],
    tree: Tree,
    limits: Limits,
    *,
    container: sandbox.ImageInEngine | None = None,
    fetcher: Fetcher | None = None,
) -> ModEffect:
    """Run a command as launchers run a mod of these files, on a copy of a tree, until it has what ``fetcher`` can take.

    Raises ``Refused`` if it fails, changes nothing, goes past a limit, leaves a patch half applied or makes what
    a mod cannot have, or where there is no sandbox; ``UsageError`` for a tree that cannot be copied, and limits that do not go together.
    """
    if limits.partial and limits.each is None:
        raise UsageError("--partial needs --each", hint="--each NAME --partial")
    whole = _whole_of(tree)
    sources = _read_sources(whole, tree, limits.also) if container is None else {}
    wanted = limits._replace(partial=limits.partial and fetcher is None)  # all is fetched first
    while True:
        fetched = fetcher.files() if fetcher is not None else ()
        run = _RecordedRun(argv, name, files, sources, whole, tree, wanted, container, fetched)
        try:
            return run.run()
        except Lacked as error:
            if fetcher is None or not fetcher.take(error.urls):
                if wanted == limits:
                    raise
                wanted = limits


def container_of(tree: Tree) -> sandbox.ImageInEngine:
    """Return where the image of a tree can be run. Raises ``UsageError`` for one that no engine here has."""
    base = tree.base if isinstance(tree, ImageTree) else None
    if base is None or base.where not in engine_command.STORES:
        where = "" if base is None else f": it is in {base.where}"
        why = f"{tree.spec} is not an image of a container engine{where}"
        raise UsageError(why, hint="docker pull IMAGE, then --image IMAGE")
    return sandbox.ImageInEngine(engine_command.STORES[base.where], base.reference)


class _RecordedRun(NamedTuple):
    argv: Sequence[str]
    name: str
    files: Mapping[str, bytes]
    sources: Mapping[str, bytes]
    """What is laid out for it; an image has all of it."""
    whole: Tree
    """What the ``sources`` were read from: of a release, its sdist."""
    tree: Tree
    limits: Limits
    container: sandbox.ImageInEngine | None
    fetched: tuple[DownloadedFile, ...]
    left_out: tuple[WatchedCommand, ...] = ()
    """Checks that failed, whose lines the script is run without."""
    goes_on: bool = False
    """Whether the script is not told of entries that fail."""

    @property
    def site(self) -> str:
        """Where Python's packages lie in the sandbox."""
        if self.container is not None and isinstance(self.tree, ImageTree):
            return f"/{self.tree.site_root}"
        return SITE

    @property
    def home(self) -> str:
        """The folder of the mod in the sandbox."""
        return f"{WORKSPACE}/mods/{self.name}"

    def run(self) -> ModEffect:
        """Run the command and read what it did; where it does without patches that fail, once more for each of them."""
        effect, steps, output = self.run_once()
        if not (effect.changes or effect.templates):
            why = f"the command succeeded but changed nothing in vLLM{last_lines(output)}"
            raise Refused(why, hint=watching.OF_TREE)
        if self.limits.each or not 0 < len(steps) <= _OPTIONAL_STEPS:
            return effect
        with contextlib.suppress(Refused):  # it does not do without: nothing is optional
            stages = [self.run_once(most)[0].changes for most in range(len(steps))]
            names = ((_PATCH.findall(" ".join(one.argv)) or ["optional"])[-1] for one in steps)
            between = zip(names, itertools.pairwise((*stages, effect.changes)), strict=True)
            changing = ((name, before) for name, (before, after) in between if before != after)
            without = ((name, {one.path: one.after for one in files}) for name, files in changing)
            optional = tuple(without)
            if stages[0] or len(optional) > 1:  # one alone is all of the mod
                effect = effect._replace(optional=optional)
        return effect

    def run_once(self, most: int | None = None) -> _Once:
        """Run the command; return what it did, its steps that may fail, and what it printed.

        No more than ``most`` of these steps are taken: the others fail.
        """
        place = self.site if self.container is None else sandbox.LAYER
        job = sandbox.SandboxJob(
            argv=self.argv,
            cwd=self.home,
            environ=self._environ() | ({} if most is None else {"VLLM_MODS_STEPS": str(most)}),
            files=self._laid_out(),
            places=[place, WORKSPACE, HOME, TEMPORARY, LAUNCHER],
            programs=watching.BIN,
            seconds=self.limits.seconds,
        )
        ran = sandbox.run(job, self.container)
        seen = watching.read(ran.written, self.files, ran.environ)
        if self.limits.each:
            written = {path: entries.WATCHING.sub(b"", data) for path, data in ran.written.items()}
            return self.by_entry(ran._replace(written=written), seen), (), ran.output
        if self.limits.ignore_checks and (check := self.failed_check(ran, seen)) is not None:
            return self.without(check, ran, seen, most)
        self._check(ran, seen)
        return self._effect(ran, seen), seen.free, ran.output

    def by_entry(self, ran: sandbox.Ran, seen: Watched) -> ModEffect:
        """Return what a registry did by its entries. Raises ``Refused`` where it has none, and for some that fail, unless that is wanted."""
        tried = entries.read(ran.written)
        end = f"the script ended with exit code {ran.code} after {len(tried)} calls of {self.limits.each}"
        if not tried:
            raise Refused(f"{end}; nothing was written{last_lines(ran.output)}", hint=_EACH)
        if ran.code and tried[-1].failed and not self.goes_on:  # it may have ended there
            return self._replace(goes_on=True).run_once()[0]
        if ran.code and not any(one.failed for one in tried):  # it says that some are not in
            tried = tuple(one._replace(failed=not one.changed) for one in tried)
        notes = [f"{end}{last_lines(ran.output)}"] * bool(ran.code)
        if places := {("python", one.place) for one in tried if one.failed}:
            others = (one for one in seen.failed if (one.argv[0][:6], one.place) not in places)
            unreached = ran.unreached - sum(one.unreached for one in tried if one.failed)
            ran = ran._replace(code=0, unreached=unreached)
            seen = seen._replace(failed=tuple(others))
        self._check(ran, seen)
        effect = entries.split(self._effect(ran, seen), tried, notes)
        if effect.failed and not (self.limits.partial and effect.optional):
            lines = "".join(f"\n  {one}" for one in (*effect.failed, *notes))
            why = f"{len(effect.failed)} of {len(tried)} calls failed; nothing was written{lines}"
            dropped = {f"{LAUNCHER}/asked": ran.written.get(f"{LAUNCHER}/dropped", b"")}
            error = self._lacking(why, lines, watching.read(dropped, self.files, ran.environ))
            error.hint = f"--partial makes the mod without the calls that failed; {error.hint}"
            error.exit_code = EXIT_NO
            raise error
        return effect

    def failed_check(self, ran: sandbox.Ran, seen: Watched) -> WatchedCommand | None:
        """Return the step that ended the run, if it may have been a check, and nothing that it asked for was refused."""
        tried = [one.place for one in self.left_out]
        is_none = seen.check is None or seen.check.place in tried or len(tried) == _CHECKS
        return None if not ran.code or is_none or seen.lacked or ran.unreached else seen.check

    def without(
        self, check: WatchedCommand, ran: sandbox.Ran, seen: Watched, most: int | None
    ) -> _Once:
        """Run the command without a check that failed. That it changes the very same proves that it was only a check, and the last step.

        Raises ``Refused`` where it does not: the check changed files itself, or others would have been changed after it.
        """
        again = self._replace(left_out=(*self.left_out, check))
        effect, free, output = again.run_once(most)
        failed = self._effect(ran, seen)
        other = {one.path for one in {*failed.changes} ^ {*effect.changes}}
        other |= {name for name, _ in {*failed.templates.items()} ^ {*effect.templates.items()}}
        other |= {name for name, _ in {*failed.env} ^ {*effect.env}}
        other |= {*failed.python} ^ {*effect.python}
        if other:
            why = f"{check} failed and cannot be ignored, because without this step the script makes a different mod ({', '.join(sorted(other))}); nothing was written{last_lines(ran.output)}"
            hint = "--ignore-checks is for a check after all changes: move the check to the end, as a separate step"
            raise Refused(why, hint=hint)
        note = f"{check} failed with exit code {ran.code} and was ignored, because without this step the script makes the same changes{last_lines(ran.output)}"
        return effect._replace(notes=(note, *effect.notes)), free, output

    def _found(self, path: str) -> bytes | None:
        """Return a file as the command found it."""
        return self.sources[path] if path in self.sources else self.whole.read(path)

    def _laid_out(self) -> dict[str, bytes]:
        """Return the files that the command finds, by absolute path."""
        files = {f"{self.site}/{path}": data for path, data in self.sources.items()}
        if self.container is None:  # an image has it
            version = self.tree.version or "0"
            metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
            files[f"{SITE}/vllm-{version}.dist-info/METADATA"] = metadata.encode()
        own = entries.watched(self.files, self.limits.each) if self.limits.each else self.files
        files |= {posixpath.join(self.home, path): data for path, data in own.items()}
        files |= watching.programs()
        if self.fetched:
            folder = f"{LAUNCHER}/{served.FOLDER}"
            index = {one.url: str(number) for number, one in enumerate(self.fetched)}
            files[f"{folder}/{served.INDEX}"] = json.dumps(index).encode()
            files |= {f"{folder}/{index[one.url]}": one.data for one in self.fetched}
        return files

    def _environ(self) -> dict[str, str]:
        given = {}
        for text in self.limits.environ:
            name, equals, value = text.partition("=")
            if not (name and equals):
                raise UsageError(f"--env {text} is not NAME=VALUE", hint="--env VLLM_USE_X=1")
            given[name] = value
        left_out = (one.place.removeprefix(watching.NO_SCRIPT) for one in self.left_out)
        return {
            **watching.ENVIRON,
            "VLLM_MODS_VERSION": self.tree.version or "0",
            "VLLM_MODS_MAY_FAIL": f" {' '.join(watching.lines_that_may_fail(self.files))} ",
            "VLLM_MODS_EACH": self.limits.each or "",
            "VLLM_MODS_ROOTS": ":".join(("vllm", *self.limits.also)) if self.container else "",
            "VLLM_MODS_GOES_ON": "1" * self.goes_on,
            "VLLM_MODS_LEFT_OUT": f" {' '.join(left_out)} ",
            "HOME": HOME,
            "LANG": "C.UTF-8",
            "WORKSPACE_DIR": WORKSPACE,
            "PYTHON_ROOT": self.site,
            "VLLM_SITE_PACKAGES": self.site,
            "VLLM_PACKAGE_DIR": f"{self.site}/vllm",
            "PYTHONPATH": f"{LAUNCHER}:{self.site}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PIP_RETRIES": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "UV_OFFLINE": "1",
            **given,
        }

    def _check(self, ran: sandbox.Ran, seen: Watched) -> None:
        """Refuse a run that failed, lacked something, or survived the failure of a step: nobody knows the mod whole."""
        output = last_lines(ran.output)
        if ran.code:
            last = f"\n  the command ended at {seen.ended}" if seen.ended else ""
            if self.limits.ignore_checks:
                last += "\n  --ignore-checks does not help: the step that failed is no check at the end of a bash script"
            last += "\n  the sandbox has no network and no GPU, and refused:" * bool(seen.lacked)
            why = f"the command failed with exit code {ran.code}; nothing was written{last}{_listed(seen.lacked)}{output}"
            error = self._lacking(why, output, seen)
            check = None if self.limits.ignore_checks else self.failed_check(ran, seen)
            if check is not None and any(path.startswith(f"{self.site}/") for path in ran.written):
                error.hint = f"{error.hint}; or --ignore-checks, if {check} only checks"
            raise error
        if rejects := [path for path in ran.written if path.endswith(".rej")]:
            named = ", ".join(path.removeprefix(f"{self.site}/") for path in rejects)
            why = f"a patch was only partly applied: {named}; nothing was written{output}"
            raise Refused(why, hint=watching.OF_TREE)
        if seen.lacked or ran.unreached:
            lines = _listed(seen.lacked) or "\n  the command tried to use the network"
            why = f"the sandbox has no network and no GPU. It refused these requests, so the effect of the command is unknown. Nothing was written{lines}"
            raise self._lacking(why, "", seen)
        if seen.failed:
            why = f"a step failed and the command continued, so the changes are incomplete; nothing was written{_listed(seen.failed)}{output}"
            raise Refused(why, hint=watching.OF_TREE)

    def _lacking(self, message: str, output: str, seen: Watched) -> Lacked:
        """Return the refusal of a run that failed, with the URLs that it asked for and did not get."""
        in_image = self.container is not None
        error = Lacked(message, hint=watching.hint(output, seen.lacked, in_image=in_image))
        fetches = (one.argv for one in seen.lacked if one.argv[0] in {"curl", "wget"})
        error.urls = tuple(one[0] for one in map(served.parse, map(list, fetches)) if one)
        return error

    def _effect(self, ran: sandbox.Ran, seen: Watched) -> ModEffect:
        """Return what a run did. Raises ``Refused`` for what no mod can have."""
        start = len(self.site) + 1
        every = (*ran.written, *ran.gone, *ran.odd)
        inner = {path for path in every if path.startswith(f"{self.site}/")}
        if links := [path[start:] for path in ran.odd if path in inner]:
            why = f"{links[0]} became a link or a special file, and a mod can contain only regular files"
            raise Refused(why, hint="change the command to copy the file itself")
        after: dict[str, bytes | None] = {path[start:]: ran.written.get(path) for path in inner}
        before = {path: self.tree.read(path) for path in sorted(after)}
        changed = (path for path, data in before.items() if data != after[path])
        changes = tuple(FileChange(path, before[path], after[path]) for path in changed)
        other = [one.path for one in changes if self._found(one.path) != one.before]
        if other:
            why = f"{', '.join(other)}: the sdist that the command ran on differs from {self.tree.spec}"
            hint = f"pip download --no-deps vllm=={self.tree.version}, then --tree wheel:FILE"
            raise Refused(why, hint=hint)
        own = (f"{self.home}/", f"{LAUNCHER}/", f"{self.site}/")
        elsewhere = sorted(path for path in every if not path.startswith(own))
        kept = [path for path in elsewhere if path in ran.written and _TEMPLATE.match(path)]
        templates = {posixpath.basename(path): ran.written[path] for path in kept}
        why = "is set only while the script runs; to keep the variable, add it to [env] in mod.toml"
        named = (f"{name}={value} {why}" for name, value in seen.exported)
        skipped = (f"{one} failed; the script goes on without it" for one in seen.free if one.code)
        lost = (_lost(path, ran) for path in elsewhere if path not in kept)
        unused = (f"--also {one} has no effect on an image" for one in self.limits.also)
        notes = (*lost, *named, *skipped, *(unused if self.container is not None else ()))
        effect = ModEffect(changes, templates, seen.installed, seen.exported, self.fetched, notes)
        return compose.without_backups(effect, lambda path: self._found(path) is not None)


def _lost(path: str, ran: sandbox.Ran) -> str:
    """Say what becomes of a file that a run changed, outside of Python's packages."""
    if path in ran.gone:
        return f"the command removed {path}, which a mod cannot do"
    temporary = path.startswith((f"{HOME}/", f"{TEMPORARY}/", f"{WORKSPACE}/"))
    if temporary or path in ran.odd or image_paths.objection(path):
        return f"the command wrote {path}, which a mod cannot contain"
    return f"the command wrote {path}; if container images need that file, add it to [[files]] in mod.toml"


def _listed(steps: Iterable[WatchedCommand]) -> str:
    return "".join(f"\n  {one}" for one in dict.fromkeys(steps))


def last_lines(output: str) -> str:
    """Return the last lines that a command printed, to stand below a message."""
    lines = [line for line in output.splitlines() if line.strip()]
    return "".join(f"\n  | {line}" for line in lines[-_LINES:])


def _read_sources(whole: Tree, tree: Tree, also: Sequence[str]) -> dict[str, bytes]:
    """Read packages, compiled code left out. Raises ``UsageError`` for a tree that has not got one whole."""
    files: dict[str, bytes] = {}
    for package in ("vllm", *also):
        # an sdist has vLLM alone, and a release the packages beside it
        for source in (whole, tree):
            paths = [path for path in source.paths(package) if not _COMPILED.match(path)]
            if paths:
                files |= {path: data for path in paths if (data := source.read(path)) is not None}
                break
        else:
            raise UsageError(f"{tree.spec} has no package {package}", hint="--also PACKAGE")
    return files


def _whole_of(tree: Tree) -> Tree:
    """Return a tree with all of its source here. Raises ``UsageError`` for one that is read in parts."""
    if not tree.remote:
        return tree
    if tree.releases is not None:
        return tree.releases.whole(tree.spec.removeprefix("pypi:"))
    why = f"{tree.spec} is read in parts, but the command needs the whole wheel"
    hint = f"pip download --no-deps vllm=={tree.version}, then --tree wheel:FILE"
    raise UsageError(why, hint=hint)
