"""Small wheels made here, so that environments are made without a network."""

import zipfile
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str], requires: str = "") -> None:
    """Write a wheel.

    Args:
        folder: that `pip --find-links` is given.
        name: of the distribution.
        version: of it.
        files: text by path in site-packages.
        requires: a requirement of it; empty: none.
    """
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    written = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*written, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in (written | {f"{info}/RECORD": record}).items():
            wheel.writestr(path, text)
