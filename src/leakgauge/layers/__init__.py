"""Where in the network does it leak? Measures by layer (Mo et al., 2021).

The sensitivity of a layer's gradients to the label and to a property, the information that a
layer's output keeps of the input, and the correlation of such measures with attacks.
"""

from leakgauge.core.lazy import attach

_NAMES = {
    "correlation": "Correlation partial_correlation pearson significance",
    "information": "v_information",
    "kernel_information": "InformationBounds information_bounds",
    "observation": "gradient_of_other",
    "reconstruction": "LayersRebuilt rebuild_from_layers",
    "representations": "layer_outputs",
    "sensitivity": "Sensitivity direction_sensitivity jacobian_sensitivity",
}
"""Public names by module."""

__getattr__, __dir__, __all__ = attach(
    __name__,
    {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()},
)
