"""What one types: examples for the help of every command. A test parses each of them."""

TREE = "/usr/local/lib/python3.12/dist-packages"
EXAMPLES = (
    "vllm-mods list --library ./mods",
    "vllm-mods show hybrid-int4-fp8",
    "vllm-mods check hybrid-int4-fp8 --target pypi:0.21.0",
    "vllm-mods check --pairing qwen3.5-122b-hybrid --target image:vllm/vllm-openai:v0.21.0",
    f"vllm-mods diff --pairing qwen3.5-122b-hybrid --target {TREE} > hybrid.diff",
    f"vllm-mods apply hybrid-int4-fp8 --target {TREE} --dry-run",
    f"SOURCE_DATE_EPOCH=0 vllm-mods apply flashqla --target {TREE}   # a reproducible layer",
    f"vllm-mods status hybrid-int4-fp8 --target {TREE}     # exit code 0 if it is in",
    f"vllm-mods verify --target {TREE} --json > node1.json   # the same on each node, for diff",
    f"vllm-mods revert --target {TREE}                     # all of them",
    "vllm-mods add git+https://github.com/alice/vllm-mods@v1 --mod my-fix",
    "vllm-mods sync --check                              # in CI: exit code 1 if anything differs",
    "vllm-mods update --dry-run",
    "vllm-mods remove alice",
    "vllm-mods new my-fix --from-diff fix.diff --tree pypi:0.21.0",
    "vllm-mods new my-fix --record --tree pypi:0.21.0 -- bash patch.sh",
    "vllm-mods port my-fix --library ./mods --to pypi:0.25.1",
    "vllm-mods port my-fix --library ./mods --continue    # after its conflicts were edited",
    "vllm-mods keep my-fix --library ./mods --since 0.33.0",
    "vllm-mods matrix my-fix --library ./mods --vllm '>=0.19' --strict",
    "vllm-mods matrix --format html --output matrix.html",
    "vllm-mods matrix --against main..HEAD --library ./mods   # in a clone of vLLM: what a branch breaks",
    "vllm-mods bisect my-fix --library ./mods --repo ./vllm --good v0.21.0 --bad main",
    "vllm-mods serve-check --command 'vllm serve m --kv-cache-dtype fp8' --target pypi:0.33.0",
    "vllm-mods suggest Intel/Qwen3.5-122B-A10B-int4-AutoRound --target pypi:0.21.0",
    "vllm-mods lock qwen3.5-122b-hybrid --check           # exit code 1 if anything moved",
    "vllm-mods build qwen3.5-122b-hybrid --output registry:ghcr.io/me/vllm:mods",
    "vllm-mods upgrade qwen3.5-122b-hybrid --to 0.22.0 --library ./mods",
    "vllm-mods run qwen3.5-122b-int4 --env-file hub.env --gpus 0,1 -- --tensor-parallel-size 2",
    "vllm-mods up qwen3.5-122b-int4 --env-file hub.env",
    "vllm-mods ps --json",
    "vllm-mods evidence qwen3.5-122b-hybrid --log serve.log",
    "vllm-mods import recipe.yaml --library ./mods",
    "vllm-mods import ./mods/fix-something --tree pypi:0.21.0 --library ./mods",
    "vllm-mods export hybrid-int4-fp8 --output ./hybrid",
    "vllm-mods export qwen3.5-122b-hybrid --format compose --output compose.yaml",
    "vllm-mods template list",
    "vllm-mods template check ./chat_template.jinja --parsers --target pypi:0.33.0",
    "vllm-mods template clients qwen3.6-enhanced",
    "vllm-mods template render qwen3.5-enhanced request.json",
    "vllm-mods template diff ./chat_template.jinja qwen3.5-enhanced",
    "vllm-mods image inspect vllm/vllm-openai:v0.21.0",
    "vllm-mods image verify oci:./layout --lock qwen.lock",
    "vllm-mods doctor --target image:vllm/vllm-openai:v0.21.0",
    "vllm-mods explain conflict",
    'eval "$(vllm-mods completion bash)"                 # in ~/.bashrc; zsh: after compinit',
    "vllm-mods completion fish > ~/.config/fish/completions/vllm-mods.fish",
)
"""Each is a line for a shell."""
_FIRST = ("doctor", "check", "apply", "revert")


def examples(path: str) -> list[str]:
    """Return those of a command by its path below the program; of the program itself, one of each of the first."""
    if not path:
        return [examples(name)[0] for name in _FIRST]
    return [line for line in EXAMPLES if f"vllm-mods {path} " in f"{line} "]


def epilog(path: str) -> str:
    r"""Return the end of a command's help; ``\b`` has click keep the lines."""
    return "\n".join(("\b", "Examples:", *examples(path)))
