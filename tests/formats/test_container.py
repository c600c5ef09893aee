"""What a container of a pairing's image runs, and what no image may be made of."""

from __future__ import annotations

import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from vllm_mods.base.errors import UsageError
from vllm_mods.formats import container
from vllm_mods.formats.pairing import Pairing

if TYPE_CHECKING:
    from pathlib import Path

PAIRING = Pairing(name="p", summary="s", model="org/m", base="b", command="vllm serve {model}")
TEMPLATES = {"t.jinja": "/site/t.jinja"}


def pairing(command: str, **given: Any) -> Pairing:
    return PAIRING._replace(command=command, **given)


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("vllm serve {model}", ["vllm", "serve", "org/m"]),
        (
            "vllm serve {model} \\\n  --x '{{\"a b\": [1, \"|\"]}}' \\\n  --chat-template t.jinja",
            ["vllm", "serve", "org/m", "--x", '{"a b": [1, "|"]}', "--chat-template", "/site/t.jinja"],
        ),
        ("exec env A=1 vllm serve {model} # a note", ["vllm", "serve", "org/m"]),
        ("python3 -m vllm.entrypoints.openai.api_server --model org/m",
         ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/m"]),
    ],
)  # fmt: skip
def test_the_command_goes_in_word_by_word(command: str, argv: list[str]) -> None:
    assert list(container.served(pairing(command), TEMPLATES).entrypoint) == argv


@pytest.mark.parametrize(
    "command",
    ["vllm serve {model} --x $HOME", "echo 1; vllm serve {model}", "vllm serve {model} > /tmp/log",
     "cd /x && \\\n  vllm serve {model}", "# first\nvllm serve {model} --x `date`"],
)  # fmt: skip
def test_what_a_shell_does_is_left_to_bash(command: str) -> None:
    found = container.served(pairing(command), {})
    text = command.format(model="org/m")
    assert found.entrypoint == ("/bin/bash", "-c", f'{text} "$@"', "bash")
    assert found.port == 8000


def test_bash_puts_further_arguments_behind_the_command(tmp_path: Path) -> None:
    fake = tmp_path / "vllm"
    fake.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    fake.chmod(0o755)
    found = container.served(pairing("cd /; vllm serve {model} --home $HOME"), {})
    environ = {"PATH": f"{tmp_path}:/bin:/usr/bin", "HOME": "/h"}
    done = subprocess.run(
        [*found.entrypoint, "--x", "a b"], capture_output=True, env=environ, check=True
    )
    assert done.stdout == b"<serve><org/m><--home></h><--x><a b>"


@pytest.mark.parametrize(
    "command",
    ["vllm serve {model} | tee log", "vllm serve {model} &", "vllm serve {model}; sleep 1",
     "vllm serve {model} > log # why"],
)  # fmt: skip
def test_a_command_that_goes_on_after_the_server_is_refused(command: str) -> None:
    with pytest.raises(UsageError, match="cannot be appended") as caught:
        container.served(pairing(command), {})
    hint = "remove what follows the arguments of `vllm serve`"
    assert caught.value.hint == hint


def test_the_pairings_settings_are_laid_over_the_bases() -> None:
    made = pairing("C=3 vllm serve {model} --port 9001", env={"A": "1 $HOME", "PATH": "/x"})
    base = {
        "Env": ["PATH=/bin", "B=2"],
        "Cmd": ["bash"],
        "Entrypoint": ["/nvidia"],
        "ExposedPorts": {"22/tcp": {}},
        "Healthcheck": {"Test": ["NONE"]},
        "User": "me",
    }
    found = container.served(made, {}).over(base)
    health = found.pop("Healthcheck")
    assert health.pop("Test")[:3] == ["CMD", "python3", "-c"]
    seconds = {"Interval": 30, "Timeout": 10, "StartPeriod": 1800}
    assert health == {"Retries": 3} | {key: n * 10**9 for key, n in seconds.items()}
    assert found == {
        "Env": ["PATH=/x", "B=2", "A=1 $HOME", "C=3"],
        "Entrypoint": ["vllm", "serve", "org/m", "--port", "9001"],
        "ExposedPorts": {"22/tcp": {}, "9001/tcp": {}},
        "StopSignal": "SIGINT",
        "User": "me",
    }


@pytest.mark.parametrize(
    "command", ["vllm serve {model} --uds /x", "vllm serve {model} --headless", "other --port 1"]
)
def test_what_listens_on_no_port_that_is_known_has_no_health(command: str) -> None:
    found = container.served(pairing(command), {})
    assert (found.port, found.health) == (None, None)
    assert "Healthcheck" not in found.over({"Healthcheck": {"Test": ["NONE"]}})


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ("", "HTTPConnection('127.0.0.1', 8000, timeout=5)"),
        ("--host 0.0.0.0 --port 81", "HTTPConnection('127.0.0.1', 81, timeout=5)"),
        ("--host ::", "HTTPConnection('::1', 8000, timeout=5)"),
        ("--host 10.0.0.7 --host=10.0.0.8", "HTTPConnection('10.0.0.8', 8000, timeout=5)"),
        (
            "--ssl-certfile x",
            "HTTPSConnection('127.0.0.1', 8000, timeout=5, context=ssl._create_unverified_context())",
        ),
    ],
)
def test_health_is_asked_where_the_server_listens(options: str, asked: str) -> None:
    health = container.served(pairing(f"vllm serve {{model}} {options}"), {}).health
    assert health is not None
    imports = "http.client as h, ssl" if "ssl" in options else "http.client as h"
    assert health[:2] == ("python3", "-c")
    assert health[2] == (
        f"import {imports}; c = h.{asked}; c.request('GET', '/health'); "
        "raise SystemExit(c.getresponse().status != 200)"
    )


class _Health(BaseHTTPRequestHandler):
    code = 200

    def do_GET(self) -> None:
        self.send_response(self.code if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.slow
@pytest.mark.parametrize(("code", "ends"), [(200, 0), (503, 1), (None, 1)])
@pytest.mark.parametrize("host", ["--host 0.0.0.0 ", "--host=127.0.0.1 ", ""])
def test_health_is_what_the_server_says(code: int | None, ends: int, host: str) -> None:
    _Health.code = code or 200
    server = HTTPServer(("127.0.0.1", 0), _Health)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    found = container.served(pairing(f"vllm serve {{model}} {host}--port {server.server_port}"), {})
    if code is None:
        server.shutdown()
        server.server_close()
    assert found.health is not None
    command = [sys.executable, *found.health[1:]]
    environ = {"HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1"}
    done = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert done.returncode == ends
    if code is not None:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (pairing("vllm serve {model}", env={"HF_TOKEN": "hf_x"}), "env.HF_TOKEN: it looks like a secret"),
        (pairing("vllm serve {model}", env={"VLLM_API_KEY": ""}), "env.VLLM_API_KEY: it looks"),
        (pairing("vllm serve {model}", env={"my_secret": "x"}), "env.my_secret: it looks"),
        (pairing("vllm serve {model}", env={"DB_PASSWORD": "x"}), "env.DB_PASSWORD: it looks"),
        (pairing("HF_TOKEN=x vllm serve {model}"), "command: HF_TOKEN=… looks like a secret"),
        (pairing("export HF_TOKEN=x\nvllm serve {model}"), "command: HF_TOKEN=… looks like a secret"),
        (pairing("declare -x A_KEY=x; vllm serve {model}"), "command: A_KEY=… looks like a secret"),
        (pairing("env A=1 HF_TOKEN=x vllm serve {model}"), "command: HF_TOKEN=… looks like a secret"),
        (pairing("vllm serve {model} --api-key x"), "command: --api-key contains a secret: remove it, and"),
        (pairing("vllm serve {model} --api_key=x"), "command: --api-key contains a secret"),
        (pairing("vllm serve {model} --api-key '$x'"), "command: --api-key contains a secret"),
        (pairing("vllm serve {model} --hf-token hf_x"), "command: --hf-token contains a secret"),
        (pairing("vllm serve org/other"), "model: is org/m, but the command serves org/other"),
        (pairing("vllm serve --model=org/other"), "model: is org/m, but the command serves org/other"),
        (pairing("vllm serve --port 1"), "model: is org/m, but the command names no model"),
        (pairing("vllm serve {model}", revision="abc"), "revision: is abc, but the command has no --rev"),
        (pairing("vllm serve {model} --revision x", revision="abc"), "revision: is abc, but the command has"),
        (pairing("vllm serve {model} --revision x"), "revision: is not given, but the command has"),
    ],
)  # fmt: skip
def test_what_no_image_is_made_of(made: Pairing, said: str) -> None:
    (found,) = container.problems(made)
    assert found.startswith(said)
    if "secret" in said:
        assert "--env-file" in found


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve {model} --hf-token",
        "vllm serve {model} --hf-token --port 1",
        'vllm serve {model} --api-key "$KEY"',
        "vllm serve {model} --api-key=$KEY",
        """vllm serve {model} --hf-overrides '{{"a_key": "b=c"}}'""",
    ],
)
def test_what_names_a_secret_and_has_none_is_taken(command: str) -> None:
    assert not container.problems(pairing(command))


@pytest.mark.parametrize(
    "made",
    [
        pairing("vllm serve {model}", env={"TOKENIZERS_PARALLELISM": "1", "HF_HOME": "/x"}),
        pairing("vllm serve {model} --revision {revision}", revision="abc"),
        pairing("vllm serve --port 1 {model}"),
        pairing("vllm serve $MODEL"),
        pairing("vllm serve --config x.yaml"),
        pairing("sglang --model other"),
    ],
)
def test_what_is_no_contradiction(made: Pairing) -> None:
    assert container.problems(made) == ()
