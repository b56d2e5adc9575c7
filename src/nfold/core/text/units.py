"""Numbers with the unit that a person would pick. One place, so that every table and sentence reads alike."""

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
_RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "KB/s"), (1.0, "B/s"))
_LINKS = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))
_MINUTE, _HOUR = 60, 3600
_LONG = ((86400.0, "days"), (3600.0, "h"), (60.0, "min"))


def seconds(value_s: float) -> str:
    """Format a duration in the unit that a person would pick: `0.0412` -> `41.2 ms`."""
    return _scaled(value_s, _SECONDS)


def duration(value_s: float) -> str:
    """`7560` -> `2.10 h`; less than two minutes as `seconds` does."""
    factor, unit = next((pair for pair in _LONG if value_s >= 2 * pair[0]), (0.0, ""))
    return f"{figure(value_s / factor)} {unit}" if factor else seconds(value_s)


def size(num_bytes: float) -> str:
    """Format bytes in powers of two: `3_500_000` -> `3.34 MiB`."""
    return _scaled(num_bytes, _BYTES)


def rate(bytes_per_s: float) -> str:
    """Format bytes per second in powers of ten: `1.2e9` -> `1.20 GB/s`."""
    return _scaled(bytes_per_s, _RATES)


def link_rate(bytes_per_s: float) -> str:
    """Format bytes per second as bits, as links are sold: `11.75e6` -> `94 Mbit/s`. Two digits, as measured."""
    bits = 8 * bytes_per_s
    factor, unit = next((pair for pair in _LINKS if bits >= 0.9995 * pair[0]), _LINKS[-1])
    amount = bits / factor
    return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.2g} {unit}"


def percent(share: float) -> str:
    """Format a share: `0.784` -> `78 %`."""
    return f"{100 * share:.0f} %"


def signed_percent(share: float) -> str:
    """Format a change with its sign: `0.05` -> `+5 %`."""
    return f"{100 * share:+.0f} %"


def clock(value_s: float) -> str:
    """Format seconds as minutes and seconds: `74` -> `1:14`."""
    whole = max(0, round(value_s))
    if whole >= _HOUR:
        return f"{whole // _HOUR}:{whole % _HOUR // _MINUTE:02d}:{whole % _MINUTE:02d}"
    return f"{whole // _MINUTE}:{whole % _MINUTE:02d}"


def figure(value: float) -> str:
    """Format a number with three significant digits, without an exponent from one to a billion."""
    magnitude = abs(value)
    if magnitude >= 1e9:
        return f"{value:.3g}"
    if magnitude >= 100:
        return f"{value:.0f}"
    if magnitude >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if magnitude >= 1 or value == 0 else f"{value:.3g}"


def count(number: float, noun: str) -> str:
    """Format a number with its noun: `(2, "core")` -> `2 cores`."""
    text = f"{number}" if isinstance(number, int) else f"{number:g}"
    return f"{text} {noun}" + ("" if number == 1 else "s")


def _scaled(value: float, scales: tuple[tuple[float, str], ...]) -> str:
    if value == 0:
        return f"0 {scales[0][1] if scales is _SECONDS else scales[-1][1]}"
    factor, unit = next((pair for pair in scales if abs(value) >= pair[0]), scales[-1])
    amount = value / factor
    return f"{amount:.0f} {unit}" if factor == 1 and unit == "B" else f"{figure(amount)} {unit}"
