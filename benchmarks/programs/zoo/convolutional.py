"""Nets of convolutions for pictures of 2 x 8 x 8."""

import torch
from programs.zoo.style import CLASSES
from torch import nn
from torch.nn import functional as F


def conv(inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return a convolution with batch norm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Plain(nn.Module):
    """Convolutions, pooling, a classifier with dropout left out."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3, padding=1),
            nn.ReLU(inplace=True),
        )
        self.classifier = nn.Sequential(nn.Linear(128, 16), nn.ReLU(inplace=True), nn.Linear(16, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.features(x), 1))


class Bottleneck(nn.Module):
    """A residual block with a projection where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(inputs, 4, 1), conv(4, 4, stride=stride), nn.Conv2d(4, outputs, 1, bias=False))
        self.norm = nn.BatchNorm2d(outputs)
        self.short: nn.Module = nn.Identity()
        if inputs != outputs or stride > 1:
            self.short = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs, momentum=None)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.norm(self.body(x))
        out += self.short(x)
        return F.relu(out, inplace=True)


class Residual(nn.Sequential):
    """A small ResNet of bottlenecks."""

    def __init__(self) -> None:
        super().__init__(
            conv(2, 6),
            Bottleneck(6, 8, stride=2),
            Bottleneck(8, 8),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, CLASSES),
        )


class Dense(nn.Module):
    """DenseNet: each layer sees all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(4 + 3 * depth), nn.ReLU(), nn.Conv2d(4 + 3 * depth, 3, 3, padding=1))
            for depth in range(3)
        )
        self.transition = nn.Sequential(nn.BatchNorm2d(13), nn.ReLU(), nn.Conv2d(13, 5, 1), nn.AvgPool2d(2))
        self.head = nn.Linear(80, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return self.head(self.transition(torch.cat(features, 1)).flatten(1))


class Inception(nn.Module):
    """Four branches side by side, joined by channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(2, 6)
        self.one, self.three = conv(6, 2, 1), nn.Sequential(conv(6, 3, 1), conv(3, 4))
        self.five, self.pooled = nn.Sequential(conv(6, 2, 1), conv(2, 3, 5)), conv(6, 2, 1)
        self.dropout, self.head = nn.Dropout(0.2), nn.Linear(11, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        pooled = self.pooled(F.max_pool2d(x, 3, stride=1, padding=1))
        x = torch.cat([self.one(x), self.three(x), self.five(x), pooled], dim=1)
        return self.head(self.dropout(x.mean((2, 3))))


class Inverted(nn.Module):
    """MobileNetV2's block: expand, depthwise, project, add."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.adds = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            nn.Conv2d(inputs, 12, 1, bias=False),
            nn.BatchNorm2d(12),
            nn.ReLU6(inplace=True),
            nn.Conv2d(12, 12, 3, stride, 1, groups=12, bias=False),
            nn.BatchNorm2d(12),
            nn.ReLU6(inplace=True),
            nn.Conv2d(12, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x) if self.adds else self.conv(x)


class Mobile(nn.Sequential):
    """Depthwise separable convolutions."""

    def __init__(self) -> None:
        super().__init__(
            conv(2, 6),
            Inverted(6, 6, 1),
            Inverted(6, 8, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, CLASSES),
        )


class Squeeze(nn.Module):
    """Squeeze and excite: channels weighed by what the whole picture shows."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(2, 8)
        self.squeeze, self.excite = nn.Conv2d(8, 3, 1), nn.Conv2d(3, 8, 1)
        self.body, self.head = conv(8, 8, stride=2), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        scale = F.adaptive_avg_pool2d(x, 1)
        scale = torch.sigmoid(self.excite(F.silu(self.squeeze(scale), inplace=True)))
        return self.head(self.body(x * scale).mean([2, 3]))


class Shuffle(nn.Module):
    """ShuffleNet's block: half of the channels pass, then all are shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.right = conv(2, 8), nn.Sequential(conv(4, 4, 1), conv(4, 4, groups=4), conv(4, 4, 1))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for _ in range(2):
            left, right = x.chunk(2, dim=1)
            x = torch.cat((left, self.right(right)), dim=1)
            batch, channels, height, width = x.size()
            x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).contiguous()
            x = x.view(batch, -1, height, width)
        return self.head(x.mean((-2, -1)))


class TwoTowers(nn.Module):
    """AlexNet as it was on two devices: groups that meet in one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.towers = nn.ModuleList(nn.Conv2d(2, 4, 3, padding=1) for _ in range(2))
        self.seconds = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.norm = nn.LocalResponseNorm(3)
        self.cross = nn.Conv2d(8, 8, 3, padding=1, groups=1)
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.classifier = nn.Sequential(
            nn.Dropout(0.5), nn.Linear(32, 16), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(16, CLASSES)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [F.max_pool2d(self.norm(F.relu(tower(x))), 2) for tower in self.towers]
        parts = [F.relu(second(part)) for second, part in zip(self.seconds, parts, strict=True)]
        x = F.relu(self.grouped(F.relu(self.cross(torch.cat(parts, 1)))))
        return self.classifier(torch.flatten(F.max_pool2d(x, 2), 1))


class UNet(nn.Module):
    """Dense prediction: skips from the way down to the way up."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = conv(2, 4), conv(4, 6)
        self.middle = nn.Sequential(conv(6, 8), nn.Dropout2d(0.1))
        self.up2, self.up1 = nn.ConvTranspose2d(8, 6, 2, stride=2), nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.join2, self.join1, self.out = conv(12, 6), conv(8, 4), nn.Conv2d(4, CLASSES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        x = self.middle(F.max_pool2d(second, 2))
        x = self.join2(torch.cat([self.up2(x), second], 1))
        return self.out(self.join1(torch.cat([F.interpolate(self.up1(x), size=first.shape[2:]), first], 1)))


class Grouped(nn.Sequential):
    """Group, instance and layer norms, which need no statistics of a batch."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(2, 6, 3, groups=2),
            nn.GroupNorm(2, 6),
            nn.SiLU(inplace=True),
            nn.Conv2d(6, 6, 3, groups=6),
            nn.InstanceNorm2d(6, affine=True),
            nn.ELU(),
            nn.Flatten(),
            nn.LayerNorm(96),
            nn.Linear(96, CLASSES),
        )


class Stochastic(nn.Module):
    """Stochastic depth: the branch of a sample is left out at random."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.blocks = conv(2, 6), nn.ModuleList(conv(6, 6) for _ in range(3))
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            keep = torch.rand(x.shape[0], 1, 1, 1, dtype=x.dtype) < 0.8
            x = x + block(x) * keep / 0.8
        return self.head(F.dropout(x.mean((2, 3)), 0.1, self.training))
