"""Does fit find fault with code that upstream shipped?

For each pair of neighbouring releases, upstream's own change of ``vllm/**.py`` is handed to
``fit`` as one patch on the older release, and every finding is counted. An error is either
explained in ``EXPLAINED``, with what is really wrong in the release, or a false alarm: the
command fails for the latter.

    python benchmarks/fit_false_alarms.py --trees trees/0.19.0 trees/0.19.1 pypi:0.20.0

``--reversed`` goes from each release back to the one before, ``--alone`` takes each changed file
as a patch of its own on a tree that is the newer release otherwise, ``--clusters N`` so many groups of
changed files of which each names one before it: what one author may have changed at once.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import resource
from itertools import pairwise
from typing import TYPE_CHECKING

from fit_blindness import Older

from vllm_mods.base.model import FileChange, Level
from vllm_mods.fit import fit
from vllm_mods.fit.search import WORD
from vllm_mods.fit.world import SummaryCache, module_stem
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_mods.base.model import Finding
    from vllm_mods.base.tree import Tree

Patch = tuple[FileChange, ...]
LARGEST = 8
"""How many files a cluster has at most."""

# What upstream shipped and fit is right about, by code, file and a text of the scope or the
# message, each looked up in the release.
EXPLAINED = {
    ("fit-override", "vllm/model_executor/models/aria.py", "Aria"): (
        "the base's load_weights passes weight_name= to self.weight_loader, which Aria's lacks; "
        "Aria's checkpoints are loaded another way, so it does not show"
    ),
    ("fit-import", "vllm/model_executor/layers/layernorm.py", "poly_norm"): (
        "0.11.1 took poly_norm out of _custom_ops and left this call"
    ),
    ("fit-call", "vllm/model_executor/models/kimi_linear.py", "KimiMLAAttention"): (
        "0.12.0 gave MLAModules a field without a default, and this caller does not pass it"
    ),
    ("fit-call", "vllm/model_executor/models/openpangu.py", "OpenPanguMLAAttention"): (
        "the same field of MLAModules"
    ),
    ("fit-call", "vllm/model_executor/models/jais2.py", "Jais2Attention"): (
        "0.13.0 took rotary_dim from get_rope and left this caller: the model cannot be built"
    ),
    ("fit-call", "vllm/model_executor/models/openpangu_vl.py", "OpenPangu"): (
        "0.16.0 kept get_input_embeddings, which passes four arguments where two fit; nobody "
        "calls it any more"
    ),
    ("fit-override", "vllm/model_executor/models/sarvam.py", "SarvamMixtureOfExperts"): (
        "set_eplb_state has one parameter where expert load balancing passes three"
    ),
    ("fit-call", "vllm/model_executor/models/cohere_asr.py", "CohereAsr"): (
        "one of two branches calls get_encoder_outputs without seq_lens"
    ),
    ("fit-import", "vllm/model_executor/models/musicflamingo.py", "MultiModalDataDict"): (
        "0.19.0 moved MultiModalDataDict to vllm.inputs and left this import"
    ),
    ("fit-import", "vllm/model_executor/models/qwen3_vl.py", "Qwen3VL"): (
        "0.19.0 imports vllm.v1.worker.gpu.mm.encoder_cudagraph_defs, which it does not ship"
    ),
    (
        "fit-import",
        "vllm/v1/worker/encoder_cudagraph.py",
        "encoder_cudagraph_defs",
    ): "the same missing module",
    ("fit-import", "vllm/v1/worker/gpu_model_runner.py", "GPUModelRunner"): (
        "its neighbour, missing in 0.19.0 too"
    ),
    (
        "fit-override",
        "vllm/model_executor/layers/fused_moe/fused_moe_method_base.py",
        "QuarkOCP_MX_MoEMethod_OSS",
    ): "0.20.0 passes input_ids= to apply_monolithic, which this method lacks",
    (
        "fit-override",
        "vllm/model_executor/layers/quantization/quark/quark_moe.py",
        "QuarkOCP_MX_MoEMethod_OSS",
    ): "the same, where the patch goes back from 0.20.1",
    ("fit-override", "vllm/model_executor/models/fireredlid.py", "FireRedLID"): (
        "0.20.0 calls get_generation_prompt with one SpeechToTextParams; this model has the old "
        "seven parameters"
    ),
    (
        "fit-import",
        "vllm/model_executor/layers/fused_moe/router/aiter_shared_routed_fused_moe_router.py",
        "rocm_aiter_fused_moe",
    ): "0.21.0 removed the module rocm_aiter_fused_moe and left these two imports",
    ("fit-call", "vllm/model_executor/models/deepseek_v4_mtp.py", "self.mtp_block"): (
        "0.21.0 calls its MTP layer without three parameters that it requires from then on"
    ),
    (
        "fit-import",
        "vllm/model_executor/layers/quantization/utils/humming_utils.py",
        "routed_experts",
    ): ("0.22.0 imports fused_moe.routed_experts, which it does not ship"),
    ("fit-override", "vllm/model_executor/models/gemma3_mm.py", "Gemma3ForConditional"): (
        "encoder_eager_forward lacks path=, which encoder_cudagraph passes for a model with a "
        "global budget; this one has none, so it does not show"
    ),
    (
        "fit-string",
        "vllm/distributed/device_communicators/quick_all_reduce.py",
        "Custom quick allreduce:",
    ): "the text has no place for the value that is logged, so logging prints a traceback",
    ("fit-attribute", "vllm/model_executor/models/step3p5.py", "swiglu_limits_shared"): (
        "0.15.1 states ModelConfig for what is the checkpoint's own configuration: it runs, its type is wrong"
    ),
    ("fit-attribute", "vllm/model_executor/models/step3p5.py", "lora_config.lora_"): (
        "0.15.1 reads two fields that LoRAConfig has not got any more"
    ),
    ("fit-string", "vllm/entrypoints/openai/speech_to_text/speech_to_text.py", "warmup failed"): (
        "0.16.0 logs a text with %s and gives it nothing"
    ),
    ("fit-string", "vllm/v1/engine/tensor_ipc.py", "Discarding %d stale"): (
        "two places and one value: logging prints a traceback"
    ),
    ("fit-attribute", "vllm/lora/layers/logits_processor.py", "include_gpu_probs_tensor"): (
        "LogitsProcessor has had no such attribute for long; nobody reads the property"
    ),
    ("fit-attribute", "vllm/lora/layers/logits_processor.py", "should_modify_greedy"): "the same",
    ("fit-attribute", "vllm/model_executor/models/exaone_moe.py", "lora_config.lora_"): (
        "LoRAConfig lost lora_extra_vocab_size and lora_vocab_padding_size"
    ),
    (
        "fit-attribute",
        "vllm/model_executor/models/exaone_moe_mtp.py",
        "lora_config.lora_",
    ): "the same",
    (
        "fit-attribute",
        "vllm/model_executor/models/exaone4_5_mtp.py",
        "lora_config.lora_",
    ): "the same",
    ("fit-attribute", "vllm/model_executor/models/laguna_dflash.py", "get_cache_scale"): (
        "the hook get_cache_scale is gone from QuantizationConfig, and this model calls it"
    ),
    ("fit-call", "vllm/benchmarks/datasets.py", "allowed_tokens"): (
        "0.11.1 made allowed_tokens required and left two callers without it"
    ),
    ("fit-attribute", "vllm/model_executor/layers/kda.py", "linear_attn_config"): (
        "0.11.1 states ModelConfig for the checkpoint's own configuration: it runs, its type is wrong"
    ),
    ("fit-types", "vllm/v1/worker/gpu_worker.py", "EplbState"): (
        "0.11.1 gave EplbState a state for each model and a parameter another name, and left this caller"
    ),
    ("fit-duplicate", "vllm/config/vllm.py", "has_blocked_weights"): (
        "0.12.0 defines the same function twice in one method"
    ),
    ("fit-types", "vllm/model_executor/models/step3_text.py", "`ModelConfig`"): (
        "0.12.0 states ModelConfig for the checkpoint's own configuration: it runs, its type is wrong"
    ),
    ("fit-string", "vllm/attention/layers/mm_encoder_attention.py", "PALLAS backend"): (
        "0.13.0 has a comma between two halves of a text: the second is a value without a place"
    ),
    ("fit-string", "vllm/tool_parsers/minimax_tool_parser.py", "An unexpected error"): "the same",
    ("fit-string", "vllm/tool_parsers/qwen3xml_tool_parser.py", "Parsed value"): (
        "three places and one value: logging prints a traceback"
    ),
    ("fit-attribute", "vllm/compilation/piecewise_backend.py", "range_entry.runnable"): (
        "0.13.0 states Range for what is a RangeEntry: it runs, its type is wrong"
    ),
    ("fit-attribute", "vllm/model_executor/models/jais2.py", "lora_config.lora_"): (
        "LoRAConfig lost lora_extra_vocab_size and lora_vocab_padding_size"
    ),
    ("fit-string", "vllm/entrypoints/openai/speech_to_text.py", "warmup failed"): (
        "0.14.0 logs a text with %s and gives it nothing"
    ),
    ("fit-string", "vllm/entrypoints/openai/translations/speech_to_text.py", "warmup failed"): (
        "the same, moved"
    ),
    ("fit-attribute", "vllm/config/vllm.py", "bs_to_padded_graph_size"): (
        "0.15.0 moved the list to the dispatcher and left this method, which nobody calls"
    ),
    ("fit-call", "vllm/model_executor/models/glm4_moe_lite.py", "make_expert_params_mapping"): (
        "0.15.0 does not pass model, which FusedMoE needs"
    ),
    ("fit-types", "vllm/model_executor/models/sarvam.py", "MoERunner.set_eplb_state"): (
        "one parameter where MoERunner takes four, as for the model above"
    ),
    ("fit-types", "vllm/model_executor/models/gemma4.py", "`IntermediateTensors`"): (
        "0.19.0 calls get of IntermediateTensors, which has none: it fails with pipeline parallelism"
    ),
    ("fit-types", "vllm/benchmarks/datasets/datasets.py", "SpecBench.sample"): (
        "0.20.0 took self from a method's parameters"
    ),
    ("fit-types", "vllm/model_executor/models/step3p5.py", "swiglu_limits_shared"): (
        "the wrong ModelConfig above"
    ),
    ("fit-dead", "vllm/model_executor/models/gemma3n_mm.py", "get_max_tokens_per_item"): (
        "the hook is get_mm_max_tokens_per_item, and nothing calls this one"
    ),
}


def explanation(finding: Finding) -> str:
    """Return why upstream is at fault, ``""`` if that is not known."""
    told = f"{finding.scope}: {finding.message}"
    for (code, path, words), text in EXPLAINED.items():
        # what was found by types has the code of its kind now
        same = code in {finding.code, "fit-types"} and path == finding.path
        if same and words and words in told:
            return text
    return ""


def held(spec: str) -> Tree:
    """Return a release with its files in memory: each is read for many patches."""
    tree = open_tree(spec)
    return Older(tree, {}, {p: tree.read(p) or b"" for p in tree.paths() if p.endswith(".py")})


def changes_between(old: Tree, new: Tree) -> Patch:
    """Return upstream's change of every Python file, as one patch."""
    paths = {path for tree in (old, new) for path in tree.paths("vllm") if path.endswith(".py")}
    found = (
        FileChange(path=path, before=old.read(path), after=new.read(path)) for path in sorted(paths)
    )
    return tuple(change for change in found if change.before != change.after)


def judge(patches: Iterable[Patch], new: Tree, cache: SummaryCache) -> Iterator[Finding]:
    """Yield what is found of some of a release's changes, each patch on the release without it."""
    kept = {path: new.read(path) or b"" for path in new.paths()}
    for patch in patches:
        tree = Older(new, {change.path: change.before for change in patch}, kept)
        yield from fit(patch, tree, cache=cache).findings


def clusters(changes: Patch, many: int) -> Iterator[Patch]:
    """Yield groups of two to eight changed files, the same ones in each run."""
    draw = random.Random(1)
    words = {c.path: set(WORD.findall((c.before or b"") + (c.after or b""))) for c in changes}
    for first in draw.sample(changes, min(many, len(changes))):
        group = [first]
        for change in draw.sample(changes, len(changes)):
            stems = {module_stem(member.path).encode() for member in group}
            if change not in group and len(group) < LARGEST and stems & words[change.path]:
                group.append(change)
        if len(group) > 1:
            yield tuple(group)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", nargs="+", required=True, help="releases, oldest first")
    parser.add_argument("--reversed", action="store_true", help="from the newer to the older")
    parser.add_argument("--alone", action="store_true", help="each file as a patch of its own")
    parser.add_argument("--clusters", type=int, default=0, help="so many of each pair")
    parser.add_argument("--show-notes", action="store_true")
    options = parser.parse_args()
    print(
        f"{'pair':24} {'files':>6} {'lines':>8} {'errors':>6} {'false':>6} {'notes':>6} {'CPU s':>7} {'MB':>5}"
    )
    # Syntax trees have no cycles, and looking for some doubles the time.
    gc.disable()
    cache = SummaryCache()
    pairs = right = wrong = files_judged = 0
    for one, other in pairwise(reversed(options.trees) if options.reversed else options.trees):
        start = sum(os.times()[:4])
        old, new = held(one), held(other)
        changes = changes_between(old, new)
        groups = list(clusters(changes, options.clusters))
        if options.alone or groups:
            found = list(judge(groups or [(change,) for change in changes], new, cache))
        else:
            found = list(fit(changes, old, cache=cache).findings)
        files, lines = len(changes), sum(len((c.after or b"").splitlines()) for c in changes)
        seconds = sum(os.times()[:4]) - start
        errors = [finding for finding in found if finding.level is Level.ERROR]
        false = [finding for finding in errors if not explanation(finding)]
        names = f"{os.path.basename(one)} -> {os.path.basename(other)}"
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            f"{names:24} {files:6} {lines:8} {len(errors):6} {len(false):6}"
            f" {len(found) - len(errors):6} {seconds:7.1f} {memory:5}",
            flush=True,
        )
        for finding in errors:
            print(f"    {finding.code}: {finding.message}", flush=True)
            if finding not in false:
                print(f"        {explanation(finding)}", flush=True)
        if options.show_notes:
            for finding in found:
                if finding.level is Level.NOTE:
                    print(f"    note {finding.message}", flush=True)
        right += len(errors) - len(false)
        wrong += len(false)
        files_judged += files
        gc.collect()
        pairs += 1
    print(
        f"{pairs} pairs, {files_judged} files: {right} faults of upstream found, "
        f"{wrong} false alarms"
    )
    return 0 if not wrong else 1


if __name__ == "__main__":
    raise SystemExit(main())
