"""The pull requests of a repository: listed, opened, changed and closed through the API of its forge.

The token goes to the forge's own host, in a header: no redirect is followed, and no answer is shown with it.
"""

import os
from functools import lru_cache, reduce
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
_AGAIN = "then run the same command again: what is done already stays, and is not done twice"


class ForgeClient:
    """Asks a forge for the requests of one repository, with the token of ``ForgeRepository.variable``."""

    def __init__(self, repository: ForgeRepository, token: str) -> None:
        self._repository = repository
        self._forge = repository.forge
        self._token = token
        self._session = session(_RETRIES)
        self._session.headers["Accept-Encoding"] = "identity"
        self._session.auth = self._bear  # else a login of ~/.netrc would stand in for it
        self._listed = lru_cache(self._list)  # a forge that knows no query is asked once for all

    def list_open(self) -> tuple[PullRequest, ...]:
        """Return the open requests for branches of the repository itself."""
        return self._list((("state", self._forge.open),))

    def list_all(self, branch: str) -> tuple[PullRequest, ...]:
        """Return every request for a branch that there ever was, the newest first."""
        owner = self._repository.name.partition("/")[0]
        ours = [(key, text.format(owner=owner, branch=branch)) for key, text in self._forge.ours]
        listed = self._listed((("state", "all"), *ours))
        return tuple(request for request in listed if request.branch == branch)

    def open(self, branch: str, base: str, text: RequestText) -> PullRequest:
        """Open a request to merge a branch into another one."""
        forge = self._forge
        data = {forge.head: branch, forge.base: base, "title": text.title, forge.body: text.body}
        return self._read(self._ask("POST", self._repository.requests, json=data))

    def change(self, request: PullRequest, text: RequestText, *, close: bool = False) -> None:
        """Change the text of a request, and close it."""
        data = {"title": text.title, self._forge.body: text.body}
        if close:
            data |= dict([self._forge.close])
        self._ask(self._forge.method, f"{self._repository.requests}/{request.number}", json=data)

    def _list(self, query: tuple[tuple[str, str], ...]) -> tuple[PullRequest, ...]:
        listed: dict[int, PullRequest] = {}
        here, there = self._forge.sides
        for page in range(1, limits.REQUESTS // _PAGE_SIZE + 1):
            wanted = {**dict(query), self._forge.page_size: _PAGE_SIZE, "page": page}
            records = self._ask("GET", self._repository.requests, params=wanted)
            if not isinstance(records, list):
                raise self._refused("it answers with no list of pull requests")
            if not records:
                return tuple(sorted(listed.values(), reverse=True))
            for record in records:
                if _value(record, here) == _value(record, there):
                    request = self._read(record)
                    listed[request.number] = request
        raise self._refused(
            f"it has more than {limits.REQUESTS}, the most of {limits.REQUESTS.what}"
        )

    def _read(self, record: object) -> PullRequest:
        forge = self._forge
        number, branch = _value(record, forge.number), _value(record, forge.branch)
        if not isinstance(number, int):
            raise self._refused("it answers with what is no pull request")
        title, body, url = (
            str(_value(record, key) or "") for key in ("title", forge.body, forge.url)
        )
        is_closed = _value(record, "state") == "closed"
        state = "merged" if _value(record, "merged_at") else "closed" if is_closed else "open"
        return PullRequest(number, str(branch), state, RequestText(title, body), url)

    def _ask(self, method: str, url: str, **given: Any) -> object:  # noqa: ANN401
        """Send a request, and return the data of its answer."""
        how: dict[str, Any] = {"timeout": limits.SILENT_SECONDS, "allow_redirects": False}
        try:
            with self._session.request(method, url, stream=True, **how, **given) as response:
                data = response.raw.read(limits.ANSWER + 1)
        except (requests.exceptions.RequestException, *BROKEN, OSError) as error:
            raise Unreachable(
                f"{place(url)} cannot be asked for pull requests: {self._shown(reason(error))}",
                hint=f"curl -sS https://{place(url)}  # does it answer? {_AGAIN}",
            ) from error
        try:
            answer = untrusted.json_of(data)
        except ValueError:
            answer = None
        if not response.ok or response.is_redirect or answer is None:
            raise self._refusal(response, answer)
        return answer

    def _refusal(self, response: requests.Response, answer: object) -> Refused:
        status, token = response.status_code, f"the token in {self._repository.variable}"
        left = response.headers.get("X-RateLimit-Remaining") or response.headers.get(
            "RateLimit-Remaining"
        )
        hint = f"{self._forge.grant}; {_AGAIN}"
        if status == requests.codes.too_many or (
            status == requests.codes.forbidden and left == "0"
        ):
            why, hint = "it takes no more requests for now (rate limit)", f"wait, {_AGAIN}"
        elif response.is_redirect:
            why, hint = "the repository has moved", "git remote set-url NAME URL  # where it is now"
        elif status == requests.codes.unauthorized:
            why = f"it does not take {token}"
        elif status == requests.codes.forbidden:
            why = f"{token} may not do that"
        elif status == requests.codes.not_found:
            why = f"there is no such repository, or it is hidden from {token}"
        else:
            why, hint = f"it answers {status} {response.reason or ''}".rstrip(), _AGAIN
        said = _words(answer)
        return self._refused(f"{why}{': ' if said else ''}{said}", hint)

    def _refused(
        self, why: str, hint: str = "is the URL of the remote right? git remote -v"
    ) -> Refused:
        where = f"{self._repository.name} at {place(self._repository.api)}"
        return Refused(f"the pull requests of {where}: {self._shown(why)}", hint=hint)

    def _shown(self, text: str) -> str:
        return secrets.clean(text.replace(self._token, secrets.HIDDEN), os.environ)

    def _bear(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _value(record: Any, dotted: str) -> Any:  # noqa: ANN401
    """Return what a record has under a dotted key, None where it has nothing there."""

    def step(value: Any, key: str) -> Any:  # noqa: ANN401
        return value.get(key) if isinstance(value, dict) else None

    return reduce(step, dotted.split("."), record)


def _words(answer: object) -> str:
    """Return what a forge says in an answer that is a refusal, in one line."""
    parts = [_value(answer, "message") or _value(answer, "error")]
    errors = _value(answer, "errors")
    parts += (
        [_value(error, "message") for error in errors if errors] if isinstance(errors, list) else []
    )
    text = " ".join(str(part) for part in parts if part)
    return " ".join(text.split())[:_MOST_QUOTED]
