"""Where in the network does it leak? Measures by layer (Mo et al., 2021).

The sensitivity of a layer's gradients to the label and to a property, the information that a
layer's output keeps of the input, and the correlation of such measures with attacks.
"""

from leakgauge.core.lazy import attach

_PLACES = {
    "Sensitivity": "sensitivity",
    "direction_sensitivity": "sensitivity",
    "jacobian_sensitivity": "sensitivity",
}

__getattr__, __dir__, __all__ = attach(
    __name__, {name: f"{__name__}.{place}" for name, place in _PLACES.items()}
)
