"""vLLM source trees: installed folders, wheels, sdists, releases and git revisions.

``trees.open`` is the way in; every kind has the shape of ``vllm_mods.base.tree.Tree``.
"""
