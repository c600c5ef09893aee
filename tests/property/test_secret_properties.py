"""Whatever a secret is and wherever it stands, a traceback does not have it."""

from __future__ import annotations

import string

from hypothesis import given, strategies as st

from vllm_mods.base.secrets import clean

SECRETS = st.text(string.ascii_letters + string.digits + "-_.~+=%!*$", min_size=6, max_size=40).map(
    lambda text: f"Zq{text}9"  # not a piece of the words around it
)
AROUND = st.sampled_from(
    [
        "https://{}@host/x",
        "https://me:{}@host/x",
        "GET https://host/x?a=b&token={}&c=d",
        "Authorization: Bearer {}",
        "{{'Authorization': 'Basic {}'}}",
        '{{"api_key": "{}"}}',
        "export MY_SECRET_TOKEN={}",
        "--password={}",
        "--hf-token '{}'",
    ]
)


@given(secret=SECRETS, around=AROUND, before=st.text(max_size=20), after=st.text(max_size=20))
def test_by_what_stands_around_it(secret: str, around: str, before: str, after: str) -> None:
    assert secret not in clean(f"{before} {around.format(secret)} {after}", {})


@given(
    secret=SECRETS,
    name=st.sampled_from(["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MY_KEY"]),
    before=st.text(max_size=20),
    after=st.text(max_size=20),
)
def test_by_the_variable_that_holds_it(secret: str, name: str, before: str, after: str) -> None:
    assert secret not in clean(f"{before}{secret}{after}", {name: secret})
    assert secret not in clean(f"{before}{secret}{after}", {"INDEX": f"https://me:{secret}@host/"})


@given(
    st.lists(
        st.sampled_from(
            ["vllm/config/model.py", "sha256:0011", "pypi:0.21.0", "author: me", "hunk 2", "token"]
        )
    )
)
def test_what_is_no_secret_stays(words: list[str]) -> None:
    text = "\n".join(words)
    assert clean(text, {"HOME": "/root", "HF_HOME": "/data", "PWD": "/work"}) == text
