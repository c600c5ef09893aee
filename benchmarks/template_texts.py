"""What becomes of a model's own text: read by a release's parsers, sent back, and rendered with a template again.

Sixty-six texts as a Qwen model of 3.5 to 3.8 writes them behind a prompt. Each is read as its server reads it, whole and
streamed token by token, and what was read is rendered into the next prompt: **kept** if that begins with the
prompt and the very text. What a parser loses no template gives back, so templates are told apart by what each
keeps, beside each other.

    python benchmarks/template_texts.py --target TREE [--show] TEMPLATE…
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from model_texts import ModelTexts, send_back

from vllm_mods.library.catalog import Library
from vllm_mods.templates import parser_process, replay
from vllm_mods.templates.reading_back import way_name
from vllm_mods.templates.source import open_template
from vllm_mods.trees.open import open_tree

PARSERS = ("qwen3_coder", "qwen3")
TOOLS = (
    replay.tool("edit", path="string", old="string", new="string"),
    replay.tool("run", command="string", timeout="integer", share="number", wide="boolean"),
    replay.tool("save", rows="array", more="object", text="string"),
    replay.tool("list_files"),
)

THOUGHT = "The user wants a word.\n</think>\n\n"


def call(name: str, **values: str) -> str:
    """Return a call as the models write it."""
    parameters = "".join(
        f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in values.items()
    )
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def save(text: str) -> str:
    """Return a call with one text."""
    return THOUGHT + call("save", text=text)


TEXTS: Mapping[str, str] = {
    # answers
    "a word": THOUGHT + "An abacus.",
    "two paragraphs": THOUGHT + "First.\n\nSecond.",
    "a list": THOUGHT + "* one\n* two\n  * three",
    "a table": THOUGHT + "| a | b |\n| --- | --- |\n| 1 | 2 |",
    "code": THOUGHT + "```python\ndef f(x):\n\treturn x  # tab\n```",
    "html": THOUGHT + '<div class="a">&amp; <b>bold</b></div>',
    "unicode": THOUGHT + "Öl, 水, 🙂, e\u0301, \u200b.",
    "right to left": THOUGHT + "שלום and مرحبا",
    "json": THOUGHT + '{"a": [1, 2.50, null], "b": "\\u00e9"}',
    "backslashes": THOUGHT + "C:\\new\\table \\n \\\\",
    "braces of Jinja": THOUGHT + "{{ x }} and {% if y %}z{% endif %}",
    "quotes": THOUGHT + "\"it's\" `so` “well”",
    "an answer that ends with blanks": THOUGHT + "Well.  ",
    "an answer that ends with a newline": THOUGHT + "Well.\n",
    "no answer": THOUGHT.rstrip("\n"),
    # answers about tags
    "talk of think tags": THOUGHT + "The tag <think> opens it, </think> ends it.",
    "a quoted think block": THOUGHT + "Like this:\n<think>\nhm\n</think>\nThen the answer.",
    "talk of call tags": THOUGHT + "A call begins with `<function=` and has `<parameter=`.",
    "talk of result tags": THOUGHT + "Results come in <tool_response>…</tool_response>.",
    "talk of control tokens": THOUGHT + "Turns end with <|im_end|> here.",
    "talk of picture tokens": THOUGHT + "It is <|vision_start|><|image_pad|><|vision_end|>.",
    "talk of other models' tokens": THOUGHT + "Llama has <|eot_id|> and [INST].",
    "a closing tag alone": THOUGHT + "</div></parameter>",
    # reasoning
    "short reasoning": "So.\n</think>\n\nYes.",
    "long reasoning": "Step one.\n\nStep two:\n  a\n  b\n\nDone.\n</think>\n\nYes.",
    "reasoning with code": "Maybe:\n```\nx = 1\n```\n</think>\n\nYes.",
    "reasoning with json": 'It is {"a": 1}.\n</think>\n\nYes.',
    "reasoning about call tags": "I could write <function=edit> now.\n</think>\n\nYes.",
    "reasoning about parameter tags": "Or <parameter=path> and </parameter>.\n</think>\n\nYes.",
    "reasoning about a think tag": "This is within <think>, I know.\n</think>\n\nYes.",
    "reasoning about control tokens": "It ends with <|im_end|> I guess.\n</think>\n\nYes.",
    "reasoning in other letters": "考えます。\n</think>\n\nはい。",
    "reasoning with a backslash": "A \\ and \\n.\n</think>\n\nYes.",
    "empty reasoning": "\n</think>\n\nYes.",
    # calls
    "a call": THOUGHT + call("run", command="ls -la"),
    "a call without arguments": THOUGHT + call("list_files"),
    "text before a call": THOUGHT + "I look.\n\n" + call("run", command="ls"),
    "two calls": THOUGHT + call("run", command="ls") + "\n" + call("run", command="pwd"),
    "two calls behind text": THOUGHT + "Both.\n\n" + call("list_files") + "\n" + call("run", command="pwd"),
    "an integer": THOUGHT + call("run", command="ls", timeout="30"),
    "a number": THOUGHT + call("run", command="ls", share="0.5"),
    "a boolean": THOUGHT + call("run", command="ls", wide="true"),
    "a list of texts": THOUGHT + call("save", rows='["a", "b"]'),
    "an object": THOUGHT + call("save", more='{"a": {"b": [1, 2]}}'),
    "an object with null": THOUGHT + call("save", more='{"a": null}'),
    "a list with letters of any kind": THOUGHT + call("save", rows='["Öl", "水"]'),
    "text that is a number": save("5"),
    "text that is true": save("true"),
    "text that is json": save('{"a": 1,"b":[ ]}'),
    "text of json with escapes": save('{"a": "\\u00e9\\n\\"x\\""}'),
    "lines": save("a\n\nb\n\tc"),
    "indented lines": save("    if x:\n        pass"),
    "text that ends with a newline": save("a\n"),
    "text that begins with a newline": save("\na"),
    "blanks at both edges": save("  a  "),
    "shell with quotes": save("""grep -n "a'b" *.py | sed 's/\\\\/|/g' && echo $'x\\n'"""),
    "xml": save('<a href="x">&lt;y&gt;</a>'),
    "angle brackets": save("a < b && c > d << 2"),
    # calls whose arguments speak of tags, as an agent's that edits templates
    "an argument with call tags": save("It ends with </tool_call>, I think: <tool_call>"),
    "an argument with a function tag": save("{{ '<function=' ~ name ~ '>' }}"),
    "an argument with a parameter tag": save("{{ '<parameter=' ~ key ~ '>' }}"),
    "an argument with think tags": THOUGHT + call("edit", path="a", old="<think>", new="</think>"),
    "an argument with control tokens": THOUGHT + call("edit", path="t.jinja", old="<|im_start|>user", new="<|im_end|>"),
    "an argument with result tags": save("<tool_response>\nx\n</tool_response>"),
    "a list with tags": THOUGHT + call("save", rows='["<tool_call>", "<|im_end|>"]'),
    "an object with tags": THOUGHT + call("save", more='{"a": "<think>", "b": "<function=x>"}'),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", action="append", required=True, metavar="TREE")
    parser.add_argument("--show", action="store_true", help="print what is not kept")
    parser.add_argument("templates", nargs="+")
    options = parser.parse_args()
    asked = ModelTexts(TEXTS, TOOLS, {"preserve_thinking": True})
    for target in options.target:
        release = parser_process.open_release(open_tree(target))
        for named in options.templates:
            template = open_template(Library(), named)._replace(about=None)
            back = send_back(asked, release, PARSERS, template)
            counts = ", ".join(f"{n} {way_name(way)}" for way, n in back.kept.items())
            print(f"{release.version} {named}: kept {counts}, of {len(TEXTS)}")
            for lost in back.lost if options.show else ():
                print(f"    {lost}")


if __name__ == "__main__":
    main()
