"""Settings of Sphinx: `make docs` builds the pages of this folder.

Nothing here needs a network: no inventories of other projects are fetched.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from splatview_ipc.control.limits import VERSION

project = "splatview"
author = "the authors of splatview"
project_copyright = author
release = VERSION
version = VERSION

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "generated_examples",
    "generated_pages",
    "phone_tables",
    "short_literals",
]
exclude_patterns = ["extensions", "static"]
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!splatview).*"),
    ("py:class", r"splatview\..*\.T"),
]
"""Names of other projects lead nowhere, since their inventories are not fetched; type
variables have no page."""

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
smartquotes_action = "D"
"""Dashes alone: Sphinx writes two hyphens behind the name of a parameter."""

autodoc_typehints = "signature"
autodoc_mock_imports = ["lightning", "nerfstudio", "transformers"]
"""Trainers that splatview.integrations is for; pages need none of them."""
autoclass_content = "both"
autodoc_member_order = "bysource"
highlight_language = "text"
default_role = "literal"
"""Docstrings write names in single backquotes."""
napoleon_numpy_docstring = False
python_maximum_signature_line_length = 88
add_module_names = True

html_theme = "furo"
html_title = f"splatview {VERSION}"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sphinx = False
linkcheck_timeout = 20
