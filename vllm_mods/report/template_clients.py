"""The answer of ``template clients``."""

import itertools
from collections.abc import Sequence
from typing import Any

from vllm_mods.api.template_clients import TemplateClients
from vllm_mods.report import data, text
from vllm_mods.report.reply import Reply
from vllm_mods.templates.client_requests import clients
from vllm_mods.templates.client_table import Row


def listed(results: Sequence[TemplateClients]) -> Reply:
    """Return, for each template, what each client is to expect on which releases."""
    titles = {client.name: f"{client.title}, {client.endpoint}" for client in clients()}
    lines = []
    for result in results:
        lines.append(result.template.name)
        for subject, rows in itertools.groupby(result.rows, key=lambda row: row.answer.subject):
            lines.append(f"  {titles.get(subject, subject)}")
            lines += [
                f"    {line}"
                for line in text.columns((_releases(row), _words(row)) for row in rows)
            ]
        if not result.rows:
            lines.append("  the table has no entry for its text: --target TREE asks a vLLM")
    answer = {
        "templates": [
            {"name": one.template.name, "rows": list(map(_data, one.rows))} for one in results
        ]
    }
    return Reply(answer, "\n".join(lines))


def _releases(row: Row) -> str:
    return row.since if row.since == row.until else f"{row.since} to {row.until}"


def _words(row: Row) -> str:
    return f"{row.answer.verdict}: {row.answer.why}" if row.answer.why else str(row.answer.verdict)


def _data(row: Row) -> dict[str, Any]:
    return {
        **data.fields(row, "since", "until"),
        **data.fields(row.answer, "subject", "verdict", "why"),
    }
