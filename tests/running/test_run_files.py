"""How a pairing's container is started: the line of an engine, and the file that people keep."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_mods.base.errors import UsageError
from vllm_mods.formats.pairing import Pairing
from vllm_mods.running import files
from vllm_mods.running.service import WORKER, Service, StartOptions, head, line, service

COMMAND = "export A='b c'\nvllm serve org/m \\\n  --template 'x y' $HOME 50% $(id)"
WANTED = Pairing(
    "qwen3.5_x",
    "s",
    "org/m",
    "base:1",
    "vllm serve org/m --port 9000 --tensor-parallel-size=4 --pipeline-parallel-size 2",
    env={"A": "b c", "B": "$x"},
)


def made(wanted: Pairing = WANTED, **given: Any) -> Service:
    arguments = given.pop("arguments", ())
    asked = StartOptions(**given)
    return service(
        wanted, asked, image="small:1-abc", command=COMMAND, cache="/cache", arguments=arguments
    )


def test_the_line_has_what_a_server_of_models_needs() -> None:
    started = line("docker", made(arguments=("--max-model-len", "9 9")), env_files=["/e"])
    assert shlex.join(started) == (
        "docker run --detach --name qwen3.5_x --label vllm-mods.run=qwen3.5_x --restart on-failure:3 "
        "--gpus all --shm-size 16g --publish 127.0.0.1:9000:9000 --volume /cache:/root/.cache/huggingface "
        "--env-file /e small:1-abc --max-model-len '9 9'"
    )


def test_podman_takes_gpus_by_cdi_and_docker_by_a_quoted_list() -> None:
    words = line("podman", made(gpus="0,2", arguments=("-tp", "1", "-pp", "2")))
    assert [words[n + 1] for n, word in enumerate(words) if word == "--device"] == [
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=2",
    ]
    docker = line("docker", made(gpus="0,2", arguments=("-tp", "1", "-pp", "2")))
    assert docker[docker.index("--gpus") + 1] == '"device=0,2"'
    none = line("docker", made(gpus="none"))
    assert not {"--gpus", "--device"} & set(none)


def test_a_model_that_is_a_path_is_mounted_there_and_not_written_to() -> None:
    there = WANTED._replace(model="/models/m")
    assert made(there).mounts == (("/models/m", "/models/m", True),)
    mount = "type=bind,source=/data/m,target=/models/m,readonly"
    assert mount in line("docker", made(there, model_folder="/data/m"))
    with pytest.raises(UsageError, match="is org/m on the Hub"):
        made(model_folder="/data/m")


def test_the_port_is_the_one_that_the_command_has_in_the_end() -> None:
    one = made(arguments=("--port", "7000"), port=80)
    assert (one.port, one.published) == (80, "127.0.0.1:80:7000")


def test_a_health_check_follows_what_the_arguments_move() -> None:
    assert made().health is None
    moved = made(arguments=("--port", "7000", "--ssl-certfile", "x"))
    words = line("docker", moved)
    check = words[words.index("--health-cmd") + 1]
    assert check.startswith("python3 -c ")
    assert "HTTPSConnection" in check
    assert ", 7000, timeout" in check
    assert moved.url == "https://127.0.0.1:7000"


@pytest.mark.parametrize(
    ("host", "published", "url"),
    [
        ("0.0.0.0", "0.0.0.0:9000:9000", "http://127.0.0.1:9000"),  # noqa: S104
        ("192.0.2.1", "192.0.2.1:9000:9000", "http://192.0.2.1:9000"),
        ("::", "[::]:9000:9000", "http://[::1]:9000"),
    ],
)
def test_a_port_is_for_this_machine_unless_an_address_is_named(
    host: str, published: str, url: str
) -> None:
    assert (made(host=host).published, made(host=host).url) == (published, url)
    with pytest.raises(UsageError, match="not an IP address"):
        made(host="example.org")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_server_that_only_its_container_reaches_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="is reachable only inside the container") as caught:
        made(arguments=("--host", host))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("vllm-mods run qwen3.5_x -- --host 0.0.0.0  #")
    made(WANTED._replace(topology="cluster"), arguments=("--host", host))


def test_each_rank_has_a_gpu_of_its_own() -> None:
    cluster = WANTED._replace(topology="cluster")
    for wanted, more, ranks in (
        (WANTED, (), 8),
        (cluster, (), 4),
        (WANTED, ("-tp", "2", "-pp", "1", "--data-parallel-size=4"), 8),
        (WANTED, ("-tp", "1", "-pp", "1", "-dp", "2", "-pcp", "3"), 6),
    ):
        some = ",".join(map(str, range(ranks - 1)))
        said = f"--gpus {some}: the command starts {ranks} ranks on a node"
        with pytest.raises(UsageError, match=said):
            made(wanted, gpus=some, arguments=more)
        made(wanted, gpus=f"{some},{ranks}", arguments=more)


@pytest.mark.parametrize("gpus", ["", "0;1", "all,0", "-1"])
def test_gpus_that_no_engine_would_take_are_refused(gpus: str) -> None:
    with pytest.raises(UsageError, match="expected all, none or numbers"):
        made(gpus=gpus)


def test_compose_starts_the_image() -> None:
    text = files.compose(made())
    (one,) = yaml.safe_load(text)["services"].values()
    assert one["image"] == "small:1-abc"
    assert "command" not in one
    assert one["ports"] == ["127.0.0.1:9000:9000"]
    assert one["labels"] == {"vllm-mods.run": "qwen3.5_x"}
    assert one["volumes"] == ["/cache:/root/.cache/huggingface"]
    assert one["deploy"]["resources"]["reservations"]["devices"][0]["count"] == "all"


CLUSTER = made(WANTED._replace(topology="cluster"))


def test_a_cluster_is_a_head_that_serves_and_a_worker_that_waits() -> None:
    text = files.compose(CLUSTER)
    nodes = yaml.safe_load(text)["services"]
    assert {name: one["profiles"] for name, one in nodes.items()} == {
        "qwen3.5_x-head": ["head"],
        "qwen3.5_x-worker": ["worker"],
    }
    scripts = {name: one["entrypoint"][2].replace("$$", "$") for name, one in nodes.items()}
    assert scripts["qwen3.5_x-head"] == head(CLUSTER)
    assert head(CLUSTER).endswith(COMMAND)
    assert scripts["qwen3.5_x-worker"] == WORKER
    assert all(one["network_mode"] == "host" and one["ipc"] == "host" for one in nodes.values())
    assert all(one["environment"]["B"] == "$$x" for one in nodes.values())
    asked = [one["environment"].get("HEAD_IP") for one in nodes.values()]
    assert asked == [None, "${HEAD_IP:-}"]


def test_compose_does_not_write_to_a_model_that_is_a_path() -> None:
    at_path = made(WANTED._replace(model="/models/m"), model_folder="/data/m")
    text = files.compose(at_path)
    (one,) = yaml.safe_load(text)["services"].values()
    assert one["volumes"] == ["/data/m:/models/m:ro"]


def test_compose_says_texts_as_they_are() -> None:
    odd = ("no", "1:30", "0x1f", "~", "<<", "", "\x85\u2028", "x" * 300, "a $b: #c\n")
    env = {f"E{n}": text for n, text in enumerate(odd)}
    text = files.compose(CLUSTER._replace(env=env))
    for one in yaml.safe_load(text)["services"].values():
        read = {key: value.replace("$$", "$") for key, value in one["environment"].items()}
        assert read.items() >= env.items()


def test_the_scripts_of_a_cluster_start_ray_before_and_around_the_command(tmp_path: Path) -> None:
    for name in ("ray", "vllm"):
        program = tmp_path / name
        program.write_text(f'#!/bin/bash\nprintf "%s\\n" "{name} $*" >>{tmp_path}/said\n')
        program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "VLLM_HOST_IP": "10.0.0.1", "HOME": "/h"}
    for script, more in ((head(CLUSTER), {}), (WORKER, {"HEAD_IP": "10.0.0.1"})):
        subprocess.run(["/bin/bash", "-c", script], env={**env, **more}, check=True, timeout=30)
    first, served, joined = (tmp_path / "said").read_text().splitlines()
    assert first == "ray start --head --port=6379 --node-ip-address=10.0.0.1"
    assert served.startswith("vllm serve org/m --template x y /h 50% uid=")
    assert joined == "ray start --address=10.0.0.1:6379 --node-ip-address=10.0.0.1 --block"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"shm_size": "lots"}, "--shm-size lots: not a size"),
        ({"restart": "sometimes"}, "not a restart policy"),
    ],
)
def test_what_no_engine_would_take_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        made(**given)


CLOUD = "--model-cache DIR"
FOLDER = "--model-folder DIR"


@pytest.mark.parametrize(
    ("given", "why", "hint"),
    [
        ({"gpus": "x"}, "--gpus x: expected all, none or numbers", "--gpus 0,1"),
        ({"shm_size": "lots"}, "--shm-size lots: not a size", "--shm-size 16g"),
        (
            {"restart": "on-failure:x"},
            "--restart on-failure:x: not a restart policy",
            "no, always, unless-stopped, on-failure or on-failure:N",
        ),
        (
            {"model_folder": "/m"},
            "--model-folder is for a pairing whose model is a path, but the model of qwen3.5_x is org/m on the Hub",
            CLOUD,
        ),
        (
            {"gpus": "0,1"},
            "--gpus 0,1: the command starts 8 ranks on a node, and each needs its own GPU",
            "--gpus all, or name that many GPUs",
        ),
    ],
)
def test_what_is_refused_has_a_next_step(given: dict[str, Any], why: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(**given)
    assert (caught.value.message, caught.value.hint) == (why, hint)


@pytest.mark.parametrize("path", ["/a,b", "/a:b", '/a"b', "/a\\b", "/a\nb", "/a/../b", "/a/"])
def test_a_path_that_cannot_be_mounted(path: str) -> None:
    at_path = WANTED._replace(model="/models/m")
    why = f'{path!r} cannot be mounted: the path must be absolute, without .. and without , : " \\'
    for wanted, given in ((at_path, {"model_folder": path}), (WANTED._replace(model=path), {})):
        with pytest.raises(UsageError) as caught:
            made(wanted, **given)
        assert (caught.value.message, caught.value.hint) == (why, FOLDER)


def test_a_secret_is_not_put_into_a_line() -> None:
    with pytest.raises(UsageError) as caught:
        made(arguments=("--api-key", "hf_" + "a1B2" * 9))
    assert caught.value.message.startswith("qwen3.5_x: ")
    assert caught.value.hint == "--env-file FILE"


@pytest.mark.parametrize("size", ["16g", "1GiB", "100", "5b", "7Mb"])
@pytest.mark.parametrize("restart", ["no", "always", "on-failure", "on-failure:3"])
def test_what_engines_take(size: str, restart: str) -> None:
    started = made(shm_size=size, restart=restart)
    assert (started.shm, started.restart, started.restart_at_first) == (size, restart, restart)


@pytest.mark.parametrize(
    ("arguments", "inside"),
    [
        ((), 9000),
        (("--port=1",), 1),
        (("--port", "1", "--port", "2"), 2),
        (("--port",), 9000),
        (("--port", "x"), 9000),
        (("--port", "٣"), 9000),
        (("--portal", "1"), 9000),
    ],
)
def test_the_port_that_counts(arguments: tuple[str, ...], inside: int) -> None:
    assert made(arguments=arguments).published == f"127.0.0.1:{inside}:{inside}"


def test_without_a_port_it_is_vllms_own_and_options_may_have_underscores() -> None:
    wanted = WANTED._replace(command="vllm serve org/m --tensor_parallel_size 3")
    assert made(wanted).published == "127.0.0.1:8000:8000"
    with pytest.raises(UsageError, match="starts 3 ranks"):
        made(wanted, gpus="0")


def test_what_is_asked_for_goes_before_what_the_pairing_says() -> None:
    started = made(name="n", image="i:1", port=1)
    assert (started.name, started.image, started.port) == ("n", "i:1", 1)
    assert started.pairing == "qwen3.5_x"


def test_all_gpus_are_one_device_of_podman() -> None:
    words = line("podman", made(gpus="all"))
    assert words[words.index("--device") + 1] == "nvidia.com/gpu=all"
    assert words[words.index("--device") - 1] == "on-failure:3"


def test_files_of_variables_are_named_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = line("docker", made(), env_files=["a", "/b"])
    assert words[-5:-1] == ("--env-file", f"{tmp_path}/a", "--env-file", "/b")


def test_a_file_for_compose_is_this_text() -> None:
    assert files.compose(made(gpus="0,1,2,3,4,5,6,7", shm_size="8g")) == (
        "services:\n  qwen3.5_x:\n    container_name: qwen3.5_x\n"
        '    image: "small:1-abc"\n    labels:\n      vllm-mods.run: qwen3.5_x\n'
        "    restart: unless-stopped\n    volumes:\n"
        '    - "/cache:/root/.cache/huggingface"\n    deploy:\n      resources:\n'
        "        reservations:\n          devices:\n          - driver: nvidia\n            device_ids:\n"
        + "".join(f'            - "{n}"\n' for n in range(8))
        + "            capabilities:\n            - gpu\n"
        '    ports:\n    - "127.0.0.1:9000:9000"\n    shm_size: "8g"\n'
    )


def test_a_cluster_without_gpus_is_this_text() -> None:
    text = files.compose(CLUSTER._replace(gpus="none", env={"A": "$x", "B": "on"}, command="c"))
    assert text.partition("  qwen3.5_x-worker:\n")[0] == (
        "services:\n  qwen3.5_x-head:\n    container_name: qwen3.5_x-head\n    profiles:\n    - head\n"
        '    image: "small:1-abc"\n    labels:\n      vllm-mods.run: qwen3.5_x\n'
        "    restart: unless-stopped\n    volumes:\n"
        '    - "/cache:/root/.cache/huggingface"\n    network_mode: host\n    ipc: host\n'
        '    init: true\n    environment:\n      A: "$$x"\n      B: "on"\n'
        '      VLLM_HOST_IP: "${VLLM_HOST_IP:?the address of this node}"\n    entrypoint:\n'
        '    - "/bin/bash"\n    - "-c"\n    - "ray start --head --port=6379 '
        '--node-ip-address=\\"$$VLLM_HOST_IP\\" || exit 1\\nc"\n'
    )
