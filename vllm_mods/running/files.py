"""A pairing's container, as its image starts, as a file that people keep: compose, quadlet, Kubernetes. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from vllm_mods.base.errors import UsageError
from vllm_mods.running.service import PAIRING_LABEL, RAY_PORT, Service, head, worker

FORMATS = ("compose", "quadlet", "k8s")
_START_SECONDS = 1800
_HEAD = "${HEAD_IP:?the address of the head}"
_PLAIN = re.compile(r"[A-Za-z][\w./-]*\Z", re.ASCII)
_NOT_PLAIN = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def write(planned: Service, form: str) -> dict[str, str]:
    """Return the files of one of ``FORMATS`` by their names; a cluster has its two nodes in them."""
    if form == "quadlet":
        if not planned.cluster:
            return {f"{planned.name}.container": _quadlet(planned, None)}
        return {
            f"{planned.name}-head.container": _quadlet(planned, head(planned)),
            f"{planned.name}-worker.container": _quadlet(planned, worker(_HEAD)),
        }
    documents = _kubernetes(planned) if form == "k8s" else [_compose(planned)]
    name = "compose.yaml" if form == "compose" else f"{planned.name}.yaml"
    text = yaml.dump_all(
        documents, Dumper=_Yaml, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    return {name: text}


def _compose(planned: Service) -> dict[str, Any]:
    common: dict[str, Any] = {
        "image": planned.image,
        "labels": {PAIRING_LABEL: planned.pairing},
        "restart": planned.restart,
        "volumes": [
            f"{_dollars(mount.source)}:{_dollars(mount.target)}{':ro' if mount.read_only else ''}"
            for mount in planned.mounts
        ],
    }
    if planned.gpus != "none":
        which = (
            {"count": "all"} if planned.gpus == "all" else {"device_ids": planned.gpus.split(",")}
        )
        device = {"driver": "nvidia", **which, "capabilities": ["gpu"]}
        common["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    if not planned.cluster:
        ports = {"ports": [f"{planned.port}:{planned.inside}"], "shm_size": planned.shm}
        return {"services": {planned.name: {"container_name": planned.name, **common, **ports}}}
    # Two hosts: `docker compose --profile head up` on one, `--profile worker` on the other.
    host = {"VLLM_HOST_IP": "${VLLM_HOST_IP:?the address of this node}"}
    env = {name: _dollars(value) for name, value in planned.env.items()}
    nodes = {}
    for part, script in (("head", head(planned)), ("worker", worker(_HEAD))):
        # not `:?`: compose wants the variables of the other node too
        first = {"HEAD_IP": "${HEAD_IP:-}"} if part == "worker" else {}
        nodes[f"{planned.name}-{part}"] = {
            "container_name": f"{planned.name}-{part}",
            "profiles": [part],
            **common,
            "network_mode": "host",
            "ipc": "host",
            "init": True,
            "environment": {**env, **host, **first},
            "entrypoint": ["/bin/bash", "-c", _dollars(script)],
        }
    return {"services": nodes}


def _quadlet(planned: Service, script: str | None) -> str:
    # podman looks for a bare name in every registry that it searches, and `build` has put it here
    image = planned.image if "/" in planned.image else f"localhost/{planned.image}"
    part = "" if script is None else "-head" if script == head(planned) else "-worker"
    lines = [
        "[Unit]",
        f"Description=vLLM: {_double_percents(planned.pairing)}{part}",
        *("Wants=network-online.target", "After=network-online.target", "", "[Container]"),
        f"ContainerName={planned.name}{part}",
        f"Image={_double_percents(image)}",
        f"Label={PAIRING_LABEL}={planned.pairing}",
    ]
    for mount in planned.mounts:
        end = ":ro" if mount.read_only else ""
        lines.append(f"Volume={_double_percents(_dollars(f'{mount.source}:{mount.target}'))}{end}")
    if planned.gpus != "none":
        lines += [f"AddDevice=nvidia.com/gpu={each}" for each in planned.gpus.split(",")]
    if script is None:
        lines += [f"PublishPort={planned.port}:{planned.inside}", f"ShmSize={planned.shm}"]
    else:
        lines += ["Network=host", "PodmanArgs=--ipc=host --init"]
        # what is written here comes into the line that systemd expands
        env = [f"{key}={_dollars(value)}" for key, value in planned.env.items()]
        lines += [f"Environment={_word(each)}" for each in env]
        # VLLM_HOST_IP, and on the worker HEAD_IP, are this node's own
        lines += ["EnvironmentFile=/etc/vllm-mods/node.env", 'Entrypoint=["/bin/bash", "-c"]']
        lines.append(f"Exec={_dollars(_word(script))}")
    again = planned.restart.partition(":")[0].replace("unless-stopped", "always")
    lines += ["", "[Service]", f"Restart={again}", f"TimeoutStartSec={_START_SECONDS}"]
    return "\n".join([*lines, "", "[Install]", "WantedBy=default.target", ""])


def _kubernetes(planned: Service) -> list[dict[str, Any]]:
    if planned.restart not in {"always", "unless-stopped"}:
        raise UsageError(
            f"--restart {planned.restart}: a Deployment starts its containers again whenever they end",
            hint="leave --restart out",
        )
    if planned.gpus[0].isdigit():
        raise UsageError(
            f"--gpus {planned.gpus}: Kubernetes chooses them itself; the command needs {planned.per_node}",
            hint="--gpus all, or none",
        )
    # A service's name is one of DNS: no dot, and a letter first.
    plain = re.sub(r"[^a-z0-9-]", "-", planned.name.lower()).strip("-")
    planned = planned._replace(name=plain if plain[:1].isalpha() else f"vllm-{plain}")
    serving = f"{planned.name}-head" if planned.cluster else planned.name
    resources = [_deployment(planned, serving, head(planned) if planned.cluster else None)]
    ports = [{"name": "http", "port": planned.port, "targetPort": planned.inside}]
    spec: dict[str, Any] = {"selector": {"app": serving}, "ports": ports}
    if planned.cluster:
        resources.append(_deployment(planned, f"{planned.name}-worker", worker(serving)))
        ports.append({"name": "ray", "port": RAY_PORT, "targetPort": RAY_PORT})
        spec["clusterIP"] = "None"  # Ray opens more ports than these: the name is the pod's address
        spec["publishNotReadyAddresses"] = True
    return [
        *resources,
        {"apiVersion": "v1", "kind": "Service", **_named(planned, serving), "spec": spec},
    ]


def _deployment(planned: Service, name: str, script: str | None) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    for n, mount in enumerate(planned.mounts):
        volumes.append({"name": f"models-{n}", "hostPath": {"path": mount.source}})
        path = {"mountPath": mount.target, "readOnly": mount.read_only}
        mounts.append({"name": f"models-{n}", **path})
    memory = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _size(planned.shm)}}
    container: dict[str, Any] = {"name": "vllm", "image": planned.image}
    if script is not None:
        own = {"fieldRef": {"fieldPath": "status.podIP"}}
        container["command"] = ["/bin/bash", "-c", _dollars(script)]
        container["env"] = [
            {"name": key, "value": _dollars(planned.env[key])} for key in planned.env
        ]
        container["env"].append({"name": "VLLM_HOST_IP", "valueFrom": own})
    if script is None or script == head(planned):
        probe = {"httpGet": {"path": "/health", "port": planned.inside}, "periodSeconds": 10}
        container["ports"] = [{"containerPort": planned.inside}]
        container["startupProbe"] = {**probe, "failureThreshold": _START_SECONDS // 10}
        container["readinessProbe"] = probe
    if planned.gpus != "none":
        container["resources"] = {"limits": {"nvidia.com/gpu": planned.per_node}}
    container["volumeMounts"] = [*mounts, {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108
    pod = {"containers": [container], "volumes": [*volumes, memory]}
    template = {"metadata": {"labels": {"app": name, PAIRING_LABEL: planned.pairing}}, "spec": pod}
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": {"app": name}},
        "template": template,
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", **_named(planned, name), "spec": spec}


def _named(planned: Service, name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {PAIRING_LABEL: planned.pairing}}}


def _size(shm: str) -> str:
    """Return a size of docker's as Kubernetes writes it: ``16g`` is ``16Gi``."""
    number = shm.rstrip("bBiIkKmMgGtT")
    unit = shm[len(number) :][:1].upper().strip("B")
    return f"{number}{unit}i" if unit else number


def _dollars(text: str) -> str:
    """Return what compose, systemd and Kubernetes read as a text: all of them take ``$$`` for a dollar."""
    return text.replace("$", "$$")


def _double_percents(text: str) -> str:
    return text.replace("%", "%%")


def _word(text: str) -> str:
    """Return a word as systemd reads it: quoted, on one line."""
    return _double_percents(json.dumps(text, ensure_ascii=False))


class _Yaml(yaml.SafeDumper):
    """Texts in quotes but for plain words, so that no reader of YAML 1.1 or 1.2 takes one for anything else."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002  (PyYAML's signature)
        return True


def _text(dumper: _Yaml, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.match(text) and text.lower() not in _NOT_PLAIN
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Yaml.add_representer(str, _text)
