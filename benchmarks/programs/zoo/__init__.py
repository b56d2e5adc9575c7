"""Small nets in float64, one for each style in which nets are written, whose training must not depend on the ranks."""

from programs.zoo import convolutional, sequences, structures, style
from programs.zoo.style import Style
from torch.nn.functional import mse_loss

__all__ = ["ZOO", "Style"]

ZOO = {
    # Convolutions
    "plain": Style(model=convolutional.Plain),
    "residual": Style(model=convolutional.Residual),
    "dense": Style(model=convolutional.Dense, optimizer=style.adam),
    "inception": Style(model=convolutional.Inception, draws=True),
    "mobile": Style(model=convolutional.Mobile, optimizer=style.adamw),
    "squeeze": Style(model=convolutional.Squeeze),
    "shuffle": Style(model=convolutional.Shuffle),
    "two-towers": Style(model=convolutional.TwoTowers, draws=True),
    "unet": Style(model=convolutional.UNet, data=style.labelled_pixels, draws=True, optimizer=style.adam),
    "grouped": Style(model=convolutional.Grouped, optimizer=style.adamw),
    "stochastic": Style(model=convolutional.Stochastic, draws=True),
    # Words and attention
    "vit": Style(model=sequences.VisionTransformer, optimizer=style.adamw),
    "gpt": Style(model=sequences.GPT, data=style.next_words, loss=style.word_loss, draws=True, optimizer=style.adamw),
    "encoder": Style(model=sequences.Encoder, data=style.sentences, draws=True, optimizer=style.adam),
    "lstm": Style(model=sequences.LSTM, data=style.sentences, draws=True),
    "gru": Style(model=sequences.GRU, data=style.next_words, loss=style.word_loss, optimizer=style.adam),
    "text-cnn": Style(model=sequences.TextConvolution, data=style.sentences),
    "pooling": Style(model=sequences.AttentionPooling, data=style.sentences, optimizer=style.adam),
    "mixer": Style(model=sequences.Mixer, optimizer=style.adamw),
    # Arrangements
    "tied": Style(model=structures.TiedAutoencoder, data=style.themselves, loss=mse_loss, optimizer=style.adam),
    "variational": Style(
        model=structures.Variational, data=style.themselves, loss=structures.variational_loss, draws=True
    ),
    "repeated": Style(model=structures.Repeated),
    "frozen": Style(model=structures.Frozen, optimizer=style.adamw),
    "siamese": Style(model=structures.Siamese, data=style.pairs, loss=mse_loss),
    "wide-deep": Style(model=structures.WideAndDeep, data=style.rows, loss=structures.two_losses, optimizer=style.adam),
    "weight-norm": Style(model=structures.WeightNormed),
    "highway": Style(model=structures.Highway, optimizer=style.adamw),
    "experts": Style(model=structures.Experts, optimizer=style.adam),
    "scaled": Style(model=structures.Scaled, optimizer=style.adam),
    "integers": Style(
        model=structures.Integers,
        data=style.whole_numbers,
        loss=structures.weighted_sum,
        optimizer=style.halving,
        batch_size=32,
        tolerance=0.0,
    ),
    "unused": Style(model=structures.Unused, optimizer=style.adamw),
}
