"""Recipes of the kinds that people share, written for these tests."""

from __future__ import annotations

SOUND = """\
# Recipe: the small one, for the desk
recipe_version: "1"
name: Tiny-7B-int4
description: A small model for trying things out

# fetched before the first start
model: example/Tiny-7B-int4
solo_only: true

container: vllm-node

build_args:
  - --exp

mods:
  - mods/fast
  # - mods/slow
  - mods/fix-tiny-template

defaults:
  port: 8000
  host: 0.0.0.0
  gpu_memory_utilization: 0.75   # leaves room for the desktop
  max-num-seqs: 4
  served_model_name: example/tiny
  sampling: '{"temperature": 0.6, "top_k": 20}'
  draft: '{"method": "mtp", "num_speculative_tokens": 2}'

env:
  HF_HUB_OFFLINE: 1
  VLLM_LOGGING_LEVEL: INFO

command: |
  vllm serve example/Tiny-7B-int4 \\
    --served-model-name {served_model_name} \\
    --host {host} --port {port} \\
    --max-num-seqs {max-num-seqs} \\
    --gpu-memory-utilization {gpu_memory_utilization} \\
    --speculative-config '{{"method": "mtp", "num_speculative_tokens": 1}}' \\
    --chat-template tiny.jinja \\
    --override-generation-config '{sampling}'

#    --kv-cache-dtype fp8
"""
SOUND_ARGV = (
    *("vllm", "serve", "example/Tiny-7B-int4", "--served-model-name", "example/tiny"),
    *("--host", "0.0.0.0", "--port", "8000", "--max-num-seqs", "4"),  # noqa: S104
    *("--gpu-memory-utilization", "0.75"),
    *("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}'),
    *("--chat-template", "tiny.jinja"),
    *("--override-generation-config", '{"temperature": 0.6, "top_k": 20}'),
)
# As a forum shows it: bullets, typographic marks, no backslashes, no indentation.
PASTED = """\
name: Tiny-7B-int4

container: vllm-node

mods:

  • mods/fast

model: example/Tiny-7B-int4

defaults:
port: 8000
max-num-seqs: 4

env:
HF_HUB_OFFLINE: 1

command: |
vllm serve example/Tiny-7B-int4
–port {port}
–max-num-seqs {max-num-seqs}
–speculative-config ‘{{“method”: “mtp”, “num_speculative_tokens”: 1}}’
–enable-prefix-caching
recipe_version: ‘1’
cluster_only: false
solo_only: true
"""
SUPERSET = """\
recipe_version: "2"
name: tiny
model: example/Tiny-7B-int4
model_revision: 0123abc
runtime: vllm
min_nodes: 2
max_nodes: 4
container: example/vllm:1@sha256:0000
pre_exec:
  - echo ready
metadata:
  description: kept as it is
  quantized: true
  made: 2026-03-01
  nothing:
defaults:
  port: 8000
  tensor_parallel: 2
command: vllm serve {model} --port {port} -tp {tensor_parallel} --distributed-executor-backend ray
"""
