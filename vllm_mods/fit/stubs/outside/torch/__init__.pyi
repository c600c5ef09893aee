from typing import Any, Callable, TypeVar, overload

from torch import nn as nn

_F = TypeVar("_F", bound=Callable[..., Any])

class _Mode:
    def __enter__(self) -> None: ...
    def __exit__(self, *error: Any) -> None: ...
    def __call__(self, function: _F, /) -> _F: ...

@overload
def no_grad(function: _F, /) -> _F: ...
@overload
def no_grad() -> _Mode: ...
@overload
def enable_grad(function: _F, /) -> _F: ...
@overload
def enable_grad() -> _Mode: ...
@overload
def inference_mode(mode: bool = ...) -> _Mode: ...
@overload
def inference_mode(function: _F, /) -> _F: ...
class Device:
    BFloat16Tensor: Any
    CUDAGraph: Any
    CUDAPluggableAllocator: Any
    Event: Any
    ExternalStream: Any
    MemPool: Any
    Stream: Any
    StreamContext: Any
    amp: Any
    caching_allocator_alloc: Any
    caching_allocator_delete: Any
    caching_allocator_enable: Any
    can_device_access_peer: Any
    change_current_allocator: Any
    check_error: Any
    clock_rate: Any
    cudart: Any
    current_blas_handle: Any
    current_device: Any
    current_solver_handle: Any
    current_stream: Any
    default_generators: Any
    default_stream: Any
    device: Any
    device_count: Any
    device_memory_used: Any
    device_of: Any
    empty_cache: Any
    get_allocator_backend: Any
    get_arch_list: Any
    get_device_capability: Any
    get_device_name: Any
    get_device_properties: Any
    get_gencode_flags: Any
    get_per_process_memory_fraction: Any
    get_rng_state: Any
    get_rng_state_all: Any
    get_stream_from_external: Any
    get_sync_debug_mode: Any
    graph: Any
    graph_pool_handle: Any
    graphs: Any
    green_contexts: Any
    has_half: Any
    has_magma: Any
    host_memory_stats: Any
    init: Any
    initial_seed: Any
    ipc_collect: Any
    is_available: Any
    is_bf16_supported: Any
    is_current_stream_capturing: Any
    is_initialized: Any
    is_tf32_supported: Any
    list_gpu_processes: Any
    make_graphed_callables: Any
    manual_seed: Any
    manual_seed_all: Any
    max_memory_allocated: Any
    max_memory_cached: Any
    max_memory_reserved: Any
    mem_get_info: Any
    memory: Any
    memory_allocated: Any
    memory_cached: Any
    memory_reserved: Any
    memory_snapshot: Any
    memory_stats: Any
    memory_stats_as_nested_dict: Any
    memory_summary: Any
    memory_usage: Any
    nccl: Any
    nvtx: Any
    power_draw: Any
    profiler: Any
    random: Any
    reset_accumulated_host_memory_stats: Any
    reset_accumulated_memory_stats: Any
    reset_max_memory_allocated: Any
    reset_max_memory_cached: Any
    reset_peak_host_memory_stats: Any
    reset_peak_memory_stats: Any
    seed: Any
    seed_all: Any
    set_device: Any
    set_per_process_memory_fraction: Any
    set_rng_state: Any
    set_rng_state_all: Any
    set_stream: Any
    set_sync_debug_mode: Any
    stream: Any
    streams: Any
    synchronize: Any
    temperature: Any
    tunable: Any
    use_mem_pool: Any
    utilization: Any

def __getattr__(name: str) -> Any: ...
