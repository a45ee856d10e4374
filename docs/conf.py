"""Configure Sphinx: hand-written pages, and pages made from the code (``_ext``)."""

import sys
from pathlib import Path

import leakgauge

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "leakgauge"
author = "the leakgauge authors"
copyright = "2026, the leakgauge authors"
version = release = leakgauge.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_copybutton",
    "docstrings",
    "made_pages",
    "inline_diagrams",
]
exclude_patterns = ["_ext", "generated/parts"]
root_doc = "index"

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline", "colon_fence"]

# Every notebook runs in each build; a cell that fails, fails the build.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_class_signature = "mixed"
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Links are checked. Types in signatures are not: those of other packages have no entry here.
nitpicky = True
nitpick_ignore_regex = [("py:class", ".*"), ("py:data", ".*")]

html_theme = "furo"
html_title = f"leakgauge {version}"
html_static_path = ["_static"]
html_extra_path = ["generated/extra"]
html_css_files = ["site.css"]
html_show_sphinx = False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
