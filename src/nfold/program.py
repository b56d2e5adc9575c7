"""Program: all that a user must write, and how it is found in a script.

A program says what runs on one device. It is never pickled: every worker imports the user's script by its path and
calls the function that returns the Program. torch is imported by the user's script, not by this module.
"""

import contextlib
import importlib.util
import inspect
import itertools
import math
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nfold.core.options.averages import Averages, check_averages
from nfold.core.options.whole import whole
from nfold.errors import NfoldError, ProgramError, one_line
from nfold.node_data import LocalData

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import Dataset

DEFAULT_FUNCTION = "program"
TEST_LOSS = "test_loss"
"""What an evaluation calls the loss on the test data."""
_RESERVED = (TEST_LOSS, "loss", "step", "epoch", "metrics", "at_s")
"""Names of what is kept and shown beside the metrics."""
LEAST_SEED, GREATEST_SEED = -(1 << 63), (1 << 64) - 1

_FORMS = {
    "model": "lambda: Net()",
    "loss": "torch.nn.functional.cross_entropy",
    "optimizer": "lambda parameters: torch.optim.SGD(parameters, lr=0.1)",
    "scheduler": "lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 30)",
    "train_data": "lambda: dataset",
    "test_data": "lambda: dataset",
    "collate": "lambda items: (inputs, targets)",
    "sampler": "lambda dataset, epoch, generator: torch.randperm(len(dataset), generator=generator)",
}
_OPTIONAL = ("scheduler", "test_data", "collate", "sampler")
"""What a field that must be a function may look like."""

_OWN = str(Path(__file__).parent) + os.sep
_loading: ContextVar[str] = ContextVar("nfold_loading", default="")
"""The script that is being imported, while it is."""
_arguments = threading.RLock()
"""Held while sys.argv is a script's: ranks may be threads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What a user trains on one device.

    Raises:
        ProgramError: (also a ValueError) a field makes no sense.
    """

    model: "Callable[[], nn.Module]"
    """Builds a new module. Called several times per rank (to check, to time and to train), each time after seeding, so
    it must build the same weights each time. Its forward takes one argument, the inputs of a batch."""
    loss: "Callable[[Any, Any], torch.Tensor]"
    """(outputs, targets) -> scalar: the mean over the samples that it is given."""
    optimizer: "Callable[[Any], torch.optim.Optimizer]"
    """Called with a list of parameters; if its argument is called `named_parameters`, with (name, parameter) pairs, so
    that groups can follow names. A rank may own parts of some parameters only, so it is called with those."""
    train_data: "Callable[[], Dataset[Any]]"
    """Builds a map-style dataset of (input, target). Either may be a tensor, a number, or a tuple or dict of them, and
    is joined part by part: items ((a, b), target) reach the model as `model((a, b))`."""
    batch_size: int
    """Samples of one optimizer step, over all workers."""
    epochs: int = 1
    seed: int = 0
    test_data: "Callable[[], Dataset[Any]] | None" = None
    metrics: "Mapping[str, Callable[[Any, Any], Any]]" = field(default_factory=dict)
    """name -> (outputs, targets) -> mean over the samples that it is given. Sums are refused, and so are the names of
    nfold's own figures: `test_loss`, `loss`, `step`, `epoch`."""
    scheduler: "Callable[[torch.optim.Optimizer], LRScheduler] | None" = None
    """Builds a schedule of torch.optim.lr_scheduler; it is stepped after each step of the optimizer."""
    clip_norm: float | None = None
    """Before each update the gradients of all trained parameters are scaled so that their norm, taken together, is at
    most this, as by torch.nn.utils.clip_grad_norm_."""
    autocast: str | None = None
    """Type in which forward and loss compute where torch.autocast finds it safe: "bfloat16". Weights keep their own."""
    chunks: int | None = None
    """Equal cuts of a batch. None: the planner chooses, and the choice is kept for the job."""
    collate: "Callable[[list[Any]], tuple[Any, Any]] | None" = None
    """(items) -> (inputs, targets), as a DataLoader's collate_fn: pads, tokenizes, masks. Each chunk is joined by
    itself, so nothing may depend on how far it is padded. None: items are joined part by part."""
    sampler: "Callable[[Any, int, torch.Generator], Any] | None" = None
    """(dataset, epoch, generator) -> the indices that an epoch visits, as many in each epoch. None: every sample once,
    shuffled. It draws from the generator, which is seeded by the program's seed and the epoch."""
    loaders: int = 0
    """Processes beside each rank that read and join samples ahead of their use, so that decoding does not hold up the
    step; 0: a thread of the rank does. They change no result. Each imports the script and builds the data anew."""
    keywords: bool | None = None
    """Whether a dict of inputs is given to the model as `model(**inputs)`. None: where forward names all its keys, and
    takes more than one argument."""
    averages: Averages | None = None
    """Averages of the weights that are kept, evaluated and saved beside them."""

    def __post_init__(self) -> None:
        for name, form in _FORMS.items():
            value = getattr(self, name)
            is_left_out = value is None and name in _OPTIONAL
            if name == "sampler":
                _refuse_torch_sampler(value)
            if not (is_left_out or callable(value)) or (name == "model" and _is_module(value)):
                raise ProgramError(
                    f"Program({name}=...) must be a function, got {one_line(repr(value))}. Give one that builds "
                    f"or computes it, as {name}={form}."
                )
        if isinstance(self.test_data, LocalData):
            raise ProgramError(
                "Program(test_data=nfold.local_data(...)): each node would evaluate other data. Give what all nodes "
                "can read: test_data=lambda: dataset."
            )
        _check_loss(self.loss)
        if self.keywords not in (None, True, False):
            raise ProgramError(f"Program(keywords={one_line(repr(self.keywords))}): it must be True, False or left out")
        for name in ("batch_size", "epochs", "chunks"):
            value = getattr(self, name)
            if value is None and name == "chunks":
                continue
            number = whole(value)
            if number is None or number < 1:
                raise ProgramError(f"Program({name}={value!r}): it must be a whole number of at least 1")
            object.__setattr__(self, name, number)
        object.__setattr__(self, "loaders", _checked_loaders(self.loaders))
        _check_metrics(self.metrics)
        check_averages(self.averages, self.metrics)
        object.__setattr__(self, "seed", checked_seed(self.seed, f"Program(seed={self.seed!r})", ProgramError))
        if self.autocast not in (None, "bfloat16"):
            raise ProgramError(
                f"Program(autocast={self.autocast!r}): it must be 'bfloat16', or left out. "
                "float16 would need its gradients scaled, which nfold does not do."
            )
        if self.clip_norm is not None and not _is_positive(self.clip_norm):
            raise ProgramError(
                f"Program(clip_norm={self.clip_norm!r}): it must be a number above 0, the largest norm that the "
                "gradients may have together. Leave it out to clip nothing."
            )
        if self.chunks is not None and self.chunks > self.batch_size:
            raise ProgramError(
                f"a batch of {self.batch_size} samples cannot be cut into {self.chunks} chunks. "
                f"Use chunks={self.batch_size} or fewer."
            )


def _checked_loaders(value: object) -> int:
    number = whole(value)
    if number is None or number < 0:
        raise ProgramError(f"Program(loaders={value!r}): it must be a whole number, 0 or more")
    return number


def _is_module(value: object) -> bool:
    """Whether this is a module itself, which can be called, too; one of Python would need torch to be told."""
    return not isinstance(value, type) and hasattr(value, "forward") and hasattr(value, "named_parameters")


def _refuse_torch_sampler(value: Any) -> None:
    """Refuse torch's own samplers, which say neither epoch nor seed."""
    kind = value if isinstance(value, type) else type(value)
    if not any(each.__module__ == "torch.utils.data.sampler" or each.__name__ == "Sampler" for each in kind.__mro__):
        return
    if "Distributed" in kind.__name__:
        raise ProgramError(
            f"Program(sampler={kind.__name__}): leave it out. nfold shares out the samples of an epoch among ranks."
        )
    raise ProgramError(
        f"Program(sampler=...) must be a function of (dataset, epoch, generator), got {kind.__name__}. Make it there: "
        f"sampler=lambda dataset, epoch, generator: list({kind.__name__}(..., generator=generator)), with the "
        "arguments that you give it, without generator if it takes none."
    )


def _check_metrics(metrics: object) -> None:
    found = metrics.items() if isinstance(metrics, Mapping) else [("", metrics)]
    for name, metric in found:
        if not (isinstance(name, str) and name.isprintable() and name and callable(metric)):
            raise ProgramError(
                "Program(metrics=...) must be a dict of names and functions, as {'accuracy': accuracy}, "
                f"got {one_line(repr(metrics))}"
            )
        if name in _RESERVED:
            own = " It holds the loss on the test data in each evaluation anyway." if name == TEST_LOSS else ""
            raise ProgramError(
                f"Program(metrics={{{name!r}: ...}}): nfold keeps its own figure under that name.{own} Give the metric "
                f"another name. Taken are: {', '.join(_RESERVED)}."
            )


def checked_seed(seed: object, what: str, kind: type[NfoldError]) -> int:
    """Return a seed that torch's generators take.

    Raises:
        NfoldError: of the given kind, calling it `what`: it is another.
    """
    number = whole(seed)
    if number is None or not LEAST_SEED <= number <= GREATEST_SEED:
        raise kind(f"{what}: it must be a whole number from -2^63 to 2^64 - 1, which is what torch's generators take")
    return number


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramSource:
    """Where a program is written: a script and the function in it."""

    path: Path
    function: str = DEFAULT_FUNCTION

    @classmethod
    def parse(cls, text: str, function: str = DEFAULT_FUNCTION) -> "ProgramSource":
        """Read `FILE.py` or `FILE.py:function`.

        Args:
            text: what was typed.
            function: is meant where none is named.

        Raises:
            ProgramError: there is no such file.
        """
        name, _, named = text.rpartition(":")
        if not (name and named) or named.endswith(".py") or os.sep in named:
            name, named = text, function
        path = Path(os.path.expanduser(name))  # Path.expanduser raises for a user that does not exist
        if not os.path.isfile(path):  # of Path, this raises for a long name
            what = "is a folder" if os.path.isdir(path) else "does not exist"
            raise ProgramError(f"the script {name} {what}. Give the path of a Python file: nfold train FILE.py")
        return cls(path=path.resolve(), function=named)

    @classmethod
    def of(cls, function: Callable[[], Program]) -> "ProgramSource":
        """Find the script of a function that returns a Program.

        Raises:
            ProgramError: workers could not find it again (a lambda, a nested function, one typed at a prompt).
        """
        file = inspect.getsourcefile(function) if inspect.isfunction(function) else None
        name = getattr(function, "__qualname__", repr(function))
        if file is None or not Path(file).is_file() or not name.isidentifier():
            raise ProgramError(
                f"workers must find the program by importing its script, but {name} is not a "
                "top-level function of a file. Put it there, or pass the script's path."
            )
        return cls(path=Path(file).resolve(), function=name)

    def __str__(self) -> str:
        return f"{self.path}:{self.function}"

    @property
    def short(self) -> str:
        """The shortest text that names the program on a command line, without a function that is the default."""
        return str(self.path) if self.function == DEFAULT_FUNCTION else str(self)

    def load(self) -> Program:
        """Import the script and call the function.

        Raises:
            ProgramError: the script has no such function, it raised, or it returned something else.
        """
        with _marked_as_loading(self.path), _own_arguments(self.path):
            return self._load()

    def _load(self) -> Program:
        module = _import(self.path)
        function = getattr(module, self.function, None)
        if not callable(function):
            raise ProgramError(
                f"{self.path} has no function {self.function!r}. Define `def {self.function}() -> nfold.Program:`, "
                f"or name another one: {self.path.name}:FUNCTION"
            )
        try:
            program = function()
        except ProgramError:
            raise
        except (Exception, SystemExit) as error:
            raise ProgramError(f"{self.function}() raised {describe(error, self.path)}") from error
        if not isinstance(program, Program):
            raise ProgramError(
                f"{self.function}() in {self.path} must return nfold.Program, got {one_line(repr(program))}"
            )
        return program


def _check_loss(loss: Any) -> None:
    """Refuse a loss that is yet to be built, or whose own parameters nobody would train."""
    if isinstance(loss, type) and hasattr(loss, "forward"):
        raise ProgramError(f"Program(loss={loss.__name__}) is a class. Give one that is built: loss={loss.__name__}().")
    named = loss.named_parameters() if _is_module(loss) else ()
    trained = [name for name, parameter in named if parameter.requires_grad]
    if trained:
        raise ProgramError(
            f"Program(loss={type(loss).__name__}()) has parameters of its own ({', '.join(trained[:3])}), and only the "
            "model's are trained. Make them the model's, which may return all that the loss needs, or freeze them with "
            "requires_grad_(False)."
        )


def refuse_while_loading(verb: str) -> None:
    """Refuse to start a job from a script that is imported for one: every rank would start a job, and so on.

    Raises:
        ProgramError: a script is being imported.
    """
    if _loading.get():
        raise ProgramError(
            f"nfold.{verb} was called while {_loading.get()} was imported to find its program. "
            'Put the call under `if __name__ == "__main__":`'
        )


def describe(error: BaseException, script: Path | None = None) -> str:
    """Return `Kind: message (file, line n: code)` of the user's own innermost frame."""
    text = one_line(str(error))
    summary = f"{type(error).__name__}: {text}" if text else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if script and Path(frame.filename).resolve() == script] or [
        frame for frame in frames if not is_library(frame.filename)
    ]
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    if not own:
        return summary
    return f"{summary} ({own[-1].filename}, line {own[-1].lineno}: {own[-1].line})"


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def is_library(filename: str) -> bool:
    """Whether a file belongs to Python, to an installed package or to nfold, and not to the user."""
    if filename.startswith(("<", sys.prefix, sys.base_prefix, _OWN)):
        return True
    return "site-packages" in filename.split(os.sep)


@contextlib.contextmanager
def _marked_as_loading(path: Path) -> Iterator[None]:
    token = _loading.set(str(path))
    try:
        yield
    finally:
        _loading.reset(token)


@contextlib.contextmanager
def _own_arguments(path: Path) -> Iterator[None]:
    """Let a script that reads its command line see its own name and nothing of what started nfold."""
    with _arguments:
        before, sys.argv = sys.argv, [str(path)]
        try:
            yield
        finally:
            sys.argv = before


def _import(path: Path) -> ModuleType:
    """Import a script as `python FILE.py` would, or, where it is in a package, as `python -m` would."""
    packages = _packages(path)
    name = ".".join([*packages, f"nfold_program_{path.stem}"])
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise ProgramError(f"{path} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    _make_importable(path.parents[len(packages)], path.parent, Path.cwd())
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ProgramError(f"importing {path} raised {describe(error, path)}") from error
    return module


def _packages(path: Path) -> list[str]:
    """Return the names of the packages, one in the other, that a file is in."""
    folders = itertools.takewhile(lambda folder: (folder / "__init__.py").is_file(), path.parents)
    return [folder.name for folder in folders][::-1]


def _make_importable(first: Path, *others: Path) -> None:
    """Let a script import what is in one folder before all else, and what is in others if it is nowhere else."""
    if str(first) not in sys.path:
        sys.path.insert(0, str(first))
    sys.path.extend(str(other) for other in dict.fromkeys(others) if str(other) not in sys.path)
