"""Every mod on every tree: verdicts, what they rest on, and what follows from them.

``cell`` is what comes out, ``run`` how it is computed. A cell is one plan of one mod on one tree.
"""
