"""Registries of text patchers of our own, after the forms that people write; for the releases beside them.

``mods`` is what each has to come in as: a mod's name and what it requires. ``None``: it is refused.
"""

from __future__ import annotations

from typing import NamedTuple

TOP = "#!/bin/bash\nset -euo pipefail\n"
EDIT = TOP + 'python3 "$(dirname "$0")/edit.py"\n'
HEAD = "import os, re, sys\nfrom pathlib import Path\nroot = Path(os.environ['VLLM_PACKAGE_DIR'])\n"
APPLY = """
def patch(path, old, new, label=''):
    p = root / path
    s = p.read_text()
    if s.count(old) != 1:
        sys.exit(f'{label or path}: {s.count(old)} anchors')
    p.write_text(s.replace(old, new))
"""


class Registry(NamedTuple):
    files: dict[str, str]
    mods: dict[str, tuple[str, ...]] | None
    why: str = ""
    idle: int = 0


def _many() -> Registry:
    """24 entries: one file, settings one behind the other, each on the line that the one before it wrote."""
    rows = [
        "    ('keep-alive', 'envs.py', '\"VLLM_KEEP_ALIVE\", \"5\"', '\"VLLM_KEEP_ALIVE\", \"75\"'),"
    ]
    mods: dict[str, tuple[str, ...]] = {"mine-keep-alive": ()}
    for i in range(1, 12):
        last = f'"MINE_{i - 1}": {i - 1},' if i > 1 else "SETTINGS = {"
        new = f'{last}\n    "MINE_{i}": {i},'
        rows.append(f"    ('mine-{i}', 'envs.py', {last!r}, {new!r}),")
        mods[f"mine-{i}"] = (f"mine-{i - 1}",) if i > 1 else ()
    places = [("attention/ops.py", f"OPS_{i}", '"""Operations."""') for i in range(6)]
    places += [("config.py", f"CONFIG_{i}", "MAX_LEN = ") for i in range(6)]
    for path, name, anchor in places:
        new = f"{anchor}\n{name} = 1" if anchor.endswith('"') else f"{name} = 1\n{anchor}"
        rows.append(f"    ({name!r}, {path!r}, {anchor!r}, {new!r}),")
        mods[f"mine-{name.lower().replace('_', '-')}"] = ()
    body = "\n".join(rows)
    text = f"{HEAD}{APPLY}\nPATCHES = [\n{body}\n]\nfor name, *edit in PATCHES:\n    patch(*edit, label=name)\n"
    text += "print(f'{len(PATCHES)} patches applied')\n"
    return Registry({"run.sh": EDIT, "edit.py": text}, mods)


REGISTRIES: dict[str, Registry] = {
    "24 tuples, chains among them": _many(),
    "dicts with an id, all checked before any is written": Registry(
        {
            "run.sh": EDIT,
            "edit.py": HEAD
            + """
PATCHES = [
    {"id": "P1", "file": "envs.py", "old": '"10000"', "new": '"20000"'},
    {"id": "P2", "file": "attention/ops.py", "old": "by=1.0", "new": "by=2.0"},
    {"id": "P3", "file": "attention/ops.py", "old": "by=2.0", "new": "by=3.0"},
]
texts = {}
for patch in PATCHES:
    texts.setdefault(patch["file"], (root / patch["file"]).read_text())
applied = 0
for patch in PATCHES:
    if texts[patch["file"]].count(patch["old"]) == 1:
        texts[patch["file"]] = texts[patch["file"]].replace(patch["old"], patch["new"])
        applied += 1
if applied != len(PATCHES):
    sys.exit(f"only {applied}")
for name, text in texts.items():
    (root / name).write_text(text)
""",
        },
        {"mine-p1": (), "mine-p2": (), "mine-p3": ("mine-p2",)},
    ),
    "a dict of lists by name": Registry(
        {
            "run.sh": EDIT,
            "edit.py": HEAD
            + APPLY
            + """
ENVS = "envs.py"
PATCHES = {
    "timeouts": [(ENVS, '"10000"', '"20000"'), (ENVS, '"VLLM_KEEP_ALIVE", "5"', '"VLLM_KEEP_ALIVE", "7"')],
    "fast": [(ENVS, '"VLLM_USE_FAST", "0"', '"VLLM_USE_FAST", "1"')],
    "long": [("config.py", 'raise ValueError("too long")', "return None")],
}

def main():
    for name, edits in PATCHES.items():
        for path, old, new in edits:
            patch(path, old, new, label=name)
        print("applied", name)

if __name__ == "__main__":
    main()
""",
        },
        {"mine-timeouts": (), "mine-fast": (), "mine-long": ()},
    ),
    "calls of a helper": Registry(
        {
            "run.sh": EDIT,
            "edit.py": HEAD
            + APPLY
            + """
def main():
    patch("envs.py", '"10000"', '"20000"', label="rpc timeout")
    print("one is in")
    patch("attention/ops.py", "by=1.0", "by=2.0", label="scale by two")
    patch("config.py", "return SETTINGS", "return dict(SETTINGS)", label="a copy")

main()
""",
        },
        {"mine-rpc-timeout": (), "mine-scale-by-two": (), "mine-a-copy": ()},
    ),
    "functions one below the other": Registry(
        {
            "run.sh": EDIT,
            "edit.py": HEAD
            + APPLY
            + """
def fix_timeout():
    patch("envs.py", '"10000"', '"20000"')

def fix_scale():
    p = root / "attention/ops.py"
    p.write_text(re.sub(r"by=\\d+\\.0", "by=4.0", p.read_text()))

if __name__ == "__main__":
    fix_timeout()
    fix_scale()
""",
        },
        {"mine-fix-timeout": (), "mine-fix-scale": ()},
    ),
    "decorated functions in a list": Registry(
        {
            "run.sh": EDIT,
            "edit.py": HEAD
            + APPLY
            + """
REGISTRY = []

def register(name, default=True):
    def wrap(function):
        REGISTRY.append((name, function, default))
        return function
    return wrap

@register("P7 longer timeout")
def p7():
    patch("envs.py", '"10000"', '"20000"')

@register("P8 scale")
def p8():
    patch("attention/ops.py", "by=1.0", "by=2.0")

@register("P9 scale more")
def p9():
    patch("attention/ops.py", "by=2.0", "by=8.0")

@register("P10 off", default=False)
def p10():
    patch("config.py", "not there", "x")

def run():
    stats = {}
    for name, function, default in REGISTRY:
        if default:
            function()
            stats[name] = "applied"
    return stats

assert run()
""",
        },
        {
            "mine-p7-longer-timeout": (),
            "mine-p8-scale": (),
            "mine-p9-scale-more": ("mine-p8-scale",),
        },
        idle=1,
    ),
    "a package of modules": Registry(
        {
            "run.sh": TOP + 'cd "$(dirname "$0")" && python3 -m patches\n',
            "patches/__init__.py": HEAD + APPLY,
            "patches/__main__.py": "import importlib, pkgutil\nimport patches\n"
            "names = sorted(m.name for m in pkgutil.iter_modules(patches.__path__))\n"
            "for name in names:\n    if name.startswith('fix_'):\n"
            "        importlib.import_module(f'patches.{name}').apply()\n",
            "patches/fix_envs.py": "from patches import patch\ndef apply():\n"
            "    patch('envs.py', '\"10000\"', '\"20000\"')\n",
            "patches/fix_ops.py": "from patches import patch\ndef apply():\n"
            "    patch('attention/ops.py', 'by=1.0', 'by=2.0')\n",
        },
        {"mine-fix-envs": (), "mine-fix-ops": ()},
        idle=1,  # __main__ itself
    ),
    "modules by their names, an object with anchors in each": Registry(
        {
            "run.sh": EDIT,
            "kit.py": HEAD
            + """
from dataclasses import dataclass, field

@dataclass
class TextPatch:
    name: str
    anchor: str
    replacement: str
    required: bool = True

@dataclass
class TextPatcher:
    target: str
    marker: str
    subs: list = field(default_factory=list)

    def apply(self):
        p = root / self.target
        s = p.read_text()
        if self.marker in s:
            return "skipped"
        for sub in self.subs:
            if s.count(sub.anchor) != 1:
                if sub.required:
                    return "failed"
                continue
            s = s.replace(sub.anchor, sub.replacement)
        p.write_text(f"# {self.marker}\\n{s}")
        return "applied"
""",
            "p_envs.py": "from kit import TextPatch, TextPatcher\ndef apply():\n"
            "    return TextPatcher('envs.py', '[mine p_envs]', [TextPatch('a', '\"10000\"', '\"20000\"'),\n"
            "        TextPatch('b', 'nowhere', 'x', required=False)]).apply()\n",
            "p_ops.py": "from kit import TextPatch, TextPatcher\ndef apply():\n"
            "    return TextPatcher('attention/ops.py', '[mine p_ops]', [TextPatch('a', 'by=1.0', 'by=2.0')]).apply()\n",
            "p_gone.py": "from kit import TextPatch, TextPatcher\ndef apply():\n"
            "    return TextPatcher('envs.py', '[mine p_gone]', [TextPatch('a', 'nowhere', '')]).apply()\n",
            "edit.py": "import importlib\nMODULES = ['p_envs', 'p_ops', 'p_gone']\n"
            "results = {name: importlib.import_module(name).apply() for name in MODULES}\nprint(results)\n",
        },
        {"mine-p-envs": (), "mine-p-ops": ()},
        idle=1,
    ),
    "one text, replaced again and again, in a here-document": Registry(
        {
            "run.sh": TOP
            + """
python3 - <<'END'
import os
from pathlib import Path
p = Path(os.environ["VLLM_PACKAGE_DIR"]) / "envs.py"
s = p.read_text()
s = s.replace('"10000"', '"20000"')
s = s.replace('"VLLM_KEEP_ALIVE", "5"', '"VLLM_KEEP_ALIVE", "75"')
s = s.replace('"20000"', '"30000"')
p.write_text(s)
END
""",
        },
        {"mine-1": (), "mine-2": (), "mine-3": ("mine-1",)},
    ),
    "an editor with a method, and overlapping anchors": Registry(
        {
            "run.sh": EDIT,
            "edit.py": HEAD
            + """
class Editor:
    def __init__(self, path):
        self.path = root / path

    def swap(self, old, new):
        s = self.path.read_text()
        assert s.count(old) == 1, old
        self.path.write_text(s.replace(old, new))

ops = Editor("attention/ops.py")
ops.swap("return value * by", "return by * value")
ops.swap("by * value\\n", "by * value  # turned\\n")
ops.swap("def add(left, right):\\n    return left + right", "def add(left, right):\\n    return right + left")
""",
        },
        {"mine-1": (), "mine-2": ("mine-1",), "mine-3": ()},
    ),
    "a list of edits without a name, by comprehension": Registry(
        {
            "run.sh": EDIT,
            "edit.py": HEAD
            + APPLY
            + """
EDITS = (
    ("envs.py", '"10000"', '"20000"'),
    ("envs.py", '"VLLM_KEEP_ALIVE", "5"', '"VLLM_KEEP_ALIVE", "75"'),
)
[patch(*one) for one in EDITS]
""",
        },
        {"mine-1": (), "mine-2": ()},
    ),
    "an entry that needs what a later one brings": Registry(
        {
            "run.sh": EDIT,
            "edit.py": HEAD
            + APPLY
            + """
EDITS = {
    "use": ("attention/ops.py", "return value * by", "return value * double(by)"),
    "other": ("envs.py", '"10000"', '"20000"'),
    "bring": ("attention/ops.py", "def add(", "def double(value):\\n    return 2 * value\\n\\n\\ndef add("),
}
for edit in EDITS.values():
    patch(*edit)
""",
        },
        {"mine-use": ("mine-bring",), "mine-other": (), "mine-bring": ()},
    ),
    "each counts those before it": Registry(
        {
            "run.sh": EDIT,
            "edit.py": HEAD
            + """
p = root / "envs.py"
for i, name in enumerate(["A", "B", "C"]):
    s = p.read_text()
    p.write_text(s + f"{name} = {s.count(chr(10))}\\n")
""",
        },
        {"mine-a": (), "mine-b": ("mine-a",), "mine-c": ("mine-b",)},
    ),
    "no registry": Registry(
        {
            "run.sh": EDIT,
            "edit.py": HEAD
            + "p = root / 'envs.py'\np.write_text(p.read_text().replace('5', '6'))\n",
        },
        None,
        "it is no registry of entries",
    ),
    "a list of places to look at": Registry(
        {
            "run.sh": EDIT,
            "edit.py": HEAD
            + """
for name in ("nowhere.py", "envs.py"):
    p = root / name
    if p.exists():
        p.write_text(p.read_text().replace('"10000"', '"20000"'))
        break
else:
    sys.exit("no file")
""",
        },
        None,
        "edit.py:5: one of these entries does all of it",
    ),
    "a script that does more than its entries": Registry(
        {
            "run.sh": EDIT + 'echo "# mine" >> "$VLLM_PACKAGE_DIR/config.py"\n',
            "edit.py": HEAD
            + APPLY
            + "for e in [('envs.py', '\"10000\"', '\"2\"'), ('attention/ops.py', 'by=1.0', 'by=2.0')]:\n    patch(*e)\n",
        },
        None,
        "edit.py:11: without these entries it still changes vllm/config.py",
    ),
}
