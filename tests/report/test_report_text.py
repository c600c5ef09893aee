"""What is printed to be copied has to survive the shell it is copied into."""

from __future__ import annotations

import shlex

from memory_tree import MemoryTree
from mod_making import mod, variant

from vllm_mods.base.model import TemplateFile
from vllm_mods.planning.planner import plan
from vllm_mods.report import text


def test_serve_arguments_can_be_pasted_into_a_shell() -> None:
    json = '{"preserve_thinking": true}'
    file = TemplateFile(name="t", file="t.jinja", source="templates/t/template.jinja", data=b"x")
    chat = mod(variant(templates=(file,)), serve_args=("--default-chat-template-kwargs", json))
    planned = plan([chat], MemoryTree({"vllm/x.py": b"x\n"}), workspace="/work space")
    (line,) = text.serve_arguments(planned, "/work space")
    said, _, arguments = line.partition(": ")
    assert said == "serve with (mod)"
    assert shlex.split(arguments) == [
        "--default-chat-template-kwargs", json, "--chat-template", "/work space/t.jinja"
    ]  # fmt: skip
