"""From a pairing's name to the container that serves it: the part that ``run`` and ``export`` share."""

from __future__ import annotations

import os
from typing import NamedTuple

import click

from vllm_mods.api import on_base
from vllm_mods.cli import options
from vllm_mods.cli.manner import option
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.taken_over import taken_over
from vllm_mods.library import trust
from vllm_mods.library.catalog import Library
from vllm_mods.running.service import Service, StartOptions, service


class Asked(NamedTuple):
    """A pairing, what its container is started with, and the digest of the lock that its image has to have.

    ``site_root`` is where the image has its vLLM.
    """

    wanted: Pairing
    service: Service
    lock: str
    site_root: str


serving = options.grouped(
    "given",
    StartOptions,
    option("--lock FILE", "The pairing's lock [beside it].", "lock_file"),
    option("--image REF", "Its image [the tag that `build` gives]."),
    option("--name NAME", "The container's [the pairing's].", "called"),
    option("--port", "On the host [the command's own].", type=click.IntRange(1, 65535)),
    option("--gpus WHICH", "All, none, or 0,1.", default="all", show_default=True),
    option("--shm-size SIZE", "Its shared memory.", "shm", default="16g", show_default=True),
    option(
        "--model-cache DIR",
        "Where models of the Hub are kept [$HF_HOME, else ~/.cache/huggingface].",
        "cache",
    ),
    option(
        "--model-folder DIR",
        "The model's own folder, of a pairing that names a path [that path].",
        "model",
    ),
    option("--restart POLICY", "When.", default="unless-stopped", show_default=True),
)


def asked(library: Library, name: str, arguments: tuple[str, ...], given: StartOptions) -> Asked:
    """Read a pairing and its lock, and return what is to be started."""
    named = library.pairing(name)
    wanted = taken_over(named, library.select(library.mods_of(named))).pairing
    path = on_base.lock_path(library, name, given.lock_file)
    beside = () if given.lock_file is not None else on_base.in_library(library, name, path)
    trust.demand_pairing(library, name, *beside)
    kept = on_base.read_lock(library, path, name)
    own = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    made = service(
        wanted,
        given._replace(model=given.model and os.path.abspath(given.model)),
        image=pairing_lock.tag(kept.lock, kept.data),
        command=kept.lock.command,
        cache=os.path.abspath(given.cache or own),
        arguments=arguments,
    )
    return Asked(wanted, made, f"sha256:{pairing_lock.digest(kept.data)}", kept.lock.vllm.site_root)
