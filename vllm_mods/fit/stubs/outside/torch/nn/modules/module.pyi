from typing import Any, Callable, ParamSpec, Protocol, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R", covariant=True)

class _Layer(Protocol[_P, _R]):
    @property
    def forward(self) -> Callable[_P, _R]: ...

class Module:
    training: bool
    def __init__(self, *args: Any, **options: Any) -> None: ...
    @property
    def __call__(self: _Layer[_P, _R]) -> Callable[_P, _R]: ...
    def __setattr__(self, name: str, value: Any) -> None: ...
    def __delattr__(self, name: str) -> None: ...
    T_destination: Any
    _apply: Any
    _backward_hooks: Any
    _backward_pre_hooks: Any
    _buffers: Any
    _call_impl: Any
    _compiled_call_impl: Any
    _forward_hooks: Any
    _forward_pre_hooks: Any
    _get_backward_hooks: Any
    _get_name: Any
    _is_full_backward_hook: Any
    _load_from_state_dict: Any
    _load_state_dict_pre_hooks: Any
    _maybe_warn_non_full_backward_hook: Any
    _modules: Any
    _named_members: Any
    _non_persistent_buffers_set: Any
    _parameters: Any
    _register_load_state_dict_pre_hook: Any
    _register_state_dict_hook: Any
    _save_to_state_dict: Any
    _slow_forward: Any
    _state_dict_hooks: Any
    _version: Any
    _wrapped_call_impl: Any
    add_module: Any
    apply: Any
    bfloat16: Any
    buffers: Any
    call_super_init: Any
    children: Any
    compile: Any
    cpu: Any
    cuda: Any
    double: Any
    dump_patches: Any
    eval: Any
    extra_repr: Any
    float: Any
    forward: Any
    get_buffer: Any
    get_extra_state: Any
    get_parameter: Any
    get_submodule: Any
    half: Any
    ipu: Any
    load_state_dict: Any
    modules: Any
    mtia: Any
    named_buffers: Any
    named_children: Any
    named_modules: Any
    named_parameters: Any
    parameters: Any
    register_backward_hook: Any
    register_buffer: Any
    register_forward_hook: Any
    register_forward_pre_hook: Any
    register_full_backward_hook: Any
    register_full_backward_pre_hook: Any
    register_load_state_dict_post_hook: Any
    register_load_state_dict_pre_hook: Any
    register_module: Any
    register_parameter: Any
    register_state_dict_post_hook: Any
    register_state_dict_pre_hook: Any
    requires_grad_: Any
    set_extra_state: Any
    set_submodule: Any
    share_memory: Any
    state_dict: Any
    to: Any
    to_empty: Any
    train: Any
    type: Any
    xpu: Any
    zero_grad: Any
def __getattr__(name: str) -> Any: ...
