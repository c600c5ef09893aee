"""Serve commands in families, each with the reason why it is asked: right ones and wrong ones mixed.

Which of them a release refuses is not said here: ``serve_truth/VERSION.json`` has what its own parser
and its own config classes said. ``{model}`` is a small dense model of 32768 positions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Family(NamedTuple):
    """Commands that ask the same; ``tails`` follow ``vllm serve {model}``."""

    name: str
    reason: str
    tails: tuple[tuple[str, ...], ...]


def _each(flag: str, *values: str) -> tuple[tuple[str, ...], ...]:
    return tuple((flag, value) for value in values)


def _objects(flag: str, *objects: object) -> tuple[tuple[str, ...], ...]:
    return tuple((flag, json.dumps(one)) for one in objects)


def _words(*lines: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(line.split()) for line in lines)


def _keys(flag: str, key: str, *values: object) -> tuple[tuple[str, ...], ...]:
    return _objects(flag, *({key: value} for value in values))


FAMILIES = (
    Family("everyday", "what people serve with", _words(
        "", "--port 8000 --host 0.0.0.0", "--served-model-name desk other", "--dtype bfloat16",
        "--trust-remote-code", "--no-enable-prefix-caching", "--enable-chunked-prefill",
        "--api-key one two", "--max-model-len 8192 --max-num-seqs 16", "--enforce-eager",
        "--gpu-memory-utilization 0.8", "--max-num-batched-tokens 16k", "--seed 7",
        "--uvicorn-log-level warning", "--disable-log-stats", "--generation-config vllm",
        "--enable-auto-tool-choice --tool-call-parser hermes", "--reasoning-parser qwen3",
        "--block-size 16", "--kv-cache-dtype fp8", "--load-format dummy", "--max-logprobs 5",
    )),
    Family("spelling", "a letter lost or doubled, an old name, a wrong dash or underscore", _words(
        "--prot 8000", "--max-modellen 8192", "--max-model-length 8192", "--gpu-memory-utilisation 0.8",
        "--tensor-parallel 2 --tensor-parallel-sizes 2", "--max_model_len 8192", "--swap-space 4",
        "--enable-prefix-cache", "--disable-log-requests", "--tool-parser hermes", "--no-dtype",
        "--enable-reasoning", "--guided-decoding-backend xgrammar", "--num-scheduler-steps 4",
        "--use-v2-block-manager", "--worker-use-ray", "--served-model desk", "--enable-lora --max-lora 1",
    )),
    Family("numbers", "what a number flag takes for a number, and within which bounds", (
        *_each("--port", "8000", "http", "80.5", "-1", "70000"),
        *_each("--max-model-len", "0", "-1", "-2", "1", "auto", "8k", "8K", "1.5k", "1.5K", "8kk", "32768",
               "0x10", "1e3", ""),
        *_each("--max-num-seqs", "0", "1", "-1", "1k", "one"),
        *_each("--max-num-batched-tokens", "0", "-1", "8192", "8k", "8K", "1.5K"),
        *_each("--gpu-memory-utilization", "0", "0.0", "0.5", "1", "1.01", "-0.5", "90", "90%"),
        *_each("--tensor-parallel-size", "0", "1", "-1", "two"),
        *_each("--pipeline-parallel-size", "0", "1", "-2"),
        *_each("--block-size", "0", "16", "17", "-16", "128"),
        *_each("--seed", "-1", "0", "x"),
        *_each("--max-logprobs", "-1", "-2", "0", "x"),
        *_each("--max-lora-rank", "8", "7", "0"),
        *_each("--stream-interval", "0", "1"),
        *_each("--num-gpu-blocks-override", "0", "100", "-1"),
        *_each("--cpu-offload-gb", "-1", "0", "2"),
        *_each("--data-parallel-size", "0", "-1", "1"),
        *_each("--max-parallel-loading-workers", "2", "x"),
        *_each("--long-prefill-token-threshold", "0", "-1"),
    )),
    Family("choices", "names that are offered, in another case, and ones that are not", (
        *_each("--dtype", "auto", "half", "bf16", "BFLOAT16", "fp8"),
        *_each("--kv-cache-dtype", "auto", "fp8_e4m3", "int8x", "FP8"),
        *_each("--load-format", "auto", "safetensors", "safetensor"),
        *_each("--tokenizer-mode", "auto", "slow", "fast"),
        *_each("--distributed-executor-backend", "mp", "uni", "ray2"),
        *_each("--scheduling-policy", "fcfs", "priority", "lifo"),
        *_each("--chat-template-content-format", "auto", "openai", "json"),
        *_each("--tool-call-parser", "hermes", "herms"),
        *_each("--reasoning-parser", "qwen3", "qwen33"),
        *_each("--runner", "generate", "pooling", "serve"),
        *_each("--convert", "auto", "embed", "vector"),
        *_each("--uvicorn-log-level", "info", "loud"),
        *_each("--prefix-caching-hash-algo", "sha256", "md5"),
        *_each("--attention-backend", "FLASH_ATTN", "flash_attn", "FLASHATTN"),
        *_each("--optimization-level", "0", "2", "5"),
        *_each("--mm-processor-cache-type", "lru", "shm", "disk"),
    )),
    Family("value or none", "a switch with a value, a flag without one, a word too many", _words(
        "--enforce-eager true", "--enforce-eager=true", "--port", "--port 1 2", "--dtype --port 1",
        "--served-model-name", "--trust-remote-code yes", "--no-enforce-eager", "--seed= ",
        "extra", "--api-key",
    )),
    Family("compilation modes", "numbers, names in any case, and what is neither", (
        *_keys("--compilation-config", "mode", 0, 1, 3, 4, -1, "NONE", "vllm_compile", "TURBO", "3", None,
               True, 1.5, [3]),
        *_each("--compilation-config", "3", "0", "9", "mode", '{"level": 3}', "[]", "{mode: 3}"),
        *_each("-O.mode", "3", "NONE", "turbo"),
        *_words("-O3", "-O 2", "-O9", "--compilation-config.mode 3", "--compilation-config.mod 3",
                "--compilation-config.mode=fast"),
    )),
    Family("cuda graphs", "modes by name, sizes, and the flag beside the key", (
        *_keys("--compilation-config", "cudagraph_mode", "NONE", "full", "FULL_AND_PIECEWISE", "sometimes",
               "FULL_PIECEWISE", 1, 9, None, ""),
        *_keys("--compilation-config", "cudagraph_capture_sizes", [1, 2, 4], ["x"], 4, [], ["4"]),
        *_keys("--compilation-config", "max_cudagraph_capture_size", 16, -1, "x", None),
        *_words("--cudagraph-capture-sizes 1 2 4", "--cudagraph-capture-sizes 1 two",
                "--max-cudagraph-capture-size 16"),
        ("--cudagraph-capture-sizes", "1", "2", "--compilation-config", '{"cudagraph_capture_sizes": [1]}'),
        ("--max-cudagraph-capture-size", "8", "--compilation-config", '{"max_cudagraph_capture_size": 8}'),
    )),
    Family("compilation keys", "what lies deeper, and what the class itself looks at", (
        *_objects(
            "--compilation-config",
            {"pass_config": {"fuse_norm_quant": True}}, {"pass_config": {"fuse_norm": True}},
            {"pass_config": {"fuse_norm_quant": "maybe"}}, {"pass_config": 1}, {"pass_config": {}},
            {"pass_config": {"nonesuch": {"a": 1}}},
            {"custom_ops": ["all"]}, {"custom_ops": ["all", "none"]}, {"custom_ops": ["+rms_norm"]},
            {"custom_ops": ["rms_norm"]}, {"custom_ops": ["+a", "-a"]}, {"custom_ops": "all"},
            {"mode": 3, "backend": "tensorrt"}, {"mode": 3, "backend": "eager"}, {"backend": "inductor"},
            {"compile_sizes": [1, "cudagraph_capture_sizes"]}, {"compile_sizes": [1.5]},
            {"compile_cache_save_format": "unpacked"}, {"compile_cache_save_format": "zip"},
            {"splitting_ops": ["vllm::unified_attention"]}, {"splitting_ops": "all"},
            {"inductor_compile_config": {"max_autotune": True}}, {"inductor_compile_config": []},
            {"use_inductor_graph_partition": True}, {"use_inductor": True}, {"debug_dump_path": "tmp/x"},
            {"cache_dir": 3}, {"encoder_cudagraph_token_budgets": [0]},
            {"encoder_cudagraph_token_budgets": [64]}, {"compilation_time": 1}, {"enabled_custom_ops": {}},
            {"dynamic_shapes_config": {"type": "backed"}}, {"dynamic_shapes_config": {"type": "wild"}},
        ),
        *_words("--compilation-config.pass_config.fuse_norm_quant true",
                "--compilation-config.pass_config.fuse_nor_quant true"),
    )),
    Family("pooler", "types and what excludes what", (
        *_objects(
            "--pooler-config",
            {"pooling_type": "MEAN"}, {"pooling_type": "mean"}, {"pooling_type": "CLS"},
            {"pooling_type": "AVERAGE"}, {"pooling_type": "ALL"}, {"pooling_type": None},
            {"pooling_type": "MEAN", "seq_pooling_type": "CLS"}, {"seq_pooling_type": "LAST"},
            {"tok_pooling_type": "LAST"}, {"tok_pooling_type": "STEP"}, {"normalize": True},
            {"use_activation": True}, {"use_activation": "x"}, {"dimensions": 64}, {"dimensions": "x"},
            {"logit_sigma": 0}, {"logit_sigma": 2.5}, {"logit_mean": "x"}, {"pool": "MEAN"},
            {"returned_token_ids": [1, 2]}, {"returned_token_ids": 1}, {"step_tag_id": 1},
        ),
        ("--runner", "pooling", "--pooler-config", '{"pooling_type": "LAST"}'),
        ("--pooler-config", "MEAN"),
    )),
    Family("transfer", "a connector has a role, and a role has a name", (
        *_objects(
            "--kv-transfer-config",
            {"kv_connector": "NixlConnector"}, {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
            {"kv_connector": "NixlConnector", "kv_role": "both"}, {"kv_role": "kv_producer"}, {},
            {"kv_connector": "X", "kv_role": None}, {"kv_rank": 0}, {"kv_port": "x"}, {"kv_port": 5000},
            {"kv_connector": "SharedStorageConnector", "kv_role": "kv_consumer",
             "kv_connector_extra_config": {"a": 1}},
            {"kv_load_failure_policy": "ignore"}, {"kv_load_failure_policy": "recompute"},
            {"connector": "NixlConnector"}, {"kv_buffer_size": 1e9}, {"kv_ip": 3},
        ),
        *_objects(
            "--ec-transfer-config",
            {"ec_connector": "X"}, {"ec_connector": "X", "ec_role": "ec_producer"},
            {"ec_role": "producer"}, {"ec_rank": 0, "ec_role": "ec_consumer"},
        ),
        *_objects(
            "--kv-events-config",
            {"enable_kv_cache_events": True}, {"publisher": "zmq"}, {"publisher": "kafka"},
            {"enable_kv_cache_events": True, "publisher": "null"}, {"buffer_steps": "x"}, {"endpoint": 1},
        ),
    )),
    Family("lora", "modules as name=path or JSON, and ranks", (
        *_each("--lora-modules", "foo", "foo=bar", '{"name": "a", "path": "b"}', '{"name": "a"}',
               '{"name": "a", "path": "b", "extra": 1}', "{name: a}", "", "a=b,c=d",
               '[{"name": "a", "path": "b"}]',
               '{"name": "a", "path": "b", "base_model_name": "c"}'),
        *_words(
            "--lora-modules a=b c=d", "--lora-modules a=b foo", "--enable-lora --max-loras 4",
            "--enable-lora --max-loras 4 --max-cpu-loras 2", "--enable-lora --max-loras 0",
            "--enable-lora --max-loras 2 --max-cpu-loras 8", "--enable-lora --max-lora-rank 12",
            "--max-loras 4 --max-cpu-loras 2", "--enable-lora --lora-dtype float64",
            "--enable-lora --fully-sharded-loras",
        ),
    )),
    Family("sizes", "what has to divide what", _words(
        "--tensor-parallel-size 2 --decode-context-parallel-size 2",
        "--tensor-parallel-size 2 --decode-context-parallel-size 3",
        "--tensor-parallel-size 3 --decode-context-parallel-size 2",
        "--decode-context-parallel-size 2", "--decode-context-parallel-size 0",
        "--nnodes 2 --tensor-parallel-size 4", "--nnodes 3 --tensor-parallel-size 4",
        "--nnodes 3 --tensor-parallel-size 2 --pipeline-parallel-size 3",
        "--nnodes 2 --node-rank 1 --tensor-parallel-size 2",
        "--nnodes 2 --node-rank 2 --tensor-parallel-size 2",
        "--nnodes 2 --node-rank -1 --tensor-parallel-size 2", "--nnodes 0", "--node-rank 1",
        "--nnodes 2 --node-rank 5 --tensor-parallel-size 2 --headless",
        "--nnodes 2 --tensor-parallel-size 2 --distributed-executor-backend ray",
        "--nnodes 2 --tensor-parallel-size 2 --distributed-executor-backend mp",
        "--nnodes 2 --tensor-parallel-size 2 --data-parallel-backend ray",
        "--data-parallel-size 2 --data-parallel-rank 2", "--data-parallel-size 2 --data-parallel-rank 5",
        "--data-parallel-size 2 --data-parallel-rank -1",
        "--data-parallel-size 4 --data-parallel-size-local 2",
        "--data-parallel-size 2 --data-parallel-size-local 4",
        "--data-parallel-size 2 --data-parallel-hybrid-lb",
        "--data-parallel-size 2 --data-parallel-hybrid-lb --data-parallel-size-local 1",
        "--data-parallel-hybrid-lb --data-parallel-external-lb", "--data-parallel-external-lb",
        "--data-parallel-backend slurm", "--data-parallel-size 2 --data-parallel-start-rank 1",
        "--data-parallel-rank 1", "--prefill-context-parallel-size 2",
        "--cp-kv-cache-interleave-size 32 --block-size 16", "--cp-kv-cache-interleave-size 16 --block-size 32",
    )),
    Family("scheduling", "how many at a time, and how long", _words(
        "--max-num-batched-tokens 8 --max-num-seqs 16", "--max-num-batched-tokens 16 --max-num-seqs 16",
        "--max-model-len 8192 --max-num-batched-tokens 4096 --no-enable-chunked-prefill",
        "--max-model-len 4096 --max-num-batched-tokens 8192 --no-enable-chunked-prefill",
        "--max-model-len 8192 --max-num-batched-tokens 4096",
        "--max-num-partial-prefills 2 --max-long-partial-prefills 4",
        "--max-num-partial-prefills 4 --max-long-partial-prefills 2",
        "--max-num-partial-prefills 0", "--max-num-partial-prefills 2 --no-enable-chunked-prefill",
        "--long-prefill-token-threshold 9000 --max-model-len 8192 --max-num-partial-prefills 2",
        "--async-scheduling", "--no-async-scheduling", "--scheduling-policy priority --async-scheduling",
        "--scheduler-cls my.Scheduler", "--scheduler-reserve-full-isl",
        "--disable-hybrid-kv-cache-manager", "--max-num-scheduled-tokens 0",
    )),
    Family("speculation", "methods, numbers of tokens, and what belongs to which", (
        *_objects(
            "--speculative-config",
            {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4},
            {"method": "ngram", "num_speculative_tokens": 3},
            {"method": "ngram", "prompt_lookup_max": 4},
            {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 5, "prompt_lookup_max": 4},
            {"method": "ngram", "num_speculative_tokens": 0, "prompt_lookup_max": 4},
            {"method": "ngram", "num_speculative_tokens": -1}, {"method": "ngram", "prompt_lookup_min": 0},
            {"method": "ngramm", "num_speculative_tokens": 3}, {"num_speculative_tokens": 3},
            {"method": "ngram", "num_speculative_tokens": "3", "prompt_lookup_max": 4},
            {"method": "ngram", "num_speculative_tokens": "x"}, {"methd": "ngram"}, {},
            {"method": "ngram", "num_speculative_tokens": 2, "disable_padded_drafter_batch": "x"},
            {"method": "suffix", "suffix_decoding_max_tree_depth": 0},
            {"method": "ngram", "num_speculative_tokens": 2, "draft_tensor_parallel_size": 3},
        ),
        *_each("--speculative-config", "ngram", "[1]", "{method: ngram}"),
        ("--speculative-config.method", "ngram", "--speculative-config.num_speculative_tokens", "2"),
        ("--speculative-config.method", "ngrm", "--speculative-config.num_speculative_tokens", "2"),
    )),
    Family("structured output", "backends and the switches that go with them", (
        *_objects(
            "--structured-outputs-config",
            {"backend": "xgrammar"}, {"backend": "guidance"}, {"backend": "lark"}, {"backend": "auto"},
            {"backend": "xgrammar", "disable_any_whitespace": True},
            {"backend": "outlines", "disable_any_whitespace": True},
            {"backend": "auto", "disable_any_whitespace": True},
            {"backend": "xgrammar", "disable_additional_properties": True},
            {"backend": "guidance", "disable_additional_properties": True},
            {"reasoning_parser": "qwen3"}, {"disable_fallback": True}, {"backends": "xgrammar"},
        ),
    )),
    Family("profiling and tracing", "what needs what", (
        *_objects(
            "--profiler-config",
            {"profiler": "torch"}, {"profiler": "torch", "torch_profiler_dir": "tmp/p"},
            {"profiler": "cuda"}, {"profiler": "nsys"}, {"torch_profiler_dir": "tmp/p"},
            {"delay_iterations": -1}, {"delay_iterations": 2}, {"max_iterations": -1},
            {"profiler": "cuda", "torch_profiler_dir": "tmp/p"},
        ),
        *_words("--otlp-traces-endpoint http://here:4317", "--collect-detailed-traces all",
                "--collect-detailed-traces model", "--collect-detailed-traces everything",
                "--show-hidden-metrics-for-version 0.9", "--show-hidden-metrics-for-version nine",
                "--kv-cache-metrics", "--kv-cache-metrics-sample 2", "--kv-cache-metrics-sample 0.5"),
    )),
    Family("experts", "expert parallelism and its balancing", (
        *_words("--enable-expert-parallel", "--enable-eplb",
                "--enable-eplb --enable-expert-parallel",
                "--enable-eplb --enable-expert-parallel --tensor-parallel-size 2",
                "--enable-eplb --tensor-parallel-size 2", "--expert-placement-strategy linear",
                "--expert-placement-strategy random", "--all2all-backend nonesuch"),
        *_objects("--eplb-config", {"window_size": 100}, {"window": 1}, {"num_redundant_experts": -1},
                  {"num_redundant_experts": 2}, {"step_interval": 0}, {"log_balancedness_interval": 0},
                  {"policy": "default"}, {"policy": "greedy"}),
        ("--enable-elastic-ep",),
    )),
    Family("modalities", "limits of images and videos on any model", (
        *_objects("--limit-mm-per-prompt", {"image": 2}, {"image": -1}, {"image": "two"}, {"smell": 1},
                  {"image": {"count": 2, "width": 64, "height": 64}}, {"image": {"cont": 2}}, {}),
        *_each("--limit-mm-per-prompt", "image=2", "2"),
        *_words("--limit-mm-per-prompt.image 2", "--mm-processor-cache-gb -1", "--mm-processor-cache-gb 0",
                "--mm-encoder-tp-mode data", "--mm-encoder-tp-mode both", "--skip-mm-profiling",
                "--interleave-mm-strings", "--language-model-only", "--video-pruning-rate 0.5",
                "--video-pruning-rate 2"),
        *_objects("--media-io-kwargs", {"video": {"num_frames": 4}}, [1], "x"),
    )),
    Family("objects of anything", "JSON that goes to somebody else", (
        *_objects("--hf-overrides", {"rope_theta": 1000000.0}, [1], {}),
        *_objects("--override-generation-config", {"temperature": 0.5}, {"seed": 1}, [0.5]),
        *_objects("--default-chat-template-kwargs", {"enable_thinking": False}, 3),
        *_objects("--additional-config", {"any": {"thing": 1}}, "x"),
        *_objects("--model-loader-extra-config", {"a": 1}, {"enable_multithread_load": True}),
        *_each("--allowed-origins", '["*"]', "*", '"*"'),
        *_each("--hf-overrides", "{a: 1}", "rope"),
    )),
    Family("attention and kernels", "the flag beside the key, and names of kernels", (
        *_objects("--attention-config", {"backend": "FLASH_ATTN"}, {"backend": "flash_attn"},
                  {"backend": "FLASH"}, {"flash_attn_version": 3}, {"flash_attn_version": 7},
                  {"use_cudnn_prefill": "x"}, {"bakend": "FLASH_ATTN"}),
        ("--attention-backend", "FLASH_ATTN", "--attention-config", '{"backend": "FLASH_ATTN"}'),
        ("--attention-backend", "FLASH_ATTN", "--attention-config.flash_attn_version", "2"),
        *_objects("--kernel-config", {"enable_flashinfer_autotune": True}, {"moe_backend": "triton"},
                  {"moe_backend": "magic"}, {"nonesuch": 1}),
        *_each("--moe-backend", "auto", "magic"),
        *_each("--mamba-cache-mode", "none", "align", "some"),
        *_each("--mamba-ssm-cache-dtype", "auto", "float32", "int4"),
        *_each("--gdn-prefill-backend", "triton", "flashinfer", "flashqla"),
    )),
    Family("quantization", "names, and what the model lacks", (
        *_each("--quantization", "fp8", "awqq", "gptq_marlinx"),
        *_words("--kv-cache-dtype fp8 --calculate-kv-scales", "--kv-sharing-fast-prefill",
                "--allow-deprecated-quantization"),
    )),
    Family("weights", "how they are loaded and moved", (
        *_words("--load-format runai_streamer", "--download-dir tmp/x", "--ignore-patterns original/**/*",
                "--safetensors-load-strategy lazy", "--safetensors-load-strategy quick", "--pt-load-map-location cpu",
                "--use-tqdm-on-load", "--enable-sleep-mode", "--kv-offloading-size 4",
                "--kv-offloading-size x", "--kv-offloading-backend native", "--kv-offloading-backend floppy",
                "--kv-offloading-size 4 --kv-offloading-backend lmcache"),
        *_objects("--weight-transfer-config", {"backend": "nccl"}, {"backend": "smoke"}),
    )),
    Family("front end", "the server's own", _words(
        "--ssl-keyfile k.pem --ssl-certfile c.pem", "--ssl-ciphers HIGH", "--root-path /v1",
        "--middleware a.b --middleware c.d", "--response-role assistant", "--enable-log-outputs",
        "--enable-log-outputs --enable-log-requests", "--enable-auto-tool-choice",
        "--enable-prompt-tokens-details", "--enable-force-include-usage", "--max-log-len 100",
        "--max-log-len x", "--disable-fastapi-docs", "--log-config-file l.json",
        "--disable-frontend-multiprocessing", "--api-server-count 2", "--api-server-count 0",
        "--headless", "--headless --api-server-count 2", "--allow-credentials",
        "--h11-max-header-count 64", "--h11-max-header-count x", "--uds tmp/x.sock",
        "--return-tokens-as-token-ids", "--chat-template /nonesuch/a.jinja", "--grpc",
    )),
)  # fmt: skip


def commands() -> Iterator[tuple[Family, tuple[str, ...]]]:
    """Yield each command once, as the words behind ``vllm serve``, with its family."""
    seen = set()
    for family in FAMILIES:
        for tail in family.tails:
            if tail not in seen:
                seen.add(tail)
                yield family, ("{model}", *tail)
