"""What is asked and how it is answered: the one place that knows a subject."""

import importlib
from typing import Any

from trl_prism.domains.base import Domain, MalformedQuestion, Problem
from trl_prism.errors import PrismError


__all__ = ["Domain", "MalformedQuestion", "Problem", "load_domain"]

_BUILT_IN = {"maths": "trl_prism.domains.maths:Maths"}


def load_domain(name: str, **kwargs: Any) -> Domain:
    """The domain of a recipe: a built-in name (`maths`) or an import path `package.module:Class`.

    Raises:
        PrismError: if there is no such domain, or it does not accept the arguments.
    """
    path = _BUILT_IN.get(name, name)
    module_name, _, class_name = path.partition(":")
    if not class_name or not module_name:
        raise PrismError(
            f"`domain` is {name!r}; it must be one of {', '.join(_BUILT_IN)} or an import path 'package.module:Class'."
        )
    try:
        factory = getattr(importlib.import_module(module_name), class_name)
        if not (isinstance(factory, type) and issubclass(factory, Domain)):
            raise PrismError(f"`domain` is {name!r}, which is no subclass of trl_prism.domains.Domain.")
        return factory(**kwargs)
    except (ImportError, AttributeError) as error:
        raise PrismError(f"`domain` is {name!r}, which cannot be imported: {error}.") from error
    except TypeError as error:
        raise PrismError(f"`domain_kwargs` do not fit the domain {name!r}: {error}.") from error
