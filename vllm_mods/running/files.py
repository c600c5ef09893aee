"""A pairing's container, as its image starts, as a file that people keep: compose, quadlet. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from vllm_mods.running.service import PAIRING_LABEL, Service, head, worker

FORMATS = ("compose", "quadlet")
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
    text = yaml.dump(
        _compose(planned), Dumper=_Yaml, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    return {"compose.yaml": text}


def _compose(planned: Service) -> dict[str, Any]:
    common: dict[str, Any] = {
        "image": planned.image,
        "labels": {PAIRING_LABEL: planned.pairing},
        "restart": planned.restart,
        "volumes": [
            f"{_double_dollars(mount.source)}:{_double_dollars(mount.target)}{':ro' if mount.read_only else ''}"
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
    env = {name: _double_dollars(value) for name, value in planned.env.items()}
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
            "entrypoint": ["/bin/bash", "-c", _double_dollars(script)],
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
        lines.append(
            f"Volume={_double_percents(_double_dollars(f'{mount.source}:{mount.target}'))}{end}"
        )
    if planned.gpus != "none":
        lines += [f"AddDevice=nvidia.com/gpu={each}" for each in planned.gpus.split(",")]
    if script is None:
        lines += [f"PublishPort={planned.port}:{planned.inside}", f"ShmSize={planned.shm}"]
    else:
        lines += ["Network=host", "PodmanArgs=--ipc=host --init"]
        # what is written here comes into the line that systemd expands
        env = [f"{key}={_double_dollars(value)}" for key, value in planned.env.items()]
        lines += [f"Environment={_word(each)}" for each in env]
        # VLLM_HOST_IP, and on the worker HEAD_IP, are this node's own
        lines += ["EnvironmentFile=/etc/vllm-mods/node.env", 'Entrypoint=["/bin/bash", "-c"]']
        lines.append(f"Exec={_double_dollars(_word(script))}")
    again = planned.restart.partition(":")[0].replace("unless-stopped", "always")
    lines += ["", "[Service]", f"Restart={again}", f"TimeoutStartSec={_START_SECONDS}"]
    return "\n".join([*lines, "", "[Install]", "WantedBy=default.target", ""])


def _double_dollars(text: str) -> str:
    """Return what compose and systemd read as a text: both take ``$$`` for a dollar."""
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
