"""The matrix page in a real browser: by mouse, by keyboard, by link, in the dark, on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from matrix_making import EVIL, about, cell, every_verdict, example, hostile, large

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Verdict
from vllm_mods.matrices.against import read_earlier
from vllm_mods.matrices.cell import ClientLine, MatrixResult
from vllm_mods.report import html
from vllm_mods.report.matrix_forms import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    Show = Callable[..., Page]

pytestmark = pytest.mark.browser

CONFLICT = "#bad/pypi:0.21.0"


def focused(page: Page) -> str:
    """Say which cell has the focus, by its mod and release."""
    place = page.evaluate(
        "() => { const at = document.activeElement.closest('td'); return at &&"
        " [at.parentNode.sectionRowIndex, at.cellIndex - 1]; }"
    )
    assert place, "no cell has the focus"
    row, column = place
    return f"{('good', 'bad')[row]} {('0.19.1', '0.20.0', '0.21.0', '0.22.0')[column]}"


def closed(page: Page) -> None:
    """Wait until no cell is open; going back in the history takes its time."""
    page.locator("dialog").wait_for(state="hidden")
    page.wait_for_url(lambda url: "#" not in url)


def background(page: Page) -> str:
    found: str = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    return found


def test_a_cell_opens_and_shows_its_hunks(show: Show) -> None:
    page = show()
    page.locator("#grid td.conflict").click()
    dialog = page.get_by_role("dialog", name="bad 1.0.0 on vLLM 0.21.0")
    assert dialog.is_visible()
    assert "conflict: the source does not match the patch" in dialog.inner_text()
    patch, target = dialog.locator(".code").all()
    assert patch.locator(".other span").all_inner_texts() == ["        c = 1"]
    assert target.locator(".other span").all_inner_texts() == ["        a = 1"]
    assert target.locator("i").all_inner_texts() == ["1", "2", "3", "4", "5"]
    assert "it has no place; nearest is line 2" in dialog.inner_text()
    page.get_by_role("button", name="Close").click()
    assert dialog.is_hidden()


def test_a_hunk_and_its_target_stand_in_the_same_rows(show: Show) -> None:
    page = show(link="#bad/pypi:0.20.0")
    tops = [
        [line.bounding_box() for line in pane.locator(".lines > div").all()]
        for pane in page.locator(".code").all()
    ]
    rows = [[box["y"] for box in pane if box] for pane in tops]
    assert len(rows[0]) == 6
    assert rows[0] == rows[1]


def test_the_grid_by_keyboard(show: Show) -> None:
    page = show()
    page.locator("#grid td[tabindex='0']").focus()
    assert focused(page) == "good 0.22.0"
    for key, place in (
        ("ArrowRight", "good 0.22.0"),
        ("ArrowLeft", "good 0.21.0"),
        ("ArrowDown", "bad 0.21.0"),
        ("Home", "bad 0.19.1"),
        ("Control+Home", "good 0.19.1"),
        ("Control+End", "bad 0.22.0"),
        ("ArrowLeft", "bad 0.21.0"),
    ):
        page.keyboard.press(key)
        assert focused(page) == place
    assert page.locator("#grid [tabindex='0']").count() == 1
    page.keyboard.press("Enter")
    assert page.locator("#cell-title").inner_text() == "bad 1.0.0 on vLLM 0.21.0"
    page.get_by_role("button", name="next: 0.22.0").press("Enter")
    assert page.locator("#cell-title").inner_text() == "bad 1.0.0 on vLLM 0.22.0"
    assert page.get_by_role("button", name="no next release").is_disabled()
    page.keyboard.press("Escape")
    closed(page)
    assert page.get_by_role("dialog").count() == 0
    assert focused(page) == "bad 0.22.0"


def test_the_grid_is_one_stop_for_tab(show: Show) -> None:
    page = show()
    page.get_by_label("Your vLLM").focus()
    page.keyboard.press("Tab")
    assert focused(page) == "good 0.22.0"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "verdict"


def test_a_link_opens_its_cell_and_back_closes_it(show: Show) -> None:
    page = show(link=CONFLICT)
    assert page.locator("#cell-title").inner_text() == "bad 1.0.0 on vLLM 0.21.0"
    page.keyboard.press("Escape")
    closed(page)
    assert focused(page) == "bad 0.21.0"
    page.locator("#grid td.moved").click()
    assert page.url.endswith("#good/pypi:0.20.0")
    page.go_back()
    page.locator("dialog").wait_for(state="hidden")
    page.go_forward()
    assert page.locator("#cell-title").inner_text() == "good 1.0.0 on vLLM 0.20.0"


def test_a_link_in_a_list_opens_its_cell(show: Show) -> None:
    page = show(link="#/maintainers")
    page.get_by_role("link", name="bad on 0.21.0").first.click()
    assert page.locator("#cell-title").inner_text() == "bad 1.0.0 on vLLM 0.21.0"


@pytest.mark.parametrize(
    "link", ["#bad/pypi:9.9.9", "#nobody/pypi:0.20.0", "#%E0%A4%A/x", "#/", "#nobody"]
)
def test_a_link_to_nothing_says_so(show: Show, link: str) -> None:
    page = show(link=link)
    assert page.get_by_role("status").inner_text() == "There is no such cell on this page."
    assert page.locator("#answer").inner_text() == "There is no such cell on this page."
    assert page.locator("dialog").is_hidden()


def test_filters_by_verdict_mod_and_version(show: Show) -> None:
    page = show()
    status = page.get_by_role("status")
    assert status.inner_text() == "8 cells of 2 mods"
    page.get_by_role("checkbox", name="conflict").check()
    assert status.inner_text() == "1 cell of 1 mod"
    assert page.locator("#grid tbody th:visible b").all_inner_texts() == ["bad"]
    assert page.locator("#grid td:visible:not(.dim)").count() == 1
    page.get_by_label("To", exact=True).select_option("0.20.0")
    assert status.inner_text() == "0 cells of 0 mods"
    page.get_by_role("button", name="Show all").click()
    page.get_by_text("8 cells of 2 mods").wait_for()
    page.get_by_label("Mod", exact=True).fill("GOO")
    assert page.locator("#grid tbody th:visible b").all_inner_texts() == ["good"]
    page.get_by_label("From", exact=True).select_option("0.20.0")
    heads = page.locator("#grid thead th:visible span").all_inner_texts()
    assert heads == ["0.20.0", "0.21.0", "0.22.0"]
    page.locator("#grid td[tabindex='0']").focus()
    for key, place in (("Home", "good 0.20.0"), ("ArrowDown", "good 0.20.0")):
        page.keyboard.press(key)
        assert focused(page) == place


def test_mods_are_found_by_what_they_are_for(show: Show) -> None:
    page = show(about())
    status = page.get_by_role("status")
    for name, choice, found in (
        ("Package", "transformers", ["good"]),
        ("Package", "flashinfer-python", ["good"]),  # the word of the variant, and not the folder
        ("Package", "vllm", ["good"]),
        ("Package", "chat template", ["bad"]),
        ("Model", "qwen3", ["bad"]),
        ("Proof", "unique", ["good"]),
        ("Mod", "LOADS <w", ["good"]),
        ("Mod", "qwen", ["bad"]),
    ):
        field = page.get_by_label(name, exact=True)
        if name == "Mod":
            field.fill(choice)
        else:
            field.select_option(choice)
        assert page.locator("#grid tbody th:visible b").all_inner_texts() == found, (name, choice)
        page.get_by_role("button", name="Show all").click()
        page.get_by_text("10 cells of 2 mods").wait_for()
    words = page.get_by_label("Package", exact=True).locator("option").all_inner_texts()
    assert words == ["any", "chat template", "flashinfer-python", "transformers", "vllm"]
    page.get_by_label("Proof", exact=True).select_option("unique")
    assert status.inner_text() == "1 cell of 1 mod"


def test_what_is_looked_for_is_an_address(show: Show) -> None:
    page = show(about())
    page.get_by_label("Mod", exact=True).fill("goo")
    page.get_by_role("checkbox", name="moved").check()
    page.get_by_label("From", exact=True).select_option("0.20.0")
    assert page.url.endswith("#?mod=goo&verdict=moved&from=0.20.0")
    page.reload()
    assert page.get_by_role("status").inner_text() == "1 cell of 1 mod"
    assert page.get_by_role("checkbox", name="moved").is_checked()
    page.locator("#grid td.moved").click()
    assert page.url.endswith("#good/pypi:0.20.0")
    page.keyboard.press("Escape")
    page.wait_for_url("**#?mod=goo&verdict=moved&from=0.20.0")
    page.get_by_role("button", name="Show all").click()
    page.wait_for_url(lambda url: "#" not in url)


def test_a_mod_has_an_address(show: Show) -> None:
    page = show(large(12, 3))
    page.get_by_role("link", name="mod-01", exact=True).click()
    page.wait_for_url("**#mod-01")
    page.get_by_text("3 cells of 1 mod").wait_for()
    page.go_back()
    page.get_by_text("36 cells of 12 mods").wait_for()
    page.get_by_label("Mod", exact=True).fill("mod-02")
    page.wait_for_url("**#mod-02")
    page.reload()
    assert page.locator("#grid tbody th:visible b").all_inner_texts() == ["mod-02"]


def test_an_address_of_nothing_finds_nothing(show: Show) -> None:
    page = show(link="#?mod=%E0%A4%A&verdict=none&from=9.9")
    assert page.get_by_role("status").inner_text() == "0 cells of 0 mods"


def test_a_cell_says_what_it_was_planned_with(show: Show) -> None:
    page = show(about(), "#good/pypi:0.22.1rc1.dev46+gc5e3454")
    assert "beside it\ntransformers 5.4.0" in page.locator("dialog .facts").first.inner_text()


def test_what_is_said_of_mods_is_shown_with_their_rows(show: Show) -> None:
    page = show(example()._replace(clients=(ClientLine("bad", "Codex works"),)))
    clients = page.get_by_role("heading", name="Clients of chat templates 1")
    clients.wait_for()
    page.get_by_label("Mod", exact=True).fill("good")
    page.get_by_text("4 cells of 1 mod", exact=True).wait_for()
    assert clients.is_hidden()  # they are of the other
    page.get_by_role("button", name="Show all").click()
    clients.wait_for()


def test_what_maintainers_have_to_do_is_behind_a_tab(show: Show) -> None:
    page = show()
    problems = page.get_by_role("heading", name="Problems 1")
    assert problems.is_hidden()
    page.get_by_role("link", name="For maintainers 3").click()
    assert problems.is_visible()
    assert page.locator("#grid").is_hidden()
    assert page.locator(".summary.bad").inner_text() == "2 of 6 cells should work, but do not."
    page.get_by_role("link", name="Map").click()
    assert problems.is_hidden()
    assert page.locator("#grid").is_visible()


def test_what_changed_is_a_tab_whose_entries_lead_to_their_cells(show: Show) -> None:
    last = Verdict.CONFLICT
    before = (one._replace(verdict=last) for one in about().cells if one.version == "0.20.0")
    earlier = read_earlier("2026-11-20.json", FORMS["json"](MatrixResult(tuple(before))).encode())
    page = show(about(), "#/changes", earlier, viewport={"width": 320, "height": 640})
    assert page.locator("#changes h2").inner_text() == "What changed since 2026-11-20"
    assert page.locator("#grid").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") == 320
    page.get_by_role("link", name="bad on 0.20.0").click()
    assert page.locator("#cell-title").inner_text() == "bad 1.0.0 on vLLM 0.20.0"
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Map").click()
    page.get_by_label("Mod", exact=True).fill("qwen")
    assert page.locator("#grid tbody th:visible b").all_inner_texts() == ["bad"]
    assert page.get_by_role("link", name="What changed 7").is_visible()


def test_nothing_is_called_good_above_a_red_bar(show: Show) -> None:
    whole = example()
    fine = tuple(one for one in whole.cells if one.mod == "good")
    page = show(whole._replace(cells=fine), "#/maintainers")
    assert (
        page.locator(".summary.bad").inner_text()
        == "A mod's range or lock disagrees with these trees."
    )
    page = show(whole._replace(cells=fine, problems=()), "#/maintainers")
    assert page.locator(".summary.good").inner_text().startswith("Every mod applies")


def answer(page: Page) -> str:
    return " ".join(page.locator("#answer").inner_text().split())


def test_a_mod_and_a_release_are_answered_with_the_command(show: Show) -> None:
    page = show(about())
    assert answer(page) == "Choose a mod and your vLLM, or a cell of the grid."
    page.get_by_label("Mod", exact=True).fill("good")
    assert answer(page).startswith("good applies to 4 of 5 releases, the newest 0.22.1rc1")
    page.get_by_label("Your vLLM").select_option("0.20.0")
    apply = "vllm-mods apply good --target SITE_PACKAGES"
    assert answer(page) == f"Yes. good applies to vLLM 0.20.0. {apply} Why, line by line"
    page.get_by_label("Your vLLM").select_option("0.21.0")
    assert answer(page).startswith("Not needed. vLLM 0.21.0 has this change already.")
    page.get_by_label("Mod", exact=True).fill("bad")
    assert answer(page) == (
        "No. bad does not apply to vLLM 0.21.0. The newest release that it applies to is 0.20.0. "
        "hunk 1: its text is not in the file; nearest is line 3 "
        "vllm-mods port bad --to pypi:0.21.0 --output ported Why, line by line"
    )
    page.get_by_label("Your vLLM").select_option("0.22.0")
    assert answer(page).startswith("Not known. This release could not be read.")
    page.get_by_role("link", name="Why, line by line").click()
    assert page.locator("#cell-title").inner_text() == "bad 1.0.0 on vLLM 0.22.0"
    page.keyboard.press("Escape")
    page.get_by_label("Mod", exact=True).fill("")
    page.get_by_label("Your vLLM").select_option("0.20.0")
    assert answer(page) == "2 of 2 mods apply to vLLM 0.20.0. Choose a mod for the command."


def test_a_release_that_the_author_does_not_state_is_answered_too(show: Show) -> None:
    page = show(MatrixResult((cell(meant=False, in_range=False),)), "#mod/0.20.0")
    said = page.locator("dialog .answer").inner_text()
    assert (
        "applies to vLLM 0.20.0. Its author does not state this release; it was tried here." in said
    )
    assert "vllm-mods apply mod --target SITE_PACKAGES" in said


def test_where_no_range_leads_the_answer_is_what_the_source_says(show: Show) -> None:
    none = Finding(FindingCode.NO_VARIANT, "no variant covers this version")
    lost = Finding(FindingCode.TEXT, "hunk 1: its text is not in the file", "vllm/loader.py", 3)
    refused = cell(verdict="unsupported", meant=False, in_range=False, findings=(none, lost))
    page = show(MatrixResult((refused,)), "#?mod=mod&release=0.20.0")
    assert answer(page).startswith("No. mod does not apply to vLLM 0.20.0. hunk 1: its text")


def test_the_command_of_a_mod_of_others_names_their_library(show: Show) -> None:
    result = about()
    good = result.mods[0]._replace(directory="/somewhere/patches/good")
    page = show(result._replace(mods=(good, *result.mods[1:])), "#?mod=good&release=0.20.0")
    assert "vllm-mods apply good --library DIR --target SITE_PACKAGES" in answer(page)
    page.get_by_label("Your vLLM").select_option("0.19.1")
    assert page.url.endswith("#?mod=good&release=0.19.1")


_SIGHT = """(sign) => {
    const [box, frame] = [sign, sign.closest(".scroll")].map((one) => one.getBoundingClientRect());
    const head = document.querySelector("#grid thead th").getBoundingClientRect();
    return head.right <= box.left && box.right <= frame.right;
}"""


def test_what_was_looked_for_is_in_sight(show: Show) -> None:
    result = large(3, 60)
    first = result.cells[0]._replace(verdict=Verdict.UNFIT)
    made = result._replace(cells=(first, *result.cells[1:]))
    page = show(made, viewport={"width": 600, "height": 800})
    sign = page.locator("#grid td.unfit svg")
    assert sign.evaluate(_SIGHT) is False
    page.get_by_role("checkbox", name="unfit").check()
    assert sign.evaluate(_SIGHT) is True


def test_releases_of_one_version_are_told_apart(show: Show) -> None:
    name = "vllm-0.20.0-cp38-abi3-manylinux_2_31_x86_64.whl"
    trees = (f"pypi:{name}", f"wheel:/a/{name}", f"wheel:/b/{name}")
    page = show(MatrixResult(tuple(cell(tree=tree) for tree in trees)))
    for field in ("From", "To"):
        page.get_by_label(field, exact=True).select_option(f"wheel:/b/{name}")
    assert page.get_by_role("status").inner_text() == "1 cell of 1 mod"


def test_no_mod_at_all_is_a_page(show: Show) -> None:
    page = show(MatrixResult(()))
    assert page.get_by_text(
        "None of these trees is in a mod's range, so no mod has to apply."
    ).is_visible()


def test_five_hundred_mods_can_be_searched(show: Show) -> None:
    page = show(large(500, 46))
    page.get_by_label("Mod", exact=True).fill("mod-499")
    page.get_by_text("46 cells of 1 mod", exact=True).wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1000, 1600])
def test_sixty_mods_on_forty_six_trees_are_shown_and_searched(
    show: Show, scheme: str, width: int
) -> None:
    page = show(large(60, 46), color_scheme=scheme, viewport={"width": width, "height": 900})
    assert page.get_by_role("status").inner_text() == "2760 cells of 60 mods"
    page.get_by_label("Mod", exact=True).fill("mod-07")
    page.get_by_text("46 cells of 1 mod", exact=True).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert len(html.render(large(60, 46))) < 1_000_000


def test_the_focus_stays_in_the_grid_when_its_cell_is_filtered_out(show: Show) -> None:
    page = show()
    page.get_by_role("checkbox", name="conflict").check()
    page.locator("#grid [tabindex='0']").focus()
    assert focused(page) == "bad 0.19.1"


def test_dark_and_light(show: Show) -> None:
    assert background(show(color_scheme="light")) == "rgb(255, 255, 255)"
    page = show(color_scheme="dark")
    dark = background(page)
    assert dark != "rgb(255, 255, 255)"
    page.get_by_role("button", name="Light").click()
    assert background(page) == "rgb(255, 255, 255)"
    page.reload()
    assert background(page) == "rgb(255, 255, 255)"
    page.get_by_role("button", name="Dark").click()
    assert background(page) == dark


def test_no_string_of_others_becomes_more_than_text(show: Show) -> None:
    page = show(hostile())
    page.locator("#grid td.conflict").click()
    shown = EVIL.replace("\x00", "\ufffd").replace("\x1b", "\ufffd").replace("\udcff", "\ufffd")
    assert shown.split("`")[0] in page.locator(".findings").inner_text()
    assert page.locator("script").count() == 2
    link = page.get_by_role("link", name="to this cell").get_attribute("href")
    page.reload()
    assert page.locator("dialog").is_visible()
    assert link
    assert page.url.endswith(link)


def test_without_javascript_the_grid_is_a_table(show: Show) -> None:
    page = show(java_script_enabled=False)
    assert page.locator("#grid td svg:visible").count() == 8
    assert page.get_by_role("cell", name="conflict").count() == 1
    assert page.get_by_role("columnheader", name="0.21.0").count() == 1
    assert page.locator("#controls").is_hidden()
    assert page.get_by_text("With JavaScript").is_visible()


@pytest.mark.parametrize("link", ["", CONFLICT])
def test_a_phone_scrolls_tables_and_not_the_page(show: Show, link: str) -> None:
    page = show(large(3, 60) if not link else None, link, viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.evaluate("document.getElementById('explanation').scrollWidth") <= 360


def test_on_paper_all_of_the_grid_is_there(show: Show) -> None:
    page = show()
    page.emulate_media(media="print")
    assert page.get_by_role("button", name="Show all").is_hidden()
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.scroll')).overflow") == "visible"
    )
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF-")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("link", ["", CONFLICT])
def test_axe_finds_nothing_wrong(show: Show, scheme: str, link: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    # The policy of the page keeps a tool's script out, as it keeps everybody's.
    page = show(link=link, color_scheme=scheme, bypass_csp=True)
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


_CONTRAST = """() => {
    const light = (colour) => {
        const parts = colour.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255);
        const linear = parts.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const page = getComputedStyle(document.documentElement).backgroundColor;
    return [...document.querySelectorAll("#grid svg")].map((sign) => {
        const style = getComputedStyle(sign);
        const clear = style.backgroundColor === "rgba(0, 0, 0, 0)";
        const [a, b] = [style.stroke, clear ? page : style.backgroundColor].map(light);
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_sign_stands_out_from_its_tile(show: Show, scheme: str) -> None:
    ratios = show(every_verdict(), color_scheme=scheme).evaluate(_CONTRAST)
    assert len(ratios) == 24
    assert min(ratios) >= 3, ratios  # WCAG 2.2, 1.4.11


def test_many_mods_and_releases_can_be_used(show: Show) -> None:
    page = show(large(30, 200), "#mod-07/pypi:0.30.1")
    page.keyboard.press("Escape")
    closed(page)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator("#cell-title").inner_text() == "mod-07 1.0.0 on vLLM 0.30.2"
