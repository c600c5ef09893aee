"""A pairing's container, as its image starts, as a file that people keep, for ``docker compose``. Pure."""

import re
from typing import Any

import yaml

from vllm_mods.running.service import PAIRING_LABEL, WORKER, Service, head

_PLAIN = re.compile(r"[A-Za-z][\w./-]*\Z", re.ASCII)
_NOT_PLAIN = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def compose(planned: Service) -> str:
    """Return the file; a cluster has its two nodes in it."""
    text: str = yaml.dump(
        {"services": _services(planned)},
        Dumper=_Yaml,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf"),
    )
    return text


def _services(planned: Service) -> dict[str, Any]:
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
        ports = {"ports": [planned.published], "shm_size": planned.shm}
        return {planned.name: {"container_name": planned.name, **common, **ports}}
    # Two hosts: `docker compose --profile head up` on one, `--profile worker` on the other.
    host = {"VLLM_HOST_IP": "${VLLM_HOST_IP:?the address of this node}"}
    env = {name: _dollars(value) for name, value in planned.env.items()}
    nodes = {}
    for part, script in (("head", head(planned)), ("worker", WORKER)):
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
    return nodes


def _dollars(text: str) -> str:
    """Return what compose reads as a text: it takes ``$$`` for a dollar."""
    return text.replace("$", "$$")


class _Yaml(yaml.SafeDumper):
    """Texts in quotes but for plain words, so that no reader of YAML 1.1 or 1.2 takes one for anything else."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002  (PyYAML's signature)
        return True


def _text(dumper: _Yaml, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.match(text) and text.lower() not in _NOT_PLAIN
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Yaml.add_representer(str, _text)
