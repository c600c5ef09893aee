"""What is refused behind the config classes, with what `VllmConfig` was made of: where it is sure, and only there."""

from __future__ import annotations

from typing import Any

import pytest
from memory_tree import MemoryTree

from vllm_mods.serving import refusals
from vllm_mods.serving.meaning import UNKNOWN, KnownObject, RefusedError
from vllm_mods.serving.source import ModuleSources

CONFIG = """
from vllm.config.utils import config

@config
class KVTransferConfig:
    kv_connector: str | None = None
    kv_connector_module_path: str | None = None

@config
class LoadConfig:
    load_format: str = "auto"
    extra: dict = {}

@config
class VllmConfig:
    additional_config: dict
    kv_transfer_config: KVTransferConfig | None = None
    offload: bool = False

    def __post_init__(self):
        ask_the_machine(self)
        self._post_init_kv_transfer_config()
        if GUARD:
            from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
            KVConnectorFactory.look_up(self.kv_transfer_config)

    def _post_init_kv_transfer_config(self):
        if self.offload:
            self.kv_transfer_config.kv_connector = "Offloading"
"""
FACTORY = """
class KVConnectorFactory:
    _registry: dict = {}

    @classmethod
    def look_up(cls, config):
        if config.kv_connector is None:
            raise ValueError("no name")
        if config.kv_connector not in cls._registry:
            raise ValueError("not there")

KVConnectorFactory.register_connector("Nixl", "x", "y")
"""
LOADERS = """
class Loader:
    def __init__(self, load_config):
        super().__init__(load_config)
        if more := set(load_config.extra.keys()) - {"threads"}:
            raise ValueError(f"what is {sorted(more)}")

_LOAD_FORMAT_TO_MODEL_LOADER = {"auto": Loader, "other": object}
"""
NO_NAME = {"kv_connector": None, "kv_connector_module_path": None}


def refused(guard: str = "self.kv_transfer_config is not None", **given: Any) -> str:
    sources = ModuleSources(
        MemoryTree(
            {
                "vllm/config/utils.py": b"def config(cls): return cls\n",
                "vllm/config/vllm.py": CONFIG.replace("GUARD", guard).encode(),
                "vllm/distributed/kv_transfer/kv_connector/factory.py": FACTORY.encode(),
                "vllm/model_executor/model_loader/__init__.py": LOADERS.encode(),
            }
        )
    )
    made = {
        name: KnownObject(cls, value)
        if (cls := sources.find_class("vllm/config/vllm.py", CLASSES.get(name, "-")))
        and isinstance(value, dict)
        else value
        for name, value in given.items()
    }
    try:
        refusals.check_whole(sources, made)
    except RefusedError as error:
        return f"{', '.join(error.names)}: {error}"
    return ""


CLASSES = {"kv_transfer_config": "KVTransferConfig", "load_config": "LoadConfig"}


def test_a_connector_that_is_looked_up_whatever_else_is_so_has_to_be_there() -> None:
    assert refused(kv_transfer_config=NO_NAME) == "kv_transfer_config: no name"
    other = {**NO_NAME, "kv_connector": "Nxil"}
    told = "kv_transfer_config: kv_connector 'Nxil' is none of Nixl"
    assert refused(kv_transfer_config=other) == told


@pytest.mark.parametrize(
    "given",
    [
        {"kv_transfer_config": {**NO_NAME, "kv_connector": "Nixl"}},
        {"kv_transfer_config": {**NO_NAME, "kv_connector": UNKNOWN}},
        {"kv_transfer_config": {"kv_connector": "Mine", "kv_connector_module_path": "my.module"}},
        {"kv_transfer_config": NO_NAME, "offload": True},
        {"kv_transfer_config": NO_NAME, "offload": UNKNOWN},
        {"kv_transfer_config": NO_NAME, "guard": "who_knows()"},
        {"kv_transfer_config": UNKNOWN},
        {"load_config": {"load_format": "auto", "extra": {"threads": 2}}},
        {"load_config": {"load_format": "other", "extra": {"a": 2}}},
        {"load_config": {"load_format": UNKNOWN, "extra": {"a": 2}}},
        {"load_config": {"load_format": "auto", "extra": UNKNOWN}},
        {"additional_config": {"a": 1}},
        {"additional_config": UNKNOWN},
    ],
)
def test_what_may_be_taken_is_no_fault(given: dict[str, Any]) -> None:
    assert refused(**given) == ""


def test_a_loader_is_asked_for_the_keys_that_it_knows() -> None:
    given = {"load_format": "auto", "extra": {"a": 1, "threads": 2}}
    assert refused(load_config=given) == "model_loader_extra_config: what is ['a']"


def test_the_fields_of_the_class_that_holds_all_others_have_types() -> None:
    assert refused(additional_config="x").startswith("additional_config: 'additional_config': ")
