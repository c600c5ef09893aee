"""The pull requests of a repository: listed, opened, changed and closed through the API of its forge.

The token goes to the forge's own host, in a header: no redirect is followed, and no answer is shown with it.
"""

import os
from typing import Any

import requests

from vllm_mods.base import limits, secrets, untrusted
from vllm_mods.base.errors import Refused, Unreachable
from vllm_mods.base.hops import place
from vllm_mods.base.sessions import BROKEN, reason, session
from vllm_mods.keeping.forges import ForgeRepository
from vllm_mods.keeping.proposing import PullRequest, RequestText

_PAGE_SIZE = 100
_RETRIES = 2
_MOST_QUOTED = 300
_AGAIN = "then run the same command again: finished requests are not repeated"
_LIMITED = 429
_REFUSALS = {
    301: "the repository has moved: git remote set-url",
    401: "{token} is unknown to the server",
    403: "{token} has no right to do that",
    404: "no such repository, or it is hidden from {token}",
    _LIMITED: "the rate limit is reached for now",
}


class ForgeClient:
    """Asks a forge for the requests of one repository."""

    def __init__(self, repository: ForgeRepository, token: str) -> None:
        def bear(request: requests.PreparedRequest) -> requests.PreparedRequest:
            request.headers["Authorization"] = f"Bearer {token}"
            return request

        self._repository = repository
        self._forge = repository.forge
        self._session = session(_RETRIES)
        self._session.headers["Accept-Encoding"] = "identity"
        self._session.auth = bear  # else a login of ~/.netrc would stand in for it

    def list_all(self) -> tuple[PullRequest, ...]:
        """Return all requests that there ever were for branches of the repository itself, the newest first."""
        listed: dict[int, PullRequest] = {}
        *_, head, base = self._forge.read
        for page in range(1, limits.REQUESTS // _PAGE_SIZE + 1):
            query = {"state": "all", self._forge.page_size: _PAGE_SIZE, "page": page}
            records = self._ask("GET", self._repository.requests, params=query)
            if not isinstance(records, list):
                raise self._refused("the answer is not a list")
            if not records:
                return tuple(sorted(listed.values(), reverse=True))
            own = (record for record in records if _value(record, head) == _value(record, base))
            listed |= {request.number: request for request in map(self._read, own)}
        raise self._refused(f"more than {limits.REQUESTS}, the limit for {limits.REQUESTS.what}")

    def open(self, branch: str, base: str, text: RequestText) -> PullRequest:
        """Open a request to merge a branch into another one."""
        data = dict(zip(self._forge.sent, (branch, base, text.body), strict=True))
        record = self._ask("POST", self._repository.requests, json={"title": text.title, **data})
        return self._read(record)

    def change(self, request: PullRequest, text: RequestText, *, close: bool) -> None:
        """Change the text of a request, and close it."""
        method, key, closed = self._forge.change
        data = {"title": text.title, self._forge.sent[2]: text.body}
        url = f"{self._repository.requests}/{request.number}"
        self._ask(method, url, json={**data, key: closed} if close else data)

    def _read(self, record: object) -> PullRequest:
        keys = (*self._forge.read[:3], "title", self._forge.sent[2])
        number, *rest = (_value(record, key) for key in keys)
        if not isinstance(number, int):
            raise self._refused("the answer is not a pull request")
        url, branch, title, body = (str(value or "") for value in rest)
        state = "closed" if _value(record, "state") == "closed" else "open"
        state = "merged" if _value(record, "merged_at") else state
        return PullRequest(number, branch, state, RequestText(title, body), url)

    def _ask(self, method: str, url: str, **how: Any) -> object:  # noqa: ANN401
        """Send a request, and return the data of its answer."""
        how |= {"timeout": limits.SILENT_SECONDS, "allow_redirects": False, "stream": True}
        try:
            with self._session.request(method, url, **how) as response:
                data = response.raw.read(limits.ANSWER)
        except (requests.exceptions.RequestException, *BROKEN, OSError) as error:
            why = f"{place(url)}: the forge's API did not answer: {reason(error)}"
            hint = f"curl -sS https://{place(url)}  # does the server answer? {_AGAIN}"
            raise Unreachable(why, hint=hint) from error
        status = response.status_code
        if response.headers.get("X-RateLimit-Remaining") == "0" and not response.ok:
            status = _LIMITED
        try:
            if response.ok and not response.is_redirect:
                return untrusted.json_of(data)
        except ValueError:
            status = 0
        why = _REFUSALS.get(status, f"the answer is {response.status_code}")
        quoted = " ".join(data.decode(errors="replace").split())[:_MOST_QUOTED]
        grant = f"{self._forge.grant}, " if status in {401, 403, 404} else ""
        raise self._refused(f"{why}: {quoted}", grant)

    def _refused(self, why: str, grant: str = "") -> Refused:
        shown = secrets.clean(why, os.environ)
        text = shown.replace("{token}", f"the token in {self._repository.variable}")
        where = f"{self._repository.name} at {place(self._repository.requests)}"
        return Refused(f"the pull requests of {where}: {text}", hint=f"{grant}{_AGAIN}")


def _value(record: Any, dotted: str) -> Any:  # noqa: ANN401
    """Return what a record has under a dotted key, None where it has nothing there."""
    for key in dotted.split("."):
        record = record.get(key) if isinstance(record, dict) else None
    return record
