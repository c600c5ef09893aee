"""The answer of ``bench``: one table, and one sentence."""

from vllm_mods.api.bench import BenchResult, BenchRow
from vllm_mods.report import text
from vllm_mods.report.reply import Reply

_WORDS = {
    "start-up": ("start-up", "s"),
    "throughput": ("throughput", "tokens/s"),
    "first-token": ("time to first token", "ms"),
    "per-token": ("time per token", "ms"),
    "acceptance": ("accepted drafts", "share"),
    "cache-hits": ("prefix cache hits", "share"),
    "memory": ("memory", "MiB"),
    "gpu-memory": ("GPU memory", "MiB"),
}


def compared(result: BenchResult) -> Reply:
    """Return a row per number, and which of them differ."""
    a, b = result.sides
    rows = [("", a, b, "ratio", "interval", "noise")]
    for row in result.rows:
        means = (f"{mean:.4g}" for mean in row.means)
        told = ("-", "-", "-")
        if row.ratio is not None:
            noise = row.ratio.noise
            told = (f"{row.ratio.middle:.3f}", _interval(row), f"{1 / noise:.3f} to {noise:.3f}")
        rows.append((f"{_named(row)}, {_WORDS[row.name.partition('@')[0]][1]}", *means, *told))
    sentence = _sentence(result)
    own = "" if result.noise is None else f"; starts of one side by up to {result.noise:.2g}"
    outputs = f"log probabilities differ by up to {result.apart:.2g}{own}"
    words = "\n".join((*text.columns(rows), outputs, sentence))
    return Reply({**result._asdict(), "sentence": sentence}, words)


def _named(row: BenchRow) -> str:
    name, _, length = row.name.partition("@")
    return _WORDS[name][0] + (f" at {length}" if length else "")


def _interval(row: BenchRow) -> str:
    assert row.ratio is not None  # noqa: S101
    return f"{row.ratio.low:.3g} to {row.ratio.high:.3g}"


def _sentence(result: BenchResult) -> str:
    a, b = result.sides
    told = [row for row in result.rows if row.ratio is not None]
    parts = [f"{_interval(row)} times the {_named(row)}" for row in told if row.ratio.differs]
    if same := [_named(row) for row in told if not row.ratio.differs]:
        parts.append(f"no difference found in {', '.join(same)}")
    if not told:
        parts.append("too few starts for an interval")
    if result.noise is None:
        parts.append("outputs compared once")
    elif result.apart <= result.noise:
        parts.append("outputs within the noise" if result.apart else "outputs identical")
    else:
        parts.append("outputs differ")
    return f"{b} against {a}: {'; '.join(parts)}."
