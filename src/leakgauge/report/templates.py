"""The template environment of the report, with its filters and escaping."""

import functools
import re
from collections.abc import Mapping
from typing import Any

import jinja2
from markupsafe import Markup

from leakgauge.report import wording


@functools.cache
def environment(package: str = "leakgauge.report") -> jinja2.Environment:
    """Return the environment of the templates in a package's folder and in ``leakgauge.report``."""
    packages = dict.fromkeys((package, "leakgauge.report"))
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(one, ".") for one in packages]),
        autoescape=True,  # in every template: names, values and notes come from the user
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = "number short percent count plain interval label marked signed change"
    made.filters |= {name: getattr(wording, name) for name in names.split()}
    return made


def render(package: str, template: str, values: Mapping[str, Any]) -> Markup:
    """Return a template of a package as HTML, without the templates' own indentation."""
    html = environment(package).get_template(template).render(**values)
    return Markup(re.sub(r"\n\s+<", "\n<", html))  # a user's < is escaped
