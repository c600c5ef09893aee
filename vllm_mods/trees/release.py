"""``pypi:X``: a release, read from where pip would take it."""

import contextlib
import copy
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO

from packaging.version import Version

from vllm_mods.base.cache import Cache, cache_folder, file_digest
from vllm_mods.base.errors import TreeError, Unreachable, UsageError, reading
from vllm_mods.base.hops import check_hop, redact
from vllm_mods.base.tree import Tree
from vllm_mods.base.versions import nearest, node, parse
from vllm_mods.trees.archive import ArchiveTree, open_archive
from vllm_mods.trees.index import PROJECT, ReleaseFile, choose, release_file
from vllm_mods.trees.other_packages import Archive, OtherPackages
from vllm_mods.trees.pip_config import PipSettings, read_settings
from vllm_mods.trees.remote import RemoteZip, pin, seen_of
from vllm_mods.trees.sources import IndexAnswer, IndexSources, local_path
from vllm_mods.trees.spans import OFFLINE, NoRangesError

if TYPE_CHECKING:
    from vllm_mods.trees.http import Http

Progress = Callable[[str, int, int | None], None]
Note = Callable[[str], None]
_SETTINGS = "pip config list  # index-url, extra-index-url and find-links are taken from there"
_ONLINE = "pip config list  # its index and proxy are used; without a network use --offline (the cache), a folder, wheel:FILE or git:REPO@REV"


class Releases:
    """vLLM's releases, with one connection pool and one cache for all that is read of them.

    ``http`` is ``None`` offline; its ``received`` counts the bytes moved. ``commits`` is where builds are found
    whose version names a commit: a clone of upstream's repository, or the URL of an index for each commit.
    """

    def __init__(
        self,
        *,
        offline: bool = False,
        progress: Progress | None = None,
        note: Note | None = None,
        cache_dir: str | None = None,
        commits: str | None = None,
    ) -> None:
        self._commits = commits
        self._offline = offline
        self._progress = progress
        self._note = note
        self._tell = functools.cache(note or (lambda _: None))
        self._cache = Cache(cache_dir or cache_folder(os.environ), note=note)
        self._project = PROJECT
        self._others: dict[str, Releases] = {}
        self._connect(read_settings(os.environ))

    def _connect(self, settings: PipSettings) -> None:
        self._settings = settings
        self.http: Http | None = None
        if not self._offline:
            from vllm_mods.trees import http  # noqa: PLC0415  (requests: 0.2 s)

            self.http = http.Http(settings)
        self._sources = self._sources_of(PROJECT)

    def _sources_of(self, project: str) -> IndexSources:
        return IndexSources(self._settings, self._cache, self.http, self._note, project)

    def of(self, project: str) -> "Releases":
        """Return the releases of another project, with the same connections and the same cache."""
        if project not in self._others:
            other = self._others[project] = copy.copy(self)
            other._project = project  # noqa: SLF001  (it is of this class)
            other._sources = self._sources_of(project)  # noqa: SLF001
        return self._others[project]

    def archive(self, version: str) -> Archive:
        """Open a release of whatever project. Raises ``TreeError``."""
        return self._archive(choose(version, self.files()))[0]

    def files(self) -> tuple[ReleaseFile, ...]:
        """Return all files that any source has. Raises ``TreeError`` if none could be asked."""
        answer = self._sources.ask(fresh=False)
        if not answer.files:
            raise self._nothing(answer)
        for failure in answer.failures:
            self._tell(failure)
        return answer.files

    def versions(self) -> frozenset[str]:
        """Return the versions of all releases that were not yanked. Raises as ``files`` does."""
        return frozenset(file.version for file in self.files() if file.yanked is None)

    def open(
        self, name: str, *, verify: bool = False, named: Mapping[str, str] | None = None
    ) -> Tree:
        """Open a release by its version or by the name of one of its files; ``verify`` it first.

        ``latest`` is the newest that is no pre-release. ``named`` are versions of other packages to read beside it, by their names. Raises ``UsageError`` if there is no such release, ``TreeError`` if it cannot be read.
        """
        name = name.removeprefix(f"{self._project}==").strip()
        if name == "latest":
            name = self._latest()
        spec = f"pypi:{name}"
        commit = node(name) if self._commits is not None else None
        if self._commits is not None and commit is not None and "://" not in self._commits:
            from vllm_mods.trees.git import open_git  # noqa: PLC0415  (GitPython: 100 ms)

            return open_git(f"{self._commits}@{commit}", spec=spec, version=name)
        if commit is not None:
            urls = (*self._settings.index_urls, f"{self._commits}/{commit}")
            self._connect(self._settings._replace(index_urls=urls))
        if verify:
            self.verify(name)
        answer = self._sources.ask(fresh=False)
        candidates = choose(name, answer.files)
        if not candidates and answer.old:
            answer = self._sources.ask(fresh=True)
            candidates = choose(name, answer.files)
        if not candidates:
            raise self._unknown(name, spec, answer)
        for failure in answer.failures:
            self._tell(failure)
        if candidates[0].yanked is not None:
            reason = candidates[0].yanked or "no reason given"
            self._tell(f"{candidates[0].filename} was yanked: {reason}")
        archive, file = self._archive(candidates)
        seen = archive.seen if isinstance(archive, RemoteZip) else None
        in_parts = None if seen is None or seen.whole else seen.key
        tree = ArchiveTree(archive, spec=spec, remote=True, identity=in_parts or file.sha256)
        tree.releases = self
        tree.verified = "parts" if in_parts else file.sha256 and "whole"
        # Of a twin: a tree that its own packages refer to would stay until garbage is collected, with all that it read.
        tree.others = OtherPackages(self.of, tree.apart().metadata, file.uploaded, named or {})
        return tree

    def _latest(self) -> str:
        versions = [Version(version) for version in self.versions()]
        stable = [version for version in versions if not version.is_prerelease]
        if not stable:
            raise UsageError("pypi:latest: the index has only pre-releases", hint=_SETTINGS)
        self._tell(f"pypi:latest is {max(stable)}")
        return str(max(stable))

    def whole(self, name: str) -> Tree:
        """Open a release, all its source here: an sdist, else a wheel. Raises as ``open``."""
        files = self._sources.ask(fresh=False).files
        candidates = choose(name, files)
        if not candidates:
            return self.open(name)  # says which there are
        version = candidates[0].version
        sdists = [one for one in files if one.kind == "sdist" and one.version == version]
        file = next((one for one in sdists if one.yanked is None), candidates[0])
        self._check_link(file)
        archive = open_archive(file.kind, self._here(file) or self._download(file), file.filename)
        tree = ArchiveTree(archive, spec=f"pypi:{name}", identity=file.sha256)
        tree.releases = self
        return tree

    def verify(self, name: str, *, unstated: bool = False) -> None:
        """Have a release's wheel once as a whole, unless it was, and hold it to the hash that the index states.

        It passes through a temporary file; what is kept says what is in it. Raises ``TreeError``; where the
        index states none, and this may be (``unstated``), there is a note.
        """
        file = next(iter(choose(name, self._sources.ask(fresh=False).files)), None)
        if file is None or file.kind != "wheel" or local_path(file.url) is not None:
            return  # what is no wheel, or lies here, is always read as a whole
        if file.sha256 is None:
            why = f"{file.filename}: the index states no sha256, so the file cannot be verified"
            if not unstated:
                raise TreeError(why, hint=_SETTINGS)
            self._tell(why)
            return
        self._check_link(file)
        seen = seen_of(file, self._cache, None)
        if seen is None or not seen.whole:
            here = self._here(file)
            with self._fetched(file) if here is None else contextlib.nullcontext(here) as whole:
                pin(file, self._cache, whole)

    def identity(self, name: str) -> str | None:
        """Return the ``identity`` that ``open`` would give, where it is known without opening anything.

        That of a wheel tells what was seen of it, until all of it was verified: then it is its sha256.
        """
        if self._commits is not None and node(name) is not None:
            return None
        file = next(iter(choose(name, self._sources.ask(fresh=False).files)), None)
        if file is None:
            return None
        if file.kind != "wheel" or local_path(file.url) is not None:
            return file.sha256
        seen = seen_of(file, self._cache, self.http)
        return None if seen is None else file.sha256 if seen.whole else seen.key

    def _archive(self, candidates: tuple[ReleaseFile, ...]) -> tuple[Archive, ReleaseFile]:
        """Read the first by ranges, else the sdist or the first whole; say which file it was."""
        best = candidates[0]
        self._check_link(best)
        here = self._here(best)
        if here is None and best.kind == "wheel":
            try:
                return RemoteZip(best, self._cache, self.http, progress=self._progress), best
            except NoRangesError:
                sdists = [file for file in candidates if file.kind == "sdist"]
                # smaller; but a rebuilt wheel (it has a build tag) may hold other sources
                best = sdists[0] if sdists and not best.build else best
                self._check_link(best)
                if self.http is not None:
                    self._tell(f"the server sends only whole files: downloading {best.filename}")
                here = self._here(best)
        return open_archive(best.kind, here or self._download(best), best.filename), best

    def _check_link(self, file: ReleaseFile) -> None:
        """Raise ``TreeError`` for a link that leads where the page it is on may not."""
        if file.page:
            check_hop(file.page, file.url, self._settings.trusts)

    def _download(self, file: ReleaseFile) -> BinaryIO:
        with self._fetched(file) as scratch:
            digest = file_digest(scratch)
            self._cache.keep_file(scratch, digest)
            self._cache.record("downloads", file.url, data=digest.encode())
            return scratch

    @contextlib.contextmanager
    def _fetched(self, file: ReleaseFile) -> Iterator[BinaryIO]:
        """Give a temporary file with all of a release's, which has the hash that the index states, if any."""
        if self.http is None:
            raise Unreachable(f"{file.filename}: it is not in the cache", hint=OFFLINE)
        tell = self._progress and functools.partial(self._progress, f"downloading {file.filename}")
        with self._cache.scratch() as scratch:
            self.http.download(file.url, scratch, tell)
            scratch.flush()
            self._check(file, file_digest(scratch))
            yield scratch

    def _here(self, file: ReleaseFile) -> BinaryIO | None:
        """Open what lies on this machine, or an earlier download: by its hash or, where the index gives none, by its URL."""
        place = local_path(file.url)
        if place is None:
            link = self._cache.lookup("downloads", file.url) if file.sha256 is None else None
            digest = link.decode("ascii", "replace") if link else file.sha256
            return self._cache.get_file(digest) if digest else None
        with reading(place, hint=_SETTINGS), contextlib.ExitStack() as closing:
            opened = closing.enter_context(open(place, "rb"))
            if file.sha256 is not None:
                self._check(file, file_digest(opened))
            closing.pop_all()  # it lives as long as the tree
            return opened

    def _check(self, file: ReleaseFile, digest: str) -> None:
        if file.sha256 is not None and digest != file.sha256:
            why = f"{file.filename} from {redact(file.url)}: its sha256 is {digest}, but the index says {file.sha256}"
            raise TreeError(why, hint="the index or a proxy changed the file: try another index")

    def _unknown(self, name: str, spec: str, answer: IndexAnswer) -> TreeError | UsageError:
        if not answer.files or answer.failures:
            what = "no answer" if answer.failures else "not found"
            return self._nothing(answer, what=f"{spec}: {what}")
        if parse(name) is None:
            named = release_file(name, "")
            version = named and named.version
            near = [file.filename for file in answer.files if file.version == version]
            why = "neither a vLLM version nor the name of a release's file"
            if near:
                why = f"no such file; files of that release: {', '.join(near)}"
            return UsageError(f"{spec}: {why}", hint="pypi:VERSION")
        if self.http is None:
            return Unreachable(f"{spec}: the cached index has no such release", hint=OFFLINE)
        if built := node(name):
            return UsageError(
                f"{spec}: this is a build of the commit {built}, and no index has that build",
                hint=f"use --commits REPO or git:REPO@{built}, where REPO is a clone of vLLM; or wheel:FILE; or the folder where this build is installed",
            )
        versions = nearest(name, {file.version for file in answer.files}, 5)
        why = f"{spec}: there is no such release; the nearest are {', '.join(versions)}"
        return UsageError(why, hint=f"pypi:{versions[0]}")

    def _nothing(self, answer: IndexAnswer, what: str = "") -> TreeError:
        hint = (OFFLINE if self.http is None else _ONLINE) if answer.failures else _SETTINGS
        why = "".join(f"\n  {failure}" for failure in answer.failures)
        kind = Unreachable if answer.failures else TreeError
        lack = "cannot list the releases of {}" if answer.failures else "no release of {} found"
        what = what or lack.format(self._project)
        return kind(f"{what}{why or ': no index or folder has it'}", hint=hint)
