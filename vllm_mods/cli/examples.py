"""What one types: examples for the help of every command. A test parses each of them."""

from __future__ import annotations

import re

TREE = "/usr/local/lib/python3.12/dist-packages"
_OF_GROUPS = {
    "": (
        "vllm-mods doctor                                    # what is here, and what fits",
        "vllm-mods check hybrid-int4-fp8 --target pypi:0.21.0",
        f"vllm-mods apply hybrid-int4-fp8 --target {TREE}",
        f"vllm-mods revert --target {TREE}",
    ),
    "template": (
        "vllm-mods template check",
        "vllm-mods template render qwen3.5-enhanced request.json",
    ),
    "image": (
        "vllm-mods image inspect vllm/vllm-openai:v0.21.0",
        "vllm-mods image verify registry:ghcr.io/me/vllm:mods",
    ),
}
_OF_COMMANDS = (
    "vllm-mods list",
    "vllm-mods list --library ./mods --check             # every patch of yours too",
    "vllm-mods list --json",
    "vllm-mods show hybrid-int4-fp8",
    "vllm-mods show qwen3.5-122b-hybrid                  # a pairing",
    "vllm-mods check hybrid-int4-fp8 --target pypi:0.21.0",
    "vllm-mods check hybrid-int4-fp8 --target pypi:0.21.0 --verify    # all of the wheel, once",
    f"vllm-mods check --target {TREE}",
    "vllm-mods check --pairing qwen3.5-122b-hybrid --target image:vllm/vllm-openai:v0.21.0",
    "vllm-mods check my-fix --library ./mods --target git:./vllm@main --json",
    "vllm-mods diff hybrid-int4-fp8 --target pypi:0.21.0",
    f"vllm-mods diff --pairing qwen3.5-122b-hybrid --target {TREE} > hybrid.diff",
    f"vllm-mods apply hybrid-int4-fp8 --target {TREE}",
    f"vllm-mods apply hybrid-int4-fp8 --target {TREE} --dry-run",
    f"vllm-mods apply --pairing qwen3.5-122b-hybrid --target {TREE}",
    f"SOURCE_DATE_EPOCH=0 vllm-mods apply flashqla --target {TREE}   # a reproducible layer",
    "vllm-mods apply my-fix --library ./mods --target .venv/lib/python3.12/site-packages",
    f"vllm-mods status --target {TREE}",
    f"vllm-mods status hybrid-int4-fp8 --target {TREE}     # exit code 0 if it is in",
    f"vllm-mods verify --target {TREE}",
    "vllm-mods verify --receipt node1.json node2.json    # do two nodes have the same in?",
    f"vllm-mods revert hybrid-int4-fp8 --target {TREE}",
    f"vllm-mods revert --target {TREE}                     # all of them",
    "vllm-mods add git+https://github.com/alice/vllm-mods@v1 --mod my-fix",
    "vllm-mods add git+ssh://git@host/team/mods@main#subdirectory=vllm --name corp",
    "vllm-mods add package:acme-vllm-mods",
    "vllm-mods add ./mods",
    "vllm-mods sync                                      # [targets.default] of vllm-mods.toml",
    f"vllm-mods sync --target {TREE}",
    "vllm-mods sync --check                              # in CI: exit code 1 if anything differs",
    "vllm-mods update --dry-run",
    "vllm-mods update alice",
    "vllm-mods remove alice",
    "vllm-mods new my-fix --from-diff fix.diff --tree pypi:0.21.0",
    "vllm-mods new my-fix --from-trees pypi:0.21.0 ./edited",
    "vllm-mods new my-fix --record --tree pypi:0.21.0 -- bash patch.sh",
    "vllm-mods port my-fix --library ./mods --to pypi:0.33.0",
    "vllm-mods port my-fix --library ./mods --to '>=0.22,<0.26' --as 0.22",
    "vllm-mods port my-fix --library ./mods --continue    # after its conflicts were edited",
    "vllm-mods keep --library ./mods",
    "vllm-mods keep my-fix --library ./mods --since 0.33.0 --json",
    "vllm-mods refresh my-fix --library ./mods",
    "vllm-mods refresh my-fix --library ./mods --variant 0.20",
    "vllm-mods lint ./mods/fix-something                 # a folder with a run.sh",
    "vllm-mods lint ./mods --json",
    "vllm-mods matrix",
    "vllm-mods matrix my-fix --library ./mods --vllm '>=0.19' --strict",
    "vllm-mods matrix --format html --output matrix.html",
    "vllm-mods matrix --explain hybrid-int4-fp8 0.14.1",
    "vllm-mods bisect hybrid-int4-fp8 --good 0.21.0 --bad 0.24.0",
    "vllm-mods bisect my-fix --library ./mods --repo ./vllm --good v0.21.0 --bad main",
    "vllm-mods upstream hybrid-int4-fp8",
    "vllm-mods upstream my-fix --library ./mods --vllm '>=0.24'",
    "vllm-mods serve-check qwen3.5-122b-hybrid --target pypi:0.21.0",
    "vllm-mods serve-check --command 'vllm serve m --kv-cache-dtype fp8' --target pypi:0.33.0",
    "vllm-mods serve-check qwen3.5-122b-hybrid --vllm '>=0.19'",
    "vllm-mods suggest ./my-checkpoint",
    "vllm-mods suggest Intel/Qwen3.5-122B-A10B-int4-AutoRound --target pypi:0.21.0",
    "vllm-mods lock qwen3.5-122b-hybrid",
    "vllm-mods lock qwen3.5-122b-hybrid --check           # exit code 1 if anything moved",
    "vllm-mods lock diff old.lock new.lock",
    "vllm-mods build qwen3.5-122b-hybrid",
    "vllm-mods build qwen3.5-122b-hybrid --output registry:ghcr.io/me/vllm:mods",
    "vllm-mods build qwen3.5-122b-hybrid --output oci:./layout",
    "vllm-mods upgrade qwen3.5-122b-hybrid --to 0.22.0 --library ./mods",
    "vllm-mods upgrade qwen3.5-122b-hybrid --library ./mods         # its base has a new digest",
    "vllm-mods upgrade qwen3.5-122b-hybrid --library ./mods --rollback",
    "vllm-mods run qwen3.5-122b-hybrid --model-folder /data/hybrid --wait",
    "vllm-mods run qwen3.5-122b-int4 --env-file hub.env --gpus 0,1 -- --tensor-parallel-size 2",
    "vllm-mods run qwen3.5-122b-int4 --print",
    "vllm-mods ps",
    "vllm-mods evidence --container qwen3.5-122b-hybrid",
    "vllm-mods evidence qwen3.5-122b-hybrid --log serve.log",
    "vllm-mods import recipe.yaml --library ./mods",
    "vllm-mods import ./mods/fix-something --tree pypi:0.21.0 --library ./mods",
    "vllm-mods import fix.zip --image vllm/vllm-openai:v0.21.0 --library ./mods",
    "vllm-mods import fix.patch --tree pypi:0.21.0 --library ./mods",
    "vllm-mods export hybrid-int4-fp8 --output ./hybrid",
    "vllm-mods export qwen3.5-122b-hybrid --output recipe.yaml",
    "vllm-mods export qwen3.5-122b-hybrid --format compose --output compose.yaml",
    "vllm-mods template list",
    "vllm-mods template check qwen3.5-enhanced",
    "vllm-mods template check ./chat_template.jinja --conversations qwen3.5-enhanced",
    "vllm-mods template check ./chat_template.jinja --parsers --target pypi:0.33.0",
    "vllm-mods template render qwen3.5-enhanced 08-parallel-calls",
    "vllm-mods template render ./chat_template.jinja request.json",
    """vllm-mods template render qwen3.5-enhanced - --chat-template-kwargs '{"enable_thinking": false}'""",
    "vllm-mods template diff ./chat_template.jinja qwen3.5-enhanced",
    "vllm-mods template diff ./old.jinja ./new.jinja --conversations ./conversations",
    "vllm-mods template patch /models/Qwen3.6-35B-A3B",
    "vllm-mods image inspect vllm/vllm-openai:v0.21.0",
    "vllm-mods image inspect oci:./layout --json",
    "vllm-mods image verify docker:my-vllm:mods",
    "vllm-mods image verify oci:./layout --lock qwen.lock",
    "vllm-mods image diff my-vllm:yesterday my-vllm:today",
    "vllm-mods doctor                                    # the vLLM of this Python",
    f"vllm-mods doctor --target {TREE}",
    "vllm-mods doctor --target image:vllm/vllm-openai:v0.21.0 --json",
    "vllm-mods explain conflict",
    "vllm-mods explain 4",
    'eval "$(vllm-mods completion bash)"                 # in ~/.bashrc',
    'eval "$(vllm-mods completion zsh)"                  # in ~/.zshrc, after compinit',
    "vllm-mods completion fish > ~/.config/fish/completions/vllm-mods.fish",
)
_COMMAND = re.compile(r"vllm-mods ((?:(?:image|template) )?[a-z-]+)")


def _by_command() -> dict[str, tuple[str, ...]]:
    examples: dict[str, tuple[str, ...]] = dict(_OF_GROUPS)
    for line in _OF_COMMANDS:
        called = _COMMAND.search(line)
        assert called is not None  # noqa: S101  (all of them call it)
        examples[called[1]] = (*examples.get(called[1], ()), line)
    return examples


EXAMPLES = _by_command()
"""By command, without the program's name; each line is for a shell."""
