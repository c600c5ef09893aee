"""vLLM source trees: installed folders, wheels, sdists, releases and git revisions.

``open_tree`` is the way in; every kind has the shape of ``vllm_mods.base.tree.Tree``.
"""

from __future__ import annotations

from vllm_mods.trees.open import open_tree

__all__ = ["open_tree"]
