"""Signatures of OpenSSH (PROTOCOL.sshsig), verified by ``ssh-keygen -Y``."""

from vllm_mods.base.errors import UsageError


def why_not(data: bytes, signature: str, signers: str, namespace: str) -> str:
    """Return why a file is no good signature by any of ``signers``, ``""`` if it is one.

    ``signers`` is a file in the form of OpenSSH's allowed_signers. Raises ``UsageError`` without ssh-keygen.
    """
    files = ["-f", signers, "-s", signature]
    names, why = _run(["find-principals", *files], b"")
    for name in (names or b"").decode("utf-8", "replace").splitlines():
        verified, why = _run(["verify", "-n", namespace, "-I", name, *files], data)
        if verified is not None:
            return ""
    return why or "no signer"


def _run(arguments: list[str], data: bytes) -> tuple[bytes | None, str]:
    """Run a command; return what it printed, None if it said no, and why."""
    import subprocess  # noqa: PLC0415  (slow to import, and rarely needed)

    try:
        done = subprocess.run(
            ["ssh-keygen", "-Y", *arguments], input=data, capture_output=True, check=False
        )
    except FileNotFoundError as error:
        why = "ssh-keygen, for signatures, is not installed"
        raise UsageError(why, hint="apt-get install openssh-client") from error
    why = (done.stderr.strip() or done.stdout.strip()).decode("utf-8", "replace")
    return (done.stdout if done.returncode == 0 else None), why.replace("\n", "; ")
