"""``vllm-mods port`` and ``keep``: mods carried over to other vLLMs."""

from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.libraries import other_packages
from vllm_mods.api.port import abort_port, continue_port, port
from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, kept_options, options
from vllm_mods.cli.options import option
from vllm_mods.library.catalog import Library
from vllm_mods.report import port as report
from vllm_mods.report.reply import Reply


@click.command(name="port")
@click.argument("mod", metavar="MOD", shell_complete=options.complete_mods)
@option("--to TREE", "The vLLM to port to.", "target")
@option("--from TREE", "The vLLM that the variant was written for [from mod.lock].", "base")
@option("--variant ID", "The variant to port [the variant for the nearest version].")
@option("--as ID", "The id of the new variant.", "name")
@option("--vllm SPEC", "The version range of the new variant [only the target].")
@option("--no-repair", "Write the merged code without repairs, even if it does not fit.")
@option("--output DIR", "Write a copy of the mod to DIR/patches; leave the original unchanged.")
@options.others
@option("--continue", "Finish a port from its edited files.", "go_on")
@option("--abort", "Remove an unfinished port.")
@options.own_library
@options.access_to_commits
@options.json_output
def port_command(
    mod: str,
    target: str | None,
    others: tuple[str, ...],
    library: Library,
    access: Access,
    *,
    output: str | None,
    go_on: bool,
    abort: bool,
    no_repair: bool,
    **given: Any,
) -> Reply:
    """Make a variant of a mod for another vLLM version.

    `port` merges the variant's changes into the target twice: file by file, and class by class. Both must give
    the same result. If files, classes or functions have moved, `port` follows them and prints each move. A clean port that
    applies to the target becomes a new variant. If there is a conflict, only files with git's conflict markers are
    written: edit them, then run `port MOD --continue`. Exit code 0 for a new variant or if none is needed, 1 for a
    conflict or a port that would not work.
    """
    if sum((go_on, abort, target is not None)) != 1:
        why = "give exactly one of --to, --continue and --abort"
        raise UsageError(why, hint=f"vllm-mods port {mod} --to TREE")
    if target is None:
        which, names = "--abort" if abort else "--continue", {"others", "no_repair", *given}
        options.refuse_beside(which, names, f"vllm-mods port {mod} --to TREE")
    if abort:
        work = abort_port(library, mod, output=output)
        return Reply({"mod": work.mod, "aborted": work.name}, f"removed {work.folder}")
    where: dict[str, Any] = {"output": output, "access": access}
    if target is None:
        result = continue_port(library, mod, **where)
    else:
        beside = other_packages(others, (library.load(mod),))
        result = port(library, mod, target, others=beside, repair=not no_repair, **where, **given)
    return report.ported(result)


@click.command(name="keep")
@click.argument("mods", metavar="[MOD]...", nargs=-1)
@option("--library DIR", "A library in a git repository.", required=True)
@option("--since RELEASE", "Look only at releases after RELEASE [the newest release in mod.lock].")
@option("--vllm SPEC", "Look only at releases in this range.")
@option("--pre", "Include pre-releases.")
@option("--commits REPO", "Also look at the newest commit of this clone of vLLM.")
@option("--pull-requests", "Push the branches, and open a pull request for each.")
@option("--remote NAME", "With --pull-requests: the git remote to push to [the only remote].")
@option("--dry-run", "With --pull-requests: push nothing, and print what would be done.")
@option("--offline", "Use only the cache; do not use the network.")
@options.json_flag
def keep_command(
    library: str, *, commits: str | None, offline: bool, dry_run: bool, as_json: bool, **given: Any
) -> int:
    """Keep a library up to date with vLLM's releases, on branches of its git repository.

    For each mod and each new release: if a variant applies, its range is widened; if none applies, the mod is
    ported; if the release already has the change, the range ends before that release. Each result is one commit on a branch vllm-mods/MOD/RELEASE, on top of the branch of the previous release. The commit's message is the text for a pull request. `keep` recreates an existing branch only if the mod has changed and
    no one else has committed to that branch. The working tree does not change. Exit code 1 if some work is left for a person.

    With --pull-requests, each branch gets one pull request at GitHub, GitLab, Gitea or Forgejo. `keep` opens the pull request, updates it when the branch
    changes, and closes it when nothing is left to do. The token is in GITHUB_TOKEN, GITLAB_TOKEN, GITEA_TOKEN or FORGEJO_TOKEN.
    """
    from vllm_mods.api.keep import keep  # noqa: PLC0415  (GitPython: 100 ms)
    from vllm_mods.report import keep as kept  # noqa: PLC0415

    if offline and given["pull_requests"]:
        raise UsageError("--pull-requests cannot be used with --offline", hint="omit one")
    given |= {"access": options.open_access(offline=offline, commits=commits), "dry_run": dry_run}
    outcomes = []
    for outcome in keep(library, message=kept.message, request=kept.request, **given):
        outcomes.append(outcome)
        if not as_json:
            call = ("--library", library, "--to", f"pypi:{getattr(outcome, 'release', '')}")
            click.echo(kept_options.keep(kept.line(outcome, dry_run=dry_run), call))
    return answers.print_reply(kept.kept(library, outcomes), as_json=as_json)
