"""Put diagrams into the page, so that they follow its light or dark colours."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

FOLDER = "diagrams/"


class InlineDiagrams(SphinxPostTransform):
    """Transform that replaces images of ``diagrams/`` by inline SVG."""

    default_priority = 5
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Replace each image of ``diagrams/`` in the document."""
        for image in list(self.document.findall(nodes.image)):
            if image["uri"].startswith(FOLDER):
                text = (Path(self.env.srcdir) / image["uri"]).read_text(encoding="utf-8")
                drawing = re.sub(r"<style>.*?</style>\s*", "", text, flags=re.DOTALL)
                image.replace_self(
                    nodes.raw("", f'<div class="diagram">{drawing}</div>', format="html")
                )


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the transform."""
    app.add_post_transform(InlineDiagrams)
    return {"parallel_read_safe": True}
