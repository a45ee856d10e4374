"""Where in the network does it leak? Measures by layer (Mo et al., 2021).

The sensitivity of a layer's gradients to the label and to a property, the information that a
layer's output keeps of the input, and the correlation of such measures with attacks.
"""

from leakgauge.core.lazy import attach

_PLACES = {
    "Correlation": "correlation",
    "InformationBounds": "kernel_information",
    "Sensitivity": "sensitivity",
    "direction_sensitivity": "sensitivity",
    "information_bounds": "kernel_information",
    "LayersRebuilt": "reconstruction",
    "gradient_of_other": "observation",
    "jacobian_sensitivity": "sensitivity",
    "layer_outputs": "representations",
    "partial_correlation": "correlation",
    "pearson": "correlation",
    "rebuild_from_layers": "reconstruction",
    "significance": "correlation",
    "v_information": "information",
}

__getattr__, __dir__, __all__ = attach(
    __name__, {name: f"{__name__}.{place}" for name, place in _PLACES.items()}
)
