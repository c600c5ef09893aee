"""The answer of ``bench``: one table, and one sentence; and a page with each start."""

import json
from importlib.resources import files

from vllm_mods.api.bench import BenchResult
from vllm_mods.formats.schema import encode
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
    parts += [f"no difference was found in {', '.join(same)}"] if same else []
    parts = parts or ["too few starts for an interval"]
    apart, noise = result.apart, result.noise
    beyond = "" if noise is None else " within the noise" if apart <= noise else " beyond the noise"
    parts.append(f"outputs differ{beyond}" if apart else "the same outputs")
    sentence = f"{b} against {a}: {'; '.join(parts)}."
    own = "" if noise is None else f"; those of two starts of the same side differ by {noise:.2g}"
    logprobs = f"log probabilities of A and B differ by {apart:.2g}{own}"
    words = "\n".join((*text.columns(rows), logprobs, "", sentence))
    return Reply({**result._asdict(), "sentence": sentence}, words)


def page(result: BenchResult, reply: Reply) -> str:
    """Return an HTML page with a dot for each start, what was answered, and what it holds for."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415  (for this page alone)

    rows = [
        (name, [(start.side, start.numbers.get(name, 0.0)) for start in result.starts])
        for name in result.numbers
    ]
    facts = json.dumps(encode({"asked": result.asked, "machine": result.machine}), indent=1)
    template = (files(__package__) / "page" / "bench.html").read_text("utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    told = {"sentence": reply.data["sentence"], "table": reply.words, "facts": facts}
    return environment.from_string(template).render(result=result, rows=rows, **told)
