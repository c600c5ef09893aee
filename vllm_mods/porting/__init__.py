"""From a variant written for one release to a variant for another."""
