"""Nets that nobody here wrote: models of the package transformers, small, with random weights, in float64.

Needs the extra `zoo`: pip install -e '.[zoo]'.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from programs.zoo import Style, style
from torch import nn
from torch.utils.data import Dataset, TensorDataset

WORDS, LENGTH, CLASSES = 31, 10, 4
_SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
_TEXT = {**_SIZES, "vocab_size": WORDS, "max_position_embeddings": 16, "pad_token_id": 0, "num_labels": CLASSES}
_QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_IMAGE = {**_SIZES, "image_size": 16, "patch_size": 8}


class Answers(nn.Module):
    """Asks a model for its logits: nfold's loss gets one output."""

    def __init__(self, model: nn.Module, **asked: Any) -> None:
        super().__init__()
        self.model, self.asked = model, asked

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x, **self.asked).logits


class Pooled(nn.Module):
    """A classifier on what a model without a head makes of its input."""

    def __init__(self, model: nn.Module, width: int) -> None:
        super().__init__()
        self.model, self.head = model, nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.model(x).last_hidden_state.mean(1))


class EncoderDecoder(nn.Module):
    """A T5 that is given the words on both sides."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=x, decoder_input_ids=x, use_cache=False).logits


class Masked(nn.Module):
    """A model that is given a mask of the words that count, as a dict."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: dict[str, torch.Tensor]) -> Any:
        return self.model(**batch)


def logits_loss(outputs: Any, targets: torch.Tensor) -> torch.Tensor:
    """Take the logits out of a model's own kind of output."""
    return nn.functional.cross_entropy(outputs.logits, targets)


def sentences() -> Dataset[Any]:
    """Return sentences with classes."""
    draw = torch.Generator().manual_seed(21)
    words = torch.randint(1, WORDS, (style.NUM_SAMPLES, LENGTH), generator=draw)
    return TensorDataset(words, torch.randint(CLASSES, (style.NUM_SAMPLES,), generator=draw))


class _MaskedSentences(Dataset[Any]):
    def __len__(self) -> int:
        return style.NUM_SAMPLES

    def __getitem__(self, index: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        words, label = sentences()[index]
        counts = torch.arange(LENGTH) < 4 + index % 5
        return {"input_ids": words * counts, "attention_mask": counts.long()}, label


def next_words() -> Dataset[Any]:
    """Return sentences with, for each word, the next one."""
    words = sentences()[:][0]
    return TensorDataset(words[:, :-1], words[:, 1:])


def images(size: int = 16) -> Dataset[Any]:
    """Return pictures with classes."""
    draw = torch.Generator().manual_seed(22)
    pictures = torch.randn(style.NUM_SAMPLES, 3, size, size, generator=draw, dtype=torch.float64)
    return TensorDataset(pictures, torch.randint(CLASSES, (style.NUM_SAMPLES,), generator=draw))


def pixels() -> Dataset[Any]:
    """Return pictures with a class for every fourth pixel in each direction."""
    pictures = images(32)[:][0]
    draw = torch.Generator().manual_seed(23)
    return TensorDataset(pictures, torch.randint(CLASSES, (style.NUM_SAMPLES, 8, 8), generator=draw))


def _text(config: str, model: str, wrap: Callable[[Any], nn.Module] = Answers, **changes: Any) -> nn.Module:
    chosen = getattr(transformers, config)(**{**_TEXT, **changes})
    return wrap(getattr(transformers, model)(chosen))


def _image(config: str, model: str, **changes: Any) -> nn.Module:
    return Answers(getattr(transformers, model)(getattr(transformers, config)(num_labels=CLASSES, **changes)))


def _classifier(name: str, **fields: Any) -> Style:
    changes = {**_QUIET, **fields.pop("changes", {})}
    make = partial(_text, f"{name}Config", f"{name}ForSequenceClassification", **changes)
    return Style(model=make, data=sentences, optimizer=style.adamw, **fields)


def _speaker(name: str, model: str, **changes: Any) -> Style:
    make = partial(_text, f"{name}Config", model, partial(Answers, use_cache=False), **changes)
    return Style(model=make, data=next_words, loss=style.word_loss, optimizer=style.adamw)


def _viewer(name: str, *, data: Callable[[], Dataset[Any]] = images, draws: bool = False, **changes: Any) -> Style:
    make = partial(_image, f"{name}Config", f"{name}ForImageClassification", **changes)
    return Style(model=make, data=data, optimizer=style.adam, draws=draws)


def _t5() -> nn.Module:
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, vocab_size=WORDS, dropout_rate=0.0
    )
    return EncoderDecoder(transformers.T5ForConditionalGeneration(config))


def _clip() -> nn.Module:
    return Pooled(transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**_IMAGE)), 16)


def _segformer() -> nn.Module:
    config = transformers.SegformerConfig(
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=8,
        num_labels=CLASSES,
        classifier_dropout_prob=0.0,
        drop_path_rate=0.0,
        **_QUIET,
    )
    return Answers(transformers.SegformerForSemanticSegmentation(config))


_FEW = {"num_key_value_heads": 1, "head_dim": 8}
_DEEP = {"embedding_size": 8, "hidden_sizes": [8, 12], "depths": [1, 1]}
_SWIN = {
    **_QUIET,
    "image_size": 16,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [2, 2],
    "num_heads": [1, 2],
    "window_size": 4,
    "drop_path_rate": 0.1,
}
_MOBILE = {"depth_multiplier": 0.25, "image_size": 32, "classifier_dropout_prob": 0.0}
_DISTILLED = {
    "dim": 16,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 24,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "seq_classif_dropout": 0.0,
}

FOREIGN: dict[str, Style] = {
    "BERT": _classifier("Bert"),
    "BERT, dropout": _classifier(
        "Bert", changes={"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}, draws=True
    ),
    "BERT, padded": Style(
        model=partial(_text, "BertConfig", "BertForSequenceClassification", Masked, **_QUIET),
        data=_MaskedSentences,
        loss=logits_loss,
        optimizer=style.adamw,
    ),
    "RoBERTa": _classifier("Roberta"),
    "ALBERT": _classifier("Albert", changes={"embedding_size": 8, "classifier_dropout_prob": 0.0}),
    "ELECTRA": _classifier("Electra", changes={"embedding_size": 8}),
    "DeBERTa-v2": _classifier("DebertaV2", changes={"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "DistilBERT": _classifier("DistilBert", changes=_DISTILLED),
    "GPT-2": _speaker(
        "GPT2", "GPT2LMHeadModel", n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    ),
    "OPT": _speaker("OPT", "OPTForCausalLM", ffn_dim=24, word_embed_proj_dim=16, dropout=0.0),
    "Llama": _speaker("Llama", "LlamaForCausalLM", **_FEW),
    "Qwen2": _speaker("Qwen2", "Qwen2ForCausalLM", **_FEW),
    "Mistral": _speaker("Mistral", "MistralForCausalLM", sliding_window=4, **_FEW),
    "Gemma": _speaker("Gemma", "GemmaForCausalLM", **_FEW),
    "GPT-NeoX": _speaker("GPTNeoX", "GPTNeoXForCausalLM"),
    "T5": Style(model=_t5, data=next_words, loss=style.word_loss, optimizer=style.adamw),
    "ViT": _viewer("ViT", **_IMAGE, **_QUIET),
    "DeiT": _viewer("DeiT", **_IMAGE, **_QUIET),
    "BEiT": _viewer("Beit", drop_path_rate=0.0, **_IMAGE, **_QUIET),
    "Swin": _viewer("Swin", draws=True, **_SWIN),
    "ConvNeXt": _viewer("ConvNext", patch_size=2, hidden_sizes=[8, 12], depths=[1, 1], num_stages=2),
    "ResNet": _viewer("ResNet", **_DEEP),
    "RegNet": _viewer("RegNet", groups_width=4, **_DEEP),
    "MobileNetV2": _viewer("MobileNetV2", data=partial(images, 64), **_MOBILE),
    "CLIP vision": Style(model=_clip, data=images, optimizer=style.adam),
    "SegFormer": Style(model=_segformer, data=pixels, optimizer=style.sgd),
}
