"""What a model may not do if its run is to have the same bits again, told by its layers and its graph."""

from __future__ import annotations

import re
from typing import Any

import keras
from tensorflow.python.framework import op_def_registry

from trainbox.errors import UsageError

_RANDOM = re.compile("Random|Multinomial|TruncatedNormal|Stateful.*(Uniform|Normal)|^Rng|DistortedBoundingBox|Sampler$")
_REMEDY = "keep a keras.random.SeedGenerator as an attribute of the layer and pass it as seed="


def refuse_hidden_seeds(scope: keras.StatelessScope, known: set[int]) -> None:
    """Refuse a call that drew from a seed that is no variable of its model, which here would never move on.

    `known` are the ids of the model's variables; `scope` is that of the call.

    Raises:
        UsageError: it did, as `keras.random.normal(shape)` without `seed=` does.
    """
    hidden = [value for key, value in scope.state_mapping.items() if key not in known]
    if any(value.shape == (2,) and value.dtype.is_integer for value in hidden):
        raise UsageError(
            "the model draws random numbers from a seed that is not among its variables, so they would be the same in "
            f"every step; {_REMEDY}"
        )


def refuse_layers(model: keras.Model, *, option: str, manner: str = "") -> None:
    """Refuse layers that compute across replicas by themselves, which `option` does not let them do in this `manner`.

    Raises:
        UsageError: a BatchNormalization is synchronized.
    """
    for layer in model._flatten_layers():
        if getattr(layer, "synchronized", False):
            raise UsageError(
                f"{option} does not go with the layer {layer.name}, whose statistics are synchronized over the "
                f"replicas{manner}; build it with synchronized=False (each shard then has its own)"
            )


def refuse_random_operations(graph: Any) -> None:
    """Refuse random operations of TensorFlow that keep a state of their own, in the traced call of a model.

    Raises:
        UsageError: naming the first.
    """
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    for node in nodes:
        if _RANDOM.search(node.op) and op_def_registry.get(node.op).is_stateful:
            raise UsageError(
                f"--reproducible does not go with {node.op} (in {node.name}), which draws from a state that is not the "
                f"model's; use keras.random instead: {_REMEDY}"
            )
