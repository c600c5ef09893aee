"""Every target by its name."""

from __future__ import annotations

from fuzz import archives, changes, images, network, prompts, state, words

TARGETS = {
    target.name: target
    for module in (changes, archives, images, words, prompts, state, network)
    for target in module.TARGETS
}
