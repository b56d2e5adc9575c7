"""Nets for words, and attention over parts of a picture."""

import torch
from programs.zoo.style import CLASSES, LENGTH, WORDS
from torch import nn
from torch.nn import functional as F

WIDTH = 8


class Block(nn.Module):
    """A transformer's block: attention of two heads, then a perceptron."""

    def __init__(self, *, causal: bool, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH), nn.Dropout(dropout) if dropout else nn.Identity()
        )
        self.causal, self.dropout = causal, dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.size()
        q, k, v = self.mix(self.norm1(x)).split(width, dim=2)
        q = q.view(batch, length, 2, width // 2).transpose(1, 2)
        k = k.view(batch, length, 2, width // 2).transpose(1, 2)
        v = v.view(batch, length, 2, width // 2).transpose(1, 2)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.causal)
        x = x + self.project(y.transpose(1, 2).contiguous().view(batch, length, width))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Patches of a picture, a token for the class, learnt positions."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(2, WIDTH, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, 5, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block(causal=False, dropout=0.0) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape[-1] == 8, "positions were made for pictures of 8 x 8"
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class GPT(nn.Module):
    """A language model whose last layer is its first one's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block(causal=True, dropout=0.1) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.words(words) + self.positions(torch.arange(words.size(1), device=words.device)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Encoder(nn.Module):
    """torch's own encoder layer, and a mean over words that are not padding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        real = (words != 0).unsqueeze(-1)
        x = self.encoder(self.words(words)) * real
        return self.head(x.sum(1) / real.sum(1).clamp(min=1))


class LSTM(nn.Module):
    """Both directions, two layers, dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 6)
        self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, dropout=0.2, batch_first=True)
        self.head = nn.Linear(10, CLASSES)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        outputs, (hidden, _) = self.lstm(self.words(words))
        return self.head(outputs[:, -1] + torch.cat([hidden[-2], hidden[-1]], dim=1))


class GRU(nn.Module):
    """A loop over words with a cell, and a module beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell = nn.Embedding(WORDS, 6), nn.GRUCell(6, 7)
        self.gru, self.head = nn.GRU(7, 5, batch_first=True), nn.Linear(5, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        hidden = x.new_zeros(x.size(0), 7)
        states = []
        for step in range(LENGTH):
            hidden = self.cell(x[:, step], hidden)
            states.append(hidden)
        return self.head(self.gru(torch.stack(states, dim=1))[0])


class TextConvolution(nn.Module):
    """Windows of several widths over words, the strongest of each kept."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 6)
        self.windows = nn.ModuleList(nn.Conv1d(6, 4, width) for width in (2, 3, 4))
        self.head = nn.Linear(12, CLASSES)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words).transpose(1, 2)
        return self.head(torch.cat([F.relu(window(x)).max(dim=2)[0] for window in self.windows], 1))


class AttentionPooling(nn.Module):
    """A learnt question asked of all words; torch's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.query = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.score, self.head = nn.Linear(WIDTH, 1), nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        asked, _ = self.attention(self.query.expand(x.size(0), 1, WIDTH), x, x, need_weights=False)
        weights = torch.softmax(self.score(x).squeeze(-1), dim=-1)
        return self.head(torch.cat([asked.squeeze(1), torch.einsum("bt,btd->bd", weights, x)], dim=-1))


class Mixer(nn.Module):
    """Perceptrons over patches and over channels in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(2, WIDTH, 2, stride=2)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        self.tokens = nn.ModuleList(nn.Sequential(nn.Linear(16, 8), nn.GELU(), nn.Linear(8, 16)) for _ in range(2))
        self.channels = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(2))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).mT
        for index, (tokens, channels) in enumerate(zip(self.tokens, self.channels, strict=True)):
            x = x + tokens(self.norms[2 * index](x).mT).mT
            x = x + channels(self.norms[2 * index + 1](x))
        return self.head(x.mean(dim=1))
