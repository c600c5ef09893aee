"""The content format that each vLLM detects: our rules, and the releases' own functions."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from template_env import detector

from vllm_mods.templates.formats import RULES, content_format, detect_formats
from vllm_mods.templates.sandbox import environment
from vllm_mods.trees.open import open_tree

# What each set of rules says of it, from 0.15, 0.22, 0.30 and 0.33 on: s for string, o for openai.
SHAPES = {
    "{% for m in messages %}{{ m.content }}{% endfor %}": "ssss",
    "{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}": "oooo",
    "{% for m in messages[1:]|list %}{% for c in m['content'] %}{% endfor %}{% endfor %}": "oooo",
    "{% set all = messages %}{% for m in all %}{% for c in m.content|list %}{% endfor %}{% endfor %}": "oooo",
    "{% for m in messages %}{% for c in m['text'] %}{% endfor %}{% endfor %}": "ssss",
    "{% for m in messages %}{% set content = m.content %}{% for c in content %}{% endfor %}{% endfor %}": "sooo",
    "{% macro show(content) %}{% for c in content %}{% endfor %}{% endmacro %}": "soss",
    "{% macro show(x) %}{% for c in x %}{% endfor %}{% endmacro %}"
    "{% for m in messages %}{{ show(m.content) }}{% endfor %}": "ssoo",
    "{% macro show(a, x) %}{% for c in x %}{% endfor %}{% endmacro %}"
    "{% for m in messages %}{{ show(1, x=m.content) }}{% endfor %}": "ssoo",
    "{% set ns = namespace(rest=messages) %}"
    "{% for m in ns.rest %}{% for c in m.content %}{% endfor %}{% endfor %}": "ssso",
    "{% set ns = namespace() %}{% set ns.rest = messages[1:] %}"
    "{% for m in ns.rest %}{% for c in m.content %}{% endfor %}{% endfor %}": "ssso",
    # unpacking makes an assertion fail in some, which then take the default
    "{% set ns = namespace() %}{% set ns.rest = messages %}"
    "{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}": "ssso",
    "{% set a, b = messages %}{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}": "ssso",
    "{% for m in messages %}{% for a, b in m.content %}{% endfor %}{% endfor %}": "ssss",
    "{% for a, b in messages %}{% endfor %}{% for c in content %}{% endfor %}": "ssss",
}
_WORDS = {"s": "string", "o": "openai"}


@pytest.mark.parametrize("text", SHAPES)
def test_shapes(text: str) -> None:
    tree = environment().parse(text)
    assert [content_format(tree, rules) for rules in RULES] == [
        _WORDS[letter] for letter in SHAPES[text]
    ]


def test_releases_that_agree_are_one_row() -> None:
    tree = environment().parse("{% for c in content %}{% endfor %}")
    assert detect_formats(tree) == (("0.15", "string"), ("0.22", "openai"))


# ---- the same by vLLM's own functions ----------------------------------------------------------

_NAMES = st.sampled_from(["messages", "content", "a", "b", "ns.a", "ns.b"])
_VALUES = st.builds(
    "{}{}{}".format,
    _NAMES,
    st.sampled_from(["", ".content", "['content']", "['a']", ".a"]),
    st.sampled_from(["", "|list", "[1:]", "[0]", " is string"]),
)
_LOOP_TARGETS = st.sampled_from(["a", "b", "content", "a, b"])
_TARGETS = st.one_of(_LOOP_TARGETS, st.sampled_from(["ns.a", "ns.b"]))


def _inside(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{{% for {} in {} %}}{}{{% endfor %}}".format, _LOOP_TARGETS, _VALUES, inner),
        st.builds(
            "{{% macro {}({}) %}}{}{{% endmacro %}}".format,
            st.sampled_from(["f", "g"]),
            st.sampled_from(["a", "b", "content", "a, content"]),
            inner,
        ),
        st.builds("{}{}".format, inner, inner),
    )


_LEAVES = st.one_of(
    st.builds("{{% set {} = {} %}}".format, _TARGETS, _VALUES),
    st.builds("{{% set ns = namespace(a={}) %}}".format, _VALUES),
    st.builds("{{{{ f({}, content={}) }}}}".format, _VALUES, _VALUES),
    st.builds("{{{{ g({}) }}}}".format, _VALUES),
    st.builds("{{% for a in {} %}}{{% endfor %}}".format, _VALUES),
)
_TEMPLATES = st.recursive(_LEAVES, _inside, max_leaves=6)


def _circular(text: str) -> bool:
    """Tell whether names are assigned to each other in a circle: some releases follow it without end."""
    given_to = {(value, name) for name, value in re.findall(r"set ([\w.]+) = ([\w.]+)", text)}
    given_to |= {(value, "ns.a") for value in re.findall(r"namespace\(a=([\w.]+)", text)}
    for _ in range(6):
        given_to |= {(a, d) for a, b in given_to for c, d in given_to if b == c}
    return any(a != b and (b, a) in given_to for a, b in given_to)


@pytest.mark.network
@pytest.mark.parametrize(
    ("version", "rules"),
    [
        *((one, RULES[0]) for one in ("0.15.0", "0.18.1", "0.21.0")),
        *((one, RULES[1]) for one in ("0.22.0", "0.29.0")),
        *((one, RULES[2]) for one in ("0.30.0", "0.32.0")),
        ("0.33.0", RULES[3]),
    ],
)
def test_releases_detect_what_the_rules_say(version: str, rules: object) -> None:
    renderer = open_tree(f"pypi:{version}").read("vllm/renderers/hf.py")
    assert renderer is not None
    detect = detector(renderer, loud=False)
    (index,) = [i for i, one in enumerate(RULES) if one is rules]
    for text, letters in SHAPES.items():
        assert detect(text) == _WORDS[letters[index]], text

    @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
    @given(_TEMPLATES)
    def agree(text: str) -> None:
        assume(not _circular(text))
        assert detect(text) == content_format(environment().parse(text), RULES[index])

    agree()
