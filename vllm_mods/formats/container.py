"""What a container of a pairing's image runs: environment, command, port, health. Pure.

The command goes in word by word, so that no shell stands between an engine and vLLM; only a command
that is more than words (``$HOME``, a pipe) is given to bash, as it stands.
"""

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from vllm_mods.base import secrets
from vllm_mods.base.errors import UsageError
from vllm_mods.formats import pairing as pairings
from vllm_mods.scripts import command_line
from vllm_mods.scripts.command_line import flag_value

_PORT = 8000
_SECOND = 1_000_000_000
_SECRETS = {"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"}
"""Options whose value is a secret, each with the variable that does the same."""
_GIVEN = "remove it, and pass it when the container starts (--env-file FILE with {}=…)"
# Python is where vLLM is, curl need not be; and a proxy of the environment is none for this.
_ASK = (
    "import http.client as h{ssl}; c = h.{kind}({host!r}, {port}, timeout=5{context}); "
    "c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)"
)


class Served(NamedTuple):
    """What an image has of its pairing; ``port`` is None where nothing listens on one.

    ``entrypoint`` is the whole command: what is typed behind the image's name comes after it.
    """

    env: Mapping[str, str]
    entrypoint: tuple[str, ...]
    port: int | None
    health: tuple[str, ...] | None

    def over(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return an image's settings, as OCI's configuration has them, with these in their place."""
        env = dict(one.partition("=")[::2] for one in settings.get("Env") or ()) | dict(self.env)
        ports = settings.get("ExposedPorts") or {}
        left = {key: value for key, value in settings.items() if key not in {"Cmd", "Healthcheck"}}
        changed = {
            **left,
            "Env": [f"{name}={value}" for name, value in env.items()],
            "Entrypoint": list(self.entrypoint),
            # Python as PID 1 heeds it from its first moment on, and SIGTERM only once vLLM is loaded.
            "StopSignal": "SIGINT",
        }
        if self.port is not None:
            changed["ExposedPorts"] = {**ports, f"{self.port}/tcp": {}}
        if self.health is not None:
            changed["Healthcheck"] = {
                "Test": ["CMD", *self.health],
                "Interval": 30 * _SECOND,
                "Timeout": 10 * _SECOND,
                "StartPeriod": 1800 * _SECOND,  # weights are read, and graphs are captured
                "Retries": 3,
            }
        return changed


def served(pairing: pairings.Pairing, templates: Mapping[str, str]) -> Served:
    """Return what a container runs; ``templates`` as for ``pairing.serve_script``.

    Raises ``UsageError`` for a command that an image cannot run with more arguments behind it.
    """
    text = pairings.placed_command(pairing, templates)
    script = command_line.read(text)
    serving = pairings.served_by(script)
    env, entrypoint = dict(pairing.env), serving.argv
    if _is_words(text, script) and serving.argv and not serving.argv[0].startswith("-"):
        env |= dict(serving.assignments)
    else:
        last = text.count("\n") + 1
        is_last = pairings.serving(script) == len(script.commands) - 1
        commented = any(line >= last for line, _ in script.comments)
        if not is_last or text.rstrip()[-1:] in "&|;)" or commented:
            why = f"the command of pairing `{pairing.name}` does not end with the arguments of `vllm serve`, so those of `docker run` cannot be appended"
            raise UsageError(why, hint="remove what follows the arguments of `vllm serve`")
        entrypoint = ("/bin/bash", "-c", f'{text} "$@"', "bash")
    listens = not any(flag_value(serving.argv, one) is not None for one in ("--uds", "--headless"))
    port = flag_value(serving.argv, "--port") or str(_PORT)
    if not (listens and pairings.serves(serving.argv) and port.isdigit()):
        return Served(env, entrypoint, None, None)
    return Served(env, entrypoint, int(port), health(serving.argv, int(port)))


def problems(pairing: pairings.Pairing) -> tuple[str, ...]:
    """Return what no image may be made of, each with its key: secrets, and what contradicts the command."""
    why = "it looks like a secret, and everybody who has the image can read its environment"
    variables = filter(secrets.NAMED.match, pairing.env)
    faults = [f"env.{name}: {why}: {_GIVEN.format(name)}" for name in variables]
    faults += secrets.problems({"env": pairing.env, "command": pairings.rendered(pairing)})
    serving, script = pairings.serve_command(pairing)
    # `export` and `env` have variables among their words
    words = [word.split("=") for one in script.commands for word in one.argv if "=" in word]
    assigned = [pair for one in script.commands for pair in one.assignments]
    unknown = {one.text for one in script.unknown}
    for option, variable in _SECRETS.items():
        value = flag_value(serving.argv, option) or ""
        if value.lower() not in {"", "true"} and not any(text in value for text in unknown):
            faults.append(f"command: {option} contains a secret: {_GIVEN.format(variable)}")
    names = (name for name, *_ in (*assigned, *words) if name.isidentifier())
    hidden = filter(secrets.NAMED.match, names)
    faults += [f"command: {name}=… looks like a secret: {_GIVEN.format(name)}" for name in hidden]
    if not pairings.serves(serving.argv):
        return tuple(faults)
    model = model_of(serving.argv)
    if model is None:
        if pairing.model not in serving.argv and flag_value(serving.argv, "--config") is None:
            faults.append(
                f"model: is {pairing.model}, but the command names no model: write vllm serve {{model}}"
            )
    elif model != pairing.model and not any(text in model for text in unknown):
        faults.append(f"model: is {pairing.model}, but the command serves {model}: write {{model}}")
    revision = flag_value(serving.argv, "--revision")
    if revision != pairing.revision and not any(text in str(revision) for text in unknown):
        has = f"--revision {revision}" if revision else "no --revision, so vLLM loads the newest"
        faults.append(
            f"revision: is {pairing.revision or 'not given'}, but the command has {has}; write --revision {revision} there"
        )
    return tuple(faults)


def model_of(argv: tuple[str, ...]) -> str | None:
    """Return the model that a command serves, None where it names none."""
    if argv[1:2] == ("serve",) and len(argv) > 2 and not argv[2].startswith("-"):
        return argv[2]
    return flag_value(argv, "--model") or flag_value(argv, "--model-tag")


def health(argv: tuple[str, ...], port: int) -> tuple[str, ...]:
    """Return the command that asks what a command serves whether it is well."""
    host = flag_value(argv, "--host") or ""
    asked = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104  (what vLLM listens on)
    tls = flag_value(argv, "--ssl-certfile") is not None
    code = _ASK.format(
        ssl=", ssl" if tls else "",
        kind="HTTPSConnection" if tls else "HTTPConnection",
        host=asked.get(host, host),
        port=port,
        context=", context=ssl._create_unverified_context()" if tls else "",
    )
    return ("python3", "-c", code)


def _is_words(text: str, script: command_line.CommandScript) -> bool:
    """Tell whether a script is one command without anything that a shell does beside it."""
    if len(script.commands) != 1 or script.unknown:
        return False
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=False, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return not any(set(token) <= set("();<>|&") for token in lexer)
    except ValueError:
        return False
