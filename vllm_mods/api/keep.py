"""A library kept up with vLLM's releases, on branches of its repository."""

from collections.abc import Callable, Iterator, Sequence

from vllm_mods.api.access import Access
from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.base.versions import in_range, is_final
from vllm_mods.keeping import branches, keeping
from vllm_mods.keeping.proposing import Proposal
from vllm_mods.keeping.pull_requests import MakeText, PullRequests
from vllm_mods.library.catalog import Library, root_of
from vllm_mods.matrices.choose import choose_releases
from vllm_mods.trees.git import newest_build


def keep(
    folder: str,
    mods: Sequence[str] = (),
    *,
    message: Callable[[keeping.KeptRelease], str],
    request: MakeText,
    since: str | None = None,
    vllm: str | None = None,
    pre: bool = False,
    access: Access,
    pull_requests: bool = False,
    remote: str | None = None,
    dry_run: bool = False,
) -> Iterator[keeping.KeptRelease | Proposal]:
    """Bring the mods of a library in a git repository up to the releases that are new to them.

    ``mods`` are names, without them all that the ``folder`` has; ``message`` returns the text of a commit.
    Releases newer than ``since`` (without it, than all that ``mod.lock`` knows), or those in the range ``vllm``;
    pre-releases with ``pre``; and the newest commit of the clone that ``access`` has for commits.

    With ``pull_requests``, the branches are pushed to the ``remote`` (without a name, the only one), and each has one
    request there, whose text ``request`` makes of a commit's message and a diff; a ``dry_run`` does neither.

    Yields a ``KeptRelease`` for each mod and release as it is done, then a ``Proposal`` for each request. Raises
    ``UsageError`` for a mod that the library does not have, and for a library in no repository.
    """
    if (remote or dry_run) and not pull_requests:
        raise UsageError("--remote and --dry-run need --pull-requests", hint="--pull-requests")
    if since is not None and in_range(since, "") is None:
        raise UsageError(f"--since {since}: not a version", hint="--since 0.33.0")
    home = branches.home(folder)
    if (at := branches.tip(home, "HEAD")) is None:
        raise ManifestError(folder, ("the repository has no commit yet",), hint="git commit")
    with branches.laid_out(home, at) as place:
        library = Library(place)
        own = {mod.name: mod for mod in map(library.load, library.names()) if root_of(mod) == place}
    if unknown := [name for name in mods if name not in own]:
        why = f"{folder} has no mod {', '.join(unknown)} in its last commit"
        raise UsageError(why, hint=f"vllm-mods list --library {folder}")
    specs = choose_releases((), access.releases.files(), ">=0" if vllm is None else vllm, pre=pre)
    numbers = [spec.removeprefix("pypi:") for spec in specs if not spec.endswith(".whl")]
    versions = [name for name in numbers if pre or vllm is not None or is_final(name)]
    if access.commits is not None and (build := newest_build(access.commits)) is not None:
        versions.append(build)
    requests = PullRequests(folder, remote) if pull_requests else None
    kept = []
    for name in mods or own:
        proposed = requests.releases(name) if requests else ()
        wanted = keeping.new_to(own[name], versions, since, proposed)
        for release in keeping.run(home, at, name, wanted, access.releases, message=message):
            kept.append(release)
            yield release
    if requests:
        yield from requests.propose(kept, request, dry_run=dry_run)
