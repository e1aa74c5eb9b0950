"""How Sphinx builds the documentation: ``make docs``. Nothing is fetched, a warning is an error."""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sklearn.base import BaseEstimator
from sphinx.application import Sphinx

import unjoined

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tools"))
import files  # noqa: E402 - tools are no package
import prose  # noqa: E402

BAR = r'<mo stretchy="false" lspace="0.1em" rspace="0.1em">\1</mo>'
# Methods that scikit-learn adds to every estimator.
ROUTING = "get_metadata_routing, set_fit_request, set_score_request, set_split_request, set_output"

project = "unjoined"
author = "the unjoined developers"
release = unjoined.__version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
]
# Furo reads well on a phone, in the dark and on paper, and loads nothing from elsewhere.
html_theme = "furo"
html_title = "unjoined"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_math_renderer = "mathml"
exclude_patterns = ["examples", "build"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
autodoc_typehints = "none"
default_role = "code"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def public_names() -> dict[str, list[str]]:
    """Return the names of each public module, as the page of public names lists them."""
    sections = (HERE / "api.md").read_text("utf-8").split("\n## ")[1:]
    return {found[0]: found[1:] for found in map(prose.quoted, sections)}


def write_reference() -> None:
    """Write one page per public module from the list of public names."""
    folder = HERE / "reference"
    folder.mkdir(exist_ok=True)
    modules = []
    for module, names in public_names().items():
        page = [module, "=" * len(module), "", f".. currentmodule:: {module}", ""]
        for name in names:
            thing = getattr(import_module(module), name)
            page += [name, "-" * len(name), ""]
            if isinstance(thing, type):
                page += [
                    f".. autoclass:: {name}",
                    "   :members:",
                    f"   :exclude-members: {ROUTING}",
                ]
                page += ["   :inherited-members: BaseEstimator"] * issubclass(
                    thing, BaseEstimator
                )
                page += [""]
            else:
                page += [f".. autofunction:: {name}", ""]
        (folder / f"{module}.rst").write_text("\n".join(page), "utf-8")
        modules.append(f"   {module}")
    toc = [
        "Reference",
        "=========",
        "",
        ".. toctree::",
        "   :maxdepth: 1",
        "",
        *modules,
        "",
    ]
    (folder / "index.rst").write_text("\n".join(toc), "utf-8")


def _mathml(self: Any, node: nodes.Element, display: str) -> None:
    """Write a formula; bars keep to the height of a line, and away from what they enclose."""
    bars = re.sub(
        r"<mo>(&#x(?:02016|0007C);)</mo>", BAR, convert(node.astext(), display=display)
    )
    self.body.append(bars)
    raise nodes.SkipNode


def _name_table(module: str, names: list[str], link: str) -> str:
    """Return public names with the first line of each docstring."""
    rows = ["| name | what |", "|---|---|"]
    for name in names:
        first = (inspect.getdoc(getattr(import_module(module), name)) or "").split(
            "\n"
        )[0]
        first = re.sub(":math:`(.*?)`", r"$\1$", first).replace("``", "`")
        rows.append(f"| {link.format(name=name, module=module)} | {first} |")
    return "\n".join(rows)


def complete(page: str, text: str, link: str) -> str:
    """Put in what a page leaves to the code: the list of files, and what public names are for."""
    if page == "api":
        head = text.split("\n## ")[0]
        tables = (
            f"\n## `{module}`\n\n{_name_table(module, names, link)}\n"
            for module, names in public_names().items()
        )
        text = head + "".join(tables)
    return text.replace("<!-- files -->", files.page())


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = complete(page, source[0], "{{py:obj}}`{name} <{module}.{name}>`")


def _write_twins(app: Sphinx, error: Exception | None) -> None:
    """Put each page as Markdown beside its HTML, and list all in llms.txt, for programs."""
    if error:
        return
    lines = []
    for page in sorted(app.env.found_docs, key=lambda page: (page != "index", page)):
        source = Path(app.env.doc2path(page))
        if source.suffix != ".md":
            continue
        text = complete(page, source.read_text("utf-8"), "`{name}`")
        twin = Path(app.outdir) / f"{page}.md"
        twin.write_text(
            re.sub(r"(\]\((?:\.\./)*)images/", r"\1_images/", text), "utf-8"
        )
        title, sentence = prose.opening(text)
        lines.append(f"- [{title}]({page}.md): {sentence}")
    title, sentence = prose.opening((HERE / "index.md").read_text("utf-8"))
    head = [f"# {title}", "", f"> {sentence}", "", "## Pages", ""]
    (Path(app.outdir) / "llms.txt").write_text("\n".join([*head, *lines, ""]), "utf-8")


write_reference()


def setup(app: Sphinx) -> None:
    """Complete pages by the code, write their twins, and show formulas as MathML."""
    app.connect("source-read", _read)
    app.connect("build-finished", _write_twins)
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda self, node: _mathml(self, node, "inline"), None),
        block_renderers=(lambda self, node: _mathml(self, node, "block"), None),
    )
