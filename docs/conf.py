"""How Sphinx builds the documentation: ``make docs``. Nothing is fetched, a warning is an error."""

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


def write_reference() -> None:
    """Write one page per public module from the list of public names."""
    folder = HERE / "reference"
    folder.mkdir(exist_ok=True)
    modules = []
    for section in (HERE / "api.md").read_text("utf-8").split("\n## ")[1:]:
        module = section.split("`")[1]
        page = [module, "=" * len(module), "", f".. currentmodule:: {module}", ""]
        for name in re.findall(r"^\| `(\w+)` \|", section, flags=re.M):
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


def _list_files(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = source[0].replace("<!-- files -->", files.page())


write_reference()


def setup(app: Sphinx) -> None:
    """List the files where a page asks for it, and show formulas as MathML, as browsers do."""
    app.connect("source-read", _list_files)
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda self, node: _mathml(self, node, "inline"), None),
        block_renderers=(lambda self, node: _mathml(self, node, "block"), None),
    )
