"""The answer of ``check --plugin``."""

from vllm_mods.api.plugin_check import PluginChecked
from vllm_mods.base.model import Level, Verdict
from vllm_mods.report import data, text
from vllm_mods.report.reply import Reply

_UNEXAMINED = "not examined: names in strings, source that exec runs, compiled modules, who imported an old name earlier, spawned workers"


def checked(result: PluginChecked, paint: text.Paint) -> Reply:
    """Return what a plugin is and what starts it, what is broken first, and how many findings there are."""
    plugin, tree = result.plugin, result.tree
    made_for = f"vLLM {result.made_for} ({result.source})"
    if result.source is None:
        made_for = "a vLLM that it does not name: all is notes; name one with --made-for TREE"
    errors = sum(one.level is Level.ERROR for one in result.findings)
    lines = [
        f"{plugin.name} {plugin.version or 'of unknown version'} on {text.tree_name(tree.version, tree.spec)}",
        f"  made for {made_for}",
        *(f"  starts by {group}: {entry}" for group, entry in plugin.entry_points),
        *(f"  starts with Python: {path}" for path in plugin.starts),
        *text.findings(result.findings, "  ", lambda words: paint(Verdict.UNFIT, words)),
        f"  {text.counted(errors, 'error')}, {text.counted(len(result.findings) - errors, 'note')}",
        *text.folded(_UNEXAMINED, text.WIDTH - 2, "  ", "    "),
    ]
    about = {
        **data.fields(plugin, "name", "version"),
        **data.fields(result, "made_for", "source"),
        "entry_points": [{"group": of, "entry": entry} for of, entry in plugin.entry_points],
        "starts": plugin.starts,
    }
    held = {"tree": {"spec": tree.spec, "version": tree.version}, "plugin": about}
    found = data.fields(result, "ok", "findings")
    return Reply({**held, **found}, "\n".join(lines), result.ok)
