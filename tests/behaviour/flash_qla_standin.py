# mypy: disable-error-code="import-not-found"
"""What `flash_qla.chunk_gated_delta_rule` computes, slowly and on a CPU, by the package's own description.

States are [N, HV, K, V] inside, and also outside unless ``state_v_first`` says otherwise. ``CALLS`` has
what each call was given.
"""

from __future__ import annotations

from typing import Any

import torch

CALLS: list[dict[str, Any]] = []


def chunk_gated_delta_rule(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    *,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Any = None,
    state_v_first: bool = False,
) -> tuple[Any, Any]:
    assert q.dtype == k.dtype == v.dtype
    assert q.dtype in (torch.bfloat16, torch.float16)
    assert q.shape[0] == 1
    assert initial_state.shape[0] == len(cu_seqlens) - 1
    tensors = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
    tensors |= {"initial_state": initial_state, "cu_seqlens": cu_seqlens}
    CALLS.append(
        {
            "dtypes": {name: str(x.dtype).removeprefix("torch.") for name, x in tensors.items()},
            "cu_seqlens": id(cu_seqlens),
            "state_v_first": state_v_first,
            "use_qk_l2norm_in_kernel": use_qk_l2norm_in_kernel,
            "scale": scale,
        }
    )
    query, key = q[0].double(), k[0].double()
    if use_qk_l2norm_in_kernel:
        query, key = (torch.nn.functional.normalize(x, dim=-1) for x in (query, key))
    query = query * (k.shape[-1] ** -0.5 if scale is None else scale)
    group = v.shape[2] // k.shape[2]
    begun = initial_state.transpose(-1, -2) if state_v_first else initial_state
    output = torch.empty_like(v)
    final = torch.empty(begun.shape, dtype=torch.float32)
    for n, (begin, end) in enumerate(zip(cu_seqlens.tolist(), cu_seqlens.tolist()[1:])):  # noqa: B905
        for head in range(v.shape[2]):
            state = begun[n, head].double()
            for t in range(begin, end):
                a, b = key[t, head // group], query[t, head // group]
                state = state * g[0, t, head].double().exp()
                fresh = v[0, t, head].double() - a @ state
                state = state + torch.outer(a, fresh * beta[0, t, head].double())
                output[0, t, head] = (b @ state).to(v.dtype)
            final[n, head] = state.float()
    if state_v_first:
        final = final.transpose(-1, -2).contiguous()
    return output, final if output_final_state else None
