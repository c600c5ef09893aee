"""Is an override of a hook told right from wrong by its parameter list, release by release?

A class of a mod overrides one hook of ``QuantizationConfig`` with one parameter list at a time.
Right is what Python's own binding says of the calls that the release makes, which were read in
its sources and are written down here.

    python benchmarks/fit_signatures.py --trees trees/0.20.0 trees/0.22.0 trees/0.27.0 trees/0.33.0
"""

from __future__ import annotations

import argparse
import gc
import inspect
import os
import sys
import time

from vllm_mods.base.model import FileChange, Level
from vllm_mods.fit import fit
from vllm_mods.fit.world import SummaryCache
from vllm_mods.trees.open import open_tree

PATH = "vllm/model_executor/layers/quantization/fp8.py"
LISTS = (
    ("get_quant_method", "(self, layer, prefix)"),
    ("get_quant_method", "(self, layer, name)"),
    ("get_quant_method", "(self, layer)"),
    ("get_quant_method", "(self, layer, prefix, scheme)"),
    ("maybe_update_config", "(self, model_name, hf_config=None, revision=None)"),
    ("maybe_update_config", "(self, model_name, hf_config=None)"),
    ("maybe_update_config", "(self, model_name, revision=None)"),
    ("maybe_update_config", "(self, model_name)"),
    ("apply_vllm_mapper", "(self, mapper)"),
    ("apply_vllm_mapper", "(self)"),
    ("apply_vllm_mapper", "(self, mapper, prefix)"),
    ("from_config", "(cls, config)"),
    ("from_config", "(cls)"),
    ("from_config", "(cls, config, prefix)"),
    ("override_quantization_method", "(cls, hf_quant_cfg, user_quant, hf_config=None)"),
    ("override_quantization_method", "(cls, hf_quant_cfg, user_quant)"),
    ("override_quantization_method", "(cls, hf_quant_cfg, user_quant, config=None)"),
    ("get_cache_scale", "(self, name)"),
    ("get_cache_scale", "(self)"),
    ("get_cache_scale", "(self, name, layer)"),
)


def calls(hook: str, version: tuple[int, int]) -> list[tuple[int, tuple[str, ...]]]:
    """Return the calls that a release makes of a hook: how many arguments, and which keywords."""
    if hook == "get_quant_method":
        return [(2, ())] if version >= (0, 33) else [(2, ()), (1, ("prefix",))]
    if hook == "maybe_update_config":
        return [(1, ("hf_config", "revision") if version >= (0, 33) else ("hf_config",))]
    if hook == "get_cache_scale" and version >= (0, 25):
        return []  # the base has no such hook any more
    return [(2, ("hf_config",))] if hook == "override_quantization_method" else [(1, ())]


def binds(parameters: str, version: tuple[int, int], hook: str) -> bool:
    """Tell by Python's own binding whether a parameter list takes every one of these calls."""
    made: dict[str, object] = {}
    exec(f"def made{parameters}: pass", made)  # noqa: S102 - the lists above
    signature = inspect.signature(made["made"])  # type: ignore[arg-type]
    for many, keywords in calls(hook, version):
        try:
            signature.bind(None, *range(many), **dict.fromkeys(keywords))
        except TypeError:
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", nargs="+", required=True, help="releases from 0.20 on")
    options = parser.parse_args()
    sys.modules["ty"] = None  # type: ignore[assignment]
    gc.disable()
    cache = SummaryCache()
    right = every = 0
    for spec in options.trees:
        start = time.perf_counter()
        tree = open_tree(spec)
        name = os.path.basename(spec).rpartition(":")[2]
        version = (int(name.split(".")[0]), int(name.split(".")[1]))
        before = tree.read(PATH) or b""
        good = 0
        for hook, parameters in LISTS:
            kind = "    @classmethod\n" if parameters.startswith("(cls") else ""
            text = f"\n\nclass Mine(QuantizationConfig):\n{kind}    def {hook}{parameters}:\n        return None\n"
            change = FileChange(path=PATH, before=before, after=before + text.encode())
            errors = [
                f for f in fit((change,), tree, cache=cache).findings if f.level is Level.ERROR
            ]
            good += bool(errors) != binds(parameters, version, hook)
            if bool(errors) == binds(parameters, version, hook):
                print(f"    wrong: {hook}{parameters}: {[f.message for f in errors]}")
        print(f"{name}: {good} of {len(LISTS)}, {time.perf_counter() - start:.1f} s", flush=True)
        right, every = right + good, every + len(LISTS)
    print(f"{right} of {every} parameter lists judged right")
    return 0 if right == every else 1


if __name__ == "__main__":
    raise SystemExit(main())
