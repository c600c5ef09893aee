"""How a pairing's container is started: the line of an engine, and the files that people keep."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_mods.base.errors import UsageError
from vllm_mods.formats.pairing import Pairing
from vllm_mods.running import files
from vllm_mods.running.service import Service, StartOptions, head, line, service, worker

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
        "docker run --detach --name qwen3.5_x --label vllm-mods.run=qwen3.5_x --restart unless-stopped "
        "--gpus all --shm-size 16g --publish 9000:9000 --volume /cache:/root/.cache/huggingface "
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
    with pytest.raises(UsageError, match="names org/m on the Hub"):
        made(model_folder="/data/m")


def test_the_port_is_the_one_that_the_command_has_in_the_end() -> None:
    one = made(arguments=("--port", "7000"), port=80)
    assert (one.port, one.inside, one.per_node) == (80, 7000, 8)
    assert made(WANTED._replace(topology="cluster")).per_node == 4


def test_each_rank_has_a_gpu_of_its_own() -> None:
    assert made(arguments=("-tp", "2", "-pp", "1", "--data-parallel-size=4")).per_node == 8
    assert made(arguments=("-tp", "1", "-pp", "1", "-dp", "2", "-pcp", "3")).per_node == 6
    with pytest.raises(UsageError, match="--gpus 0,1: the command starts 8 ranks on a node"):
        made(gpus="0,1")


@pytest.mark.parametrize("gpus", ["", "0;1", "all,0", "-1"])
def test_gpus_that_no_engine_would_take_are_refused(gpus: str) -> None:
    with pytest.raises(UsageError, match="neither all, none nor numbers"):
        made(gpus=gpus)


def test_compose_starts_the_image() -> None:
    (text,) = files.write(made(), "compose").values()
    (one,) = yaml.safe_load(text)["services"].values()
    assert one["image"] == "small:1-abc"
    assert "command" not in one
    assert one["ports"] == ["9000:9000"]
    assert one["labels"] == {"vllm-mods.run": "qwen3.5_x"}
    assert one["volumes"] == ["/cache:/root/.cache/huggingface"]
    assert one["deploy"]["resources"]["reservations"]["devices"][0]["count"] == "all"


CLUSTER = made(WANTED._replace(topology="cluster"))


def test_a_cluster_is_a_head_that_serves_and_a_worker_that_waits() -> None:
    (text,) = files.write(CLUSTER, "compose").values()
    nodes = yaml.safe_load(text)["services"]
    assert {name: one["profiles"] for name, one in nodes.items()} == {
        "qwen3.5_x-head": ["head"],
        "qwen3.5_x-worker": ["worker"],
    }
    scripts = {name: one["entrypoint"][2].replace("$$", "$") for name, one in nodes.items()}
    assert scripts["qwen3.5_x-head"] == head(CLUSTER)
    assert head(CLUSTER).endswith(COMMAND)
    assert scripts["qwen3.5_x-worker"] == worker("${HEAD_IP:?the address of the head}")
    assert all(one["network_mode"] == "host" and one["ipc"] == "host" for one in nodes.values())
    assert all(one["environment"]["B"] == "$$x" for one in nodes.values())
    asked = [one["environment"].get("HEAD_IP") for one in nodes.values()]
    assert asked == [None, "${HEAD_IP:-}"]


def test_compose_does_not_write_to_a_model_that_is_a_path() -> None:
    at_path = made(WANTED._replace(model="/models/m"), model_folder="/data/m")
    (text,) = files.write(at_path, "compose").values()
    (one,) = yaml.safe_load(text)["services"].values()
    assert one["volumes"] == ["/data/m:/models/m:ro"]


def test_compose_says_texts_as_they_are() -> None:
    odd = ("no", "1:30", "0x1f", "~", "<<", "", "\x85\u2028", "x" * 300, "a $b: #c\n")
    env = {f"E{n}": text for n, text in enumerate(odd)}
    (text,) = files.write(CLUSTER._replace(env=env), "compose").values()
    for one in yaml.safe_load(text)["services"].values():
        read = {key: value.replace("$$", "$") for key, value in one["environment"].items()}
        assert read.items() >= env.items()


def test_the_scripts_of_a_cluster_start_ray_before_and_around_the_command(tmp_path: Path) -> None:
    for name in ("ray", "vllm"):
        program = tmp_path / name
        program.write_text(f'#!/bin/bash\nprintf "%s\\n" "{name} $*" >>{tmp_path}/said\n')
        program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "VLLM_HOST_IP": "10.0.0.1", "HOME": "/h"}
    for script in (head(CLUSTER), worker("10.0.0.1")):
        subprocess.run(["/bin/bash", "-c", script], env=env, check=True, timeout=30)
    first, served, joined = (tmp_path / "said").read_text().splitlines()
    assert first == "ray start --head --port=6379 --node-ip-address=10.0.0.1"
    assert served.startswith("vllm serve org/m --template x y /h 50% uid=")
    assert joined == "ray start --address=10.0.0.1:6379 --node-ip-address=10.0.0.1 --block"


def unit(text: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def words_of(line: str) -> list[str]:
    """Read a line as systemd does: quotes, escapes of C, ``%%`` and ``$$``."""
    words, rest, decoder = [], line, json.JSONDecoder()
    while rest:
        word, end = decoder.raw_decode(rest)
        words.append(word.replace("%%", "%").replace("$$", "$"))
        rest = rest[end:].lstrip()
    return words


def test_a_quadlet_is_a_unit_that_podman_knows() -> None:
    (item,) = files.write(made(), "quadlet").items()
    assert item[0] == "qwen3.5_x.container"
    container = unit(item[1])["Container"]
    assert "Exec" not in container
    assert container["PublishPort"] == "9000:9000"
    nodes = files.write(CLUSTER, "quadlet")
    assert list(nodes) == ["qwen3.5_x-head.container", "qwen3.5_x-worker.container"]
    first, second = (unit(text)["Container"] for text in nodes.values())
    assert words_of(first["Exec"]) == [head(CLUSTER)]
    assert words_of(second["Exec"]) == [worker("${HEAD_IP:?the address of the head}")]
    assert first["ContainerName"] == "qwen3.5_x-head"


def test_a_quadlet_says_what_systemd_shall_read_behind_podmans_generator() -> None:
    """Seen with the generators of podman 5.4.2 and 5.8.6: ``--env`` and ``-v`` of ExecStart are what stands here."""
    there = made(WANTED._replace(model="/models/$m"), model_folder="/data/${x} 5%")
    (text,) = files.write(there, "quadlet").values()
    assert unit(text)["Container"]["Volume"] == "/data/$${x} 5%%:/models/$$m:ro"
    odd = CLUSTER._replace(env={"E": "${x} $$ %h", "EMPTY": "", "LETTERS": "Öl"})
    for text in files.write(odd, "quadlet").values():
        assert 'Environment="E=$${x} $$$$ %%h"\nEnvironment="EMPTY="\n' in text
        assert 'Environment="LETTERS=Öl"\n' in text


def test_an_image_of_this_machine_is_not_looked_for_in_registries() -> None:
    (text,) = files.write(made(), "quadlet").values()
    assert unit(text)["Container"]["Image"] == "localhost/small:1-abc"
    for image in ("ghcr.io/me/small:1", "me/small:1"):
        (text,) = files.write(made()._replace(image=image), "quadlet").values()
        assert unit(text)["Container"]["Image"] == image


def test_kubernetes_takes_the_names_and_waits_for_health() -> None:
    (text,) = files.write(made(), "k8s").values()
    deployment, serving = yaml.safe_load_all(text)
    assert deployment["metadata"]["name"] == serving["metadata"]["name"] == "qwen3-5-x"
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert not {"args", "command"} & set(container)
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert container["startupProbe"]["httpGet"] == {"path": "/health", "port": 9000}
    assert serving["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    (text,) = files.write(CLUSTER, "k8s").values()
    first, second, ray = yaml.safe_load_all(text)
    assert ray["spec"]["clusterIP"] == "None"
    assert (
        "qwen3-5-x-head:6379" in second["spec"]["template"]["spec"]["containers"][0]["command"][2]
    )
    assert expanded(first["spec"]["template"]["spec"]["containers"][0]["command"][2]) == head(
        CLUSTER
    )


def expanded(text: str) -> str:
    """Read a text as Kubernetes does where no variable has the name: ``$$`` is a dollar, ``$(X)`` is looked up."""
    return re.sub(r"\$(\$|\([^)]*\))", lambda found: "$" if found[1] == "$" else "(expanded)", text)


def test_kubernetes_leaves_dollars_to_the_shell() -> None:
    one = CLUSTER._replace(command="echo $$ $(id) $HOME $((1+1))", env={"E": "a$$b $(HOME)"})
    (text,) = files.write(one, "k8s").values()
    container = next(yaml.safe_load_all(text))["spec"]["template"]["spec"]["containers"][0]
    assert expanded(container["command"][2]) == head(one)
    assert expanded(container["env"][0]["value"]) == "a$$b $(HOME)"


@pytest.mark.parametrize(
    ("given", "size"),
    [("16g", "16Gi"), ("1GiB", "1Gi"), ("512mb", "512Mi"), ("64b", "64"), ("9", "9")],
)
def test_the_shared_memory_is_the_same_in_kubernetes(given: str, size: str) -> None:
    (text,) = files.write(made(shm_size=given), "k8s").values()
    pod = next(yaml.safe_load_all(text))["spec"]["template"]["spec"]
    assert pod["volumes"][-1]["emptyDir"]["sizeLimit"] == size


@pytest.mark.parametrize(
    ("given", "quadlet"),
    [("unless-stopped", "always"), ("no", "no"), ("on-failure:3", "on-failure")],
)
def test_a_quadlet_starts_again_when_it_was_told_to(given: str, quadlet: str) -> None:
    (text,) = files.write(made(restart=given), "quadlet").values()
    assert unit(text)["Service"]["Restart"] == quadlet


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"restart": "no"}, "a Deployment starts its containers again"),
        ({"gpus": "0,1,2,3,4,5,6,7"}, "Kubernetes chooses them itself; the command needs 8"),
        ({"shm_size": "lots"}, "--shm-size lots: no size"),
        ({"restart": "sometimes"}, "no policy of an engine"),
    ],
)
def test_what_a_deployment_cannot_do_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        files.write(made(**given), "k8s")


@pytest.mark.parametrize("cluster", [False, True])
def test_kubectl_reads_it(cluster: bool, tmp_path: Path) -> None:  # noqa: FBT001
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    (text,) = files.write(CLUSTER if cluster else made(), "k8s").values()
    place = tmp_path / "x.yaml"
    place.write_text(text)
    done = subprocess.run(
        ["kubectl", "label", "--local", "-f", place, "x=1", "-o", "name"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("deployment.apps/qwen3-5-x") == 1 + cluster
