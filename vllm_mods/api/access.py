"""How a call gets at vLLM's releases, revisions and images."""

import functools
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from vllm_mods.base.tree import Tree
from vllm_mods.base.versions import is_final
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from vllm_mods.trees.release import Releases


class Access(ExitStack):
    """How a call gets at trees: from the cache alone or not, with which clone, and whom it tells.

    ``offline`` opens no connection. ``commits`` is where builds are found whose version names a commit: a clone of
    vLLM's repository, or the URL of an index that has a folder for each commit. ``note`` is called with each line that
    a user should know, ``progress`` with what is being read, the bytes done and the total (None if unknown).

    Trees that it opened (containers and mounts among them) are given back by ``close``, or where its
    ``with`` block ends.

    >>> with vm.Access(offline=True) as access:
    ...     access.open("site-packages").version
    '0.19.1'
    """

    def __init__(
        self,
        *,
        offline: bool = False,
        commits: str | None = None,
        note: Callable[[str], None] = lambda _text: None,
        progress: Callable[[str, int, int | None], None] | None = None,
    ) -> None:
        super().__init__()
        self.offline = offline
        self.commits = commits
        self.note = note
        self.progress = progress

    @functools.cached_property
    def releases(self) -> "Releases":
        """VLLM's releases; all that is read of them shares one pool of connections."""
        from vllm_mods.trees.release import Releases  # noqa: PLC0415  (requests: 100 ms)

        return Releases(
            offline=self.offline, progress=self.progress, note=self.note, commits=self.commits
        )

    def open(
        self,
        spec: str,
        *,
        workspace: str | None = None,
        verify: bool = False,
        others: Mapping[str, str] | None = None,
        platform: str | None = None,
        in_image: str | None = None,
    ) -> Tree:
        """Open a tree; the arguments, and what is raised, are those of ``open_tree``."""
        name = spec.removeprefix("pypi:")
        if name not in {"", spec} and not (workspace or platform or in_image):
            return self.releases.open(name, verify=verify, named=others)  # nothing to close
        tree = open_tree(
            spec,
            offline=self.offline,
            workspace=workspace,
            progress=self.progress,
            note=self.note,
            verify=verify,
            commits=self.commits,
            others=others,
            platform=platform,
            in_image=in_image,
        )
        return self.enter_context(tree)


def releases_in(access: Access, spec: str, *, plain: bool = False) -> tuple[str, ...]:
    """Return vLLM's releases in a range, oldest first; ``plain``: no wheels of their own, and final ones if there are any.

    Raises ``UsageError`` where there is none.
    """
    from vllm_mods.matrices.choose import choose_releases  # noqa: PLC0415  (the planner: 200 ms)

    specs = choose_releases((), access.releases.files(), spec)
    if plain:
        specs = tuple(one for one in specs if not one.endswith(".whl"))
        specs = tuple(one for one in specs if is_final(one.removeprefix("pypi:"))) or specs
    return specs
