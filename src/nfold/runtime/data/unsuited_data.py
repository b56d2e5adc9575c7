"""Says what to hand over instead of a DataLoader, an iterable dataset, or what data are made of."""

from typing import Any

from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)


def what_to_hand_over(data: Any, what: str) -> str:
    """Return what data are that cannot be read by index, and what to give instead; empty if they can."""
    if isinstance(data, DataLoader):
        return _instead_of_loader(data, what)
    if isinstance(data, IterableDataset):
        return (
            f"{type(data).__name__}, an IterableDataset: its samples have no index, by which ranks share them out. "
            f"Hand over a dataset with len() and []: {what}=lambda: list(dataset) if it fits into memory, or one whose "
            "__getitem__ reads the record of an index."
        )
    if isinstance(data, tuple) and data and all(hasattr(each, "shape") for each in data):
        given = ", ".join("torch.as_tensor(..)" for _ in data)
        return (
            f"a tuple of {len(data)} arrays, which has {len(data)} items and not their rows. "
            f"Hand over {what}=lambda: torch.utils.data.TensorDataset({given})."
        )
    if isinstance(data, str | bytes):
        return f"the text {data!r}. Hand over a dataset that reads what it names."
    return ""


def _instead_of_loader(loader: Any, what: str) -> str:
    if isinstance(loader.dataset, IterableDataset):
        given = [f"{what}=lambda: list(dataset), since its {type(loader.dataset).__name__} has no indices"]
    else:
        given = [f"{what}=lambda: dataset (its {type(loader.dataset).__name__})"]
    if what == "train_data":
        size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        given.append(f"batch_size={size}" if size else "batch_size=..")
        given += _order_of(loader, size)
    if loader.collate_fn is not default_collate and loader.batch_size is not None:
        name = getattr(loader.collate_fn, "__name__", type(loader.collate_fn).__name__)
        given.append(f"collate={name if name.isidentifier() else 'your collate_fn'}")
    if what == "train_data" and loader.num_workers:
        given.append(f"loaders={loader.num_workers}")
    return (
        "a DataLoader. Batches, their order and their reading are for nfold to make, the same on any number of ranks. "
        f"Hand over what it is made of: {', '.join(given)}."
    )


def _order_of(loader: Any, size: int | None) -> list[str]:
    """Return the sampler that visits samples as a loader does, if it is not each once, shuffled."""
    sampler, form = loader.sampler, "sampler=lambda dataset, epoch, generator: "
    if isinstance(loader.dataset, IterableDataset) or isinstance(sampler, SequentialSampler):
        return [form + "range(len(dataset))"] if loader.batch_size is not None else [form + ".."]
    if isinstance(sampler, WeightedRandomSampler):
        arguments = f"weights, {sampler.num_samples}, replacement={sampler.replacement}, generator=generator"
        return [f"{form}torch.multinomial({arguments})"]
    if isinstance(sampler, SubsetRandomSampler):
        return [f"{form}[indices[place] for place in torch.randperm(len(indices), generator=generator).tolist()]"]
    if not isinstance(sampler, RandomSampler):
        return [] if "Distributed" in type(sampler).__name__ else [f"{form}list({type(sampler).__name__}(..))"]
    if sampler.replacement:
        return [f"{form}torch.randint(len(dataset), ({sampler.num_samples},), generator=generator)"]
    if loader.drop_last and size:
        return [f"{form}torch.randperm(len(dataset), generator=generator)[: len(dataset) // {size} * {size}]"]
    return []
