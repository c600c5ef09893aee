"""Remarks on files as SARIF 2.1.0, which GitHub's code scanning, GitLab and editors show (OASIS, 2020)."""

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from vllm_mods import __version__
from vllm_mods.report import matrix_grid as view, words
from vllm_mods.report.annotations import Remark


def render(remarks: Iterable[Remark]) -> str:
    """Return a run with a result for each remark. A run without results found nothing."""
    results = [_result(one) for one in remarks]
    meanings = {one.word: one.meaning for one in (*words.findings(), *words.endings())}
    codes = dict.fromkeys(one["ruleId"] for one in results)
    rules = [{"id": one, "shortDescription": {"text": meanings.get(one, one)}} for one in codes]
    driver = {"name": "vllm-mods", "version": __version__, "rules": rules}
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=2) + "\n"


def _result(remark: Remark) -> dict[str, Any]:
    scheme = "file://" if remark.place.startswith("/") else ""
    uri = scheme + quote(view.clean(remark.place))
    location: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if remark.line:
        location["region"] = {"startLine": remark.line}
    return {
        "ruleId": view.clean(remark.code),
        "level": remark.level.value,
        "message": {"text": view.clean(f"{remark.mod}: {remark.message}")},
        "locations": [{"physicalLocation": location}],
    }
