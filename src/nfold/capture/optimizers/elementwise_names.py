"""Names by which code computes on a weight element by element, and those by which it asks for the whole of one."""

_ELEMENTS = """
    abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bernoulli bfloat16 bool ceil clamp
    clamp_max clamp_min clip clone conj contiguous copy copysign cos cosh cpu cuda detach div divide double
    empty_like eq erf erfc exp exp2 expm1 fill float floor floor_divide fmax fmin fmod frac full_like ge gt
    half heaviside hypot int is_complex is_contiguous is_floating_point is_grad_enabled is_same_size
    is_tensor isfinite isinf isnan item ldexp le lerp log log10 log1p log2 logical_and logical_not
    logical_or logical_xor long lt masked_fill maximum minimum mul multiply nan_to_num ne neg negative
    ones_like polar pow rand_like randn_like reciprocal relu remainder requires_grad round rsqrt sgn sigmoid
    sign signbit sin sinh softplus sqrt square sub subtract tan tanh tensor to true_divide trunc type_as
    view_as_real where zero zeros_like
"""
OF_ELEMENTS = frozenset(_ELEMENTS.split())
"""Functions and methods of torch, without the `_` of those in place and the `_foreach_` of those over lists."""

_MODES = """
    append clear enable_grad extend format get inference_mode is_compiling items keys no_grad pop
    set_grad_enabled setdefault update values warn warning
"""
OF_MODES = frozenset(_MODES.split())
"""Methods of containers, of torch's modes and of loggers."""

_PYTHON = """
    abs bool dict divmod enumerate float id int isinstance issubclass iter len list max min next print range
    repr reversed round set str super tuple type zip
"""
OF_PYTHON = frozenset(_PYTHON.split())
"""Functions of Python's own that compute nothing with all elements of a tensor."""

OF_SYSTEM = frozenset(["logging", "os", "signal", "sys", "threading", "time", "warnings"])
"""Modules of Python's whose functions look at no tensor."""

OF_WHOLES = frozenset(["H", "T", "mH", "mT", "nbytes", "ndim", "shape"])
"""Attributes of a tensor that a piece of it has otherwise."""
