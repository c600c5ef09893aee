"""A matrix as JUnit XML, which every CI shows: a test case per cell, a suite per mod.

Format: the schema of Jenkins' xUnit plugin (``junit-10.xsd``), which is what GitLab and the others
read too. It has no time in it, so that the same matrix is the same file.
"""

from xml.etree import ElementTree as ET

from vllm_mods.matrices.cell import Cell, MatrixResult
from vllm_mods.report import matrix_grid as view


def render(result: MatrixResult) -> str:
    """Return one XML document.

    A cell that is meant to work and does not is a failure; one that could not be read or computed
    is an error; one that is not meant to work is skipped. Problems of a mod are the output of its suite.
    """
    of = view.grid(result)
    grievances = view.problems(result)
    root = ET.Element("testsuites", name="vllm-mods matrix")
    for row in of.rows:
        suite = ET.SubElement(root, "testsuite", name=view.clean(f"{row.mod} {row.version}"))
        for cell in row.cells:
            _case(suite, of, cell)
        problems = [view.problem(of, one) for one in grievances if one.mod == row.mod]
        if problems:
            ET.SubElement(suite, "system-out").text = "\n".join(problems)
    for suite in root:
        suite.set("tests", str(len(suite.findall("testcase"))))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(suite: ET.Element, of: view.Grid, cell: Cell) -> None:
    mod = view.clean(cell.mod)
    # What stands before the last dot of a class is taken for its package.
    classname = f"vllm-mods.{mod.replace('.', '_')}"
    name = f"{mod} on vLLM {of.labels[cell.tree]}"
    case = ET.SubElement(suite, "testcase", classname=classname, name=name)
    headline = f"{cell.word}: {view.MEANINGS[cell.word]}"
    messages = "\n".join(map(view.clean, map(str, cell.findings)))
    if cell.computed and cell.verdict.ok:
        texts = filter(None, (headline, view.details([cell]), messages))
        ET.SubElement(case, "system-out").text = "\n".join(texts)
        return
    outcome = "failure" if cell.meant else "skipped"
    outcome = outcome if cell.readable else "error"
    element = ET.SubElement(case, outcome, message=headline)
    if outcome != "skipped":
        element.set("type", cell.word)
        element.text = messages
