"""Run the worked examples and write them as pages: ``python tools/notebooks.py``.

Sources are docs/notebooks/*.py, which jupytext reads. Each is run from the first cell to the last
in a kernel of its own; a cell that fails stops the build. Pages and pictures go beside them.
"""

import os
import sys
import warnings
from pathlib import Path

import jupytext
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from traitlets.config import Config

# Files of this user instead of ports that other users of the machine could reach.
PRIVATE = (
    Config() if os.name == "nt" else Config({"KernelManager": {"transport": "ipc"}})
)
FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"


def main() -> int:
    """Run every source, or those that are named, and write their pages."""
    named = [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.py"))
    for source in named:
        notebook = jupytext.read(source)
        NotebookClient(
            notebook, timeout=600, kernel_name="python3", config=PRIVATE
        ).execute()
        names = {"unique_key": source.stem, "output_files_dir": f"{source.stem}_files"}
        text, made = MarkdownExporter().from_notebook_node(notebook, resources=names)
        for name, picture in made["outputs"].items():
            file = FOLDER / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(picture)
        source.with_suffix(".md").write_text(text, encoding="utf-8")
        print(source.with_suffix(".md"))
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.environ["PYTHONWARNINGS"] = (
        "ignore:IProgress not found"  # of a progress bar, in the kernels
    )
    sys.exit(main())
