"""The answer of ``bench``: one table, and one sentence."""

from vllm_mods.api.bench import BenchResult
from vllm_mods.report import text
from vllm_mods.report.reply import Reply


def compared(result: BenchResult) -> Reply:
    """Return a row per number, with the ratio's interval, and a sentence that names what differs."""
    a, b = result.sides
    rows: list[tuple[str, ...]] = [("", a, b, "ratio", "interval", "noise")]
    parts, same = [], []
    for name, ratio in result.numbers.items():
        told, words = ("-", "-", "-"), name.partition(",")[0]
        if ratio.middle is not None:
            interval = f"{ratio.low:.3g} to {ratio.high:.3g}"
            told = (f"{ratio.middle:.3g}", interval, f"{1 / ratio.noise:.3g} to {ratio.noise:.3g}")
            if ratio.low <= 1 <= ratio.high:
                same.append(words)
            else:
                parts.append(f"{interval} times the {words}")
        rows.append((name, *(f"{mean:.4g}" for mean in ratio.means), *told))
    parts += [f"no difference found in {', '.join(same)}"] if same else []
    parts = parts or ["too few starts for an interval"]
    apart, noise = result.apart, result.noise
    beyond = "" if noise is None else " within the noise" if apart <= noise else " beyond the noise"
    parts.append(f"outputs differ{beyond}" if apart else "the same outputs")
    sentence = f"{b} against {a}: {'; '.join(parts)}."
    own = "" if noise is None else f", between starts of one side {noise:.2g}"
    logprobs = f"log probabilities differ by {apart:.2g}{own}"
    words = "\n".join((*text.columns(rows), logprobs, "", sentence))
    return Reply({**result._asdict(), "sentence": sentence}, words)
