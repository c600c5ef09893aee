"""The one way to run git: in limits of time and output, in a clean environment, and without a question to anybody.

No program runs that a repository names: no hook, no monitor, no credential helper of its own.
"""

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base import limits, own_process


class GitOutcome(NamedTuple):
    """How git ended: its exit code, what it printed, and why it failed, ``""`` if it did not."""

    code: int
    out: bytes
    why: str = ""

    @property
    def text(self) -> str:
        """What it printed, without white space around it."""
        return self.out.decode("utf-8", "surrogateescape").strip()


_OF_A_REPOSITORY = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_SHALLOW_FILE"),
    *("GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE"),
    *("GIT_EXTERNAL_DIFF", "GIT_QUARANTINE_PATH"),
)
"""What a hook that runs this has in its environment of its own repository."""
_NOBODYS_OWN = ("GIT_EXEC_PATH", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH")
_SAFE = {
    "core.alternateRefsCommand": "true",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.splitIndex": "false",  # a scratch index lays no file beside the repository's own
    "fetch.writeCommitGraph": "false",
    "gc.auto": "0",
    "http.lowSpeedLimit": "1",
    "maintenance.auto": "false",
}


def environment(
    environ: Mapping[str, str],
    *,
    alone: bool = False,
    logins: bool = False,
    transports: str = "http:https:ssh",
    settings: Sequence[tuple[str, str]] = (),
) -> dict[str, str]:
    """Return the environment for git, made from ``environ``.

    If it is ``alone``, the machine's and the user's configuration do not hold, and https is the only transport.
    A clone may lack objects, which git then fetches from where the clone's own ``config`` says: by one of the
    ``transports`` only. Credential helpers are asked with ``logins`` alone, since that ``config`` can name some.
    ``settings`` count after all others.
    """
    ours = {name for name in environ if not name.startswith("GIT_") or name in _NOBODYS_OWN}
    kept = ours if alone else ours | environ.keys() - {*_OF_A_REPOSITORY}
    safe = {name: value for name, value in environ.items() if name in kept}
    first = int(safe.get("GIT_CONFIG_COUNT") or 0)
    pairs = [*_SAFE.items(), ("http.lowSpeedTime", str(int(limits.SILENT_SECONDS)))]
    if not logins:
        pairs.append(("credential.helper", ""))
    pairs += settings
    for number, (key, value) in enumerate(pairs, first):
        safe |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    safe |= {
        "GIT_CONFIG_COUNT": str(first + len(pairs)),
        # of the process that hands out blobs, which GitPython starts: the most at a time
        "GIT_ALLOC_LIMIT": str(int(limits.GIT_MEMORY) // 4),
        "GIT_ALLOW_PROTOCOL": "https" if alone else transports,
        "GIT_LITERAL_PATHSPECS": "1",
        "LANGUAGE": "C",
        "LC_ALL": "C",
    }
    if alone:
        safe |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    if not logins:
        # by a variable, so that a repository's `core.sshCommand` does not count
        ssh = safe.get("GIT_SSH_COMMAND") or safe.get("GIT_SSH") or "ssh"
        safe |= {"GIT_ASKPASS": "", "GIT_SSH_COMMAND": ssh}
        safe |= {"GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never"}
    return safe


def run(
    folder: str,
    words: tuple[str, ...],
    environ: Mapping[str, str],
    *,
    given: bytes = b"",
    terminal: bool = False,
) -> GitOutcome:
    """Run git in a folder, with ``given`` on its standard input; ``environ`` is what ``environment`` returns.

    ``limits.CLONE`` bounds each file that it writes, so also a pack, ``limits.GIT_MEMORY`` its memory. With ``terminal`` it may ask the user there.
    """
    try:
        with (
            tempfile.TemporaryFile() as source,
            tempfile.TemporaryFile() as printed,
            tempfile.TemporaryFile() as errors,
        ):
            source.write(given)
            source.seek(0)
            process = subprocess.Popen(
                ["git", *words],
                cwd=folder,
                env=environ,
                stdin=source,
                stdout=printed,
                stderr=errors,
                start_new_session=not terminal,
                preexec_fn=_bound,  # noqa: PLW1509  (it sets limits, and nothing else)
            )
            if not _ends(process, terminal=terminal):
                return GitOutcome(-1, b"", f"it did not finish within {limits.CLONE_SECONDS}")
            printed.seek(0)
            out = printed.read(limits.GIT_OUTPUT + 1)
            if len(out) > limits.GIT_OUTPUT:
                return GitOutcome(-1, b"", f"it prints more than {limits.GIT_OUTPUT}")
            if process.returncode == 0:
                return GitOutcome(0, out)
            errors.seek(0)
            why = errors.read(limits.STDERR).decode("utf-8", "replace").strip()
            if process.returncode == -signal.SIGXFSZ or f"signal {signal.SIGXFSZ:d}" in why:
                why = f"it sends more than {limits.CLONE}, the limit for {limits.CLONE.what}"
            return GitOutcome(process.returncode, out, why or f"exit code {process.returncode}")
    except OSError as error:  # no git, or no place for what it says
        return GitOutcome(-1, b"", str(error))


def _bound() -> None:
    own_process.limit(resource.RLIMIT_FSIZE, int(limits.CLONE))
    own_process.limit(resource.RLIMIT_DATA, int(limits.GIT_MEMORY))


def _ends(process: subprocess.Popen[bytes], *, terminal: bool) -> bool:
    """Wait for a process, and end all that it has started; tell whether it ended in time by itself."""
    try:
        process.wait(limits.CLONE_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    else:
        return True
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill() if terminal else os.killpg(process.pid, signal.SIGKILL)
        process.wait()
