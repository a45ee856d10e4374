"""Write the pages made from the code, the examples and real audits, before Sphinx reads."""

import os
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

import api_pages
import command_line
import gallery
import reference_pages
import schema_pages
from leakgauge.core.files import write_text

EXAMPLES = "examples"
"""Name of the folder of notebooks, a sibling of ``docs``, and of the folder of their copies."""

logger = logging.getLogger(__name__)


def write_pages(app: Sphinx) -> None:
    """Write ``docs/generated``: reference pages, copies of the examples, and the gallery."""
    docs = Path(app.srcdir)
    made = docs / "generated"
    parts, extra = made / "parts", made / "extra"
    for folder in (parts, extra, made / "api", made / EXAMPLES):
        folder.mkdir(parents=True, exist_ok=True)
    pages = {
        "parts/command-line.md": command_line.page(),
        "parts/measurements.md": schema_pages.measurements(),
        "parts/metrics.md": schema_pages.metrics(),
        "parts/card.md": schema_pages.card(),
        "parts/reference-audits.md": reference_pages.reference_table(),
        **{f"api/{name}": text for name, text in api_pages.pages().items()},
    }
    if os.environ.get("LEAKGAUGE_DOCS_GALLERY", "1") == "1":
        pages["parts/gallery.md"] = gallery.page(extra / gallery.FOLDER, logger.info)
    else:  # for a quick build of the other pages
        pages["parts/gallery.md"] = "This build made no reports.\n"
    names = _copy_examples(docs.parent / EXAMPLES, made / EXAMPLES)
    pages["parts/examples.md"] = _listed(names)
    for name, text in pages.items():
        _write(made / name, text)


def _write(path: Path, text: str) -> None:
    """Write a page if it changed, so that Sphinx reads only changed pages again."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)


def _listed(names: list[str]) -> str:
    """Return a table of contents of the copies; Sphinx warns about an empty one."""
    entries = "\n".join(f"generated/{EXAMPLES}/{Path(name).stem}" for name in names)
    return f"```{{toctree}}\n{entries}\n```\n" if names else "There are no notebooks yet.\n"


def _copy_examples(source: Path, target: Path) -> list[str]:
    found = {one.name for one in source.glob("*.ipynb")}
    for old in target.glob("*.ipynb"):
        if old.name not in found:
            old.unlink()
    for name in sorted(found):
        shutil.copy2(source / name, target / name)
    return sorted(found)


def _quiet_kernels(folder: Path) -> None:
    """Run notebooks without the builder's own IPython files, and without the kernel's warnings."""
    profile = folder / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    write_text(profile / "ipython_kernel_config.py", "get_config().IPKernelApp.log_level = 40\n")
    os.environ["IPYTHONDIR"] = str(folder)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the pages to the start of a build."""
    made = Path(app.confdir) / "generated"
    (made / "extra").mkdir(parents=True, exist_ok=True)
    _quiet_kernels(made / "ipython")
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True}
