"""Networks of other people's kind: plain PyTorch, none of which is in lowtide's list but the first."""

from torch import nn
from torch.nn import functional


class ResidualBlock(nn.Module):
    """A block of lowtide's CIFAR ResNets, with its names."""

    def __init__(self, width_in, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.norm2 = nn.BatchNorm2d(width)
        if stride > 1:
            self.shortcut = nn.Conv2d(width_in, width, 1, stride, bias=False)
            self.shortcut_norm = nn.BatchNorm2d(width)

    def forward(self, x):
        residual = self.shortcut_norm(self.shortcut(x)) if hasattr(self, "shortcut") else x
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + residual)


class CifarResNet8(nn.Module):
    def __init__(self, channels=1, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(16)
        self.group1 = nn.ModuleList([ResidualBlock(16, 16, 1)])
        self.group2 = nn.ModuleList([ResidualBlock(16, 32, 2)])
        self.group3 = nn.ModuleList([ResidualBlock(32, 64, 2)])
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = functional.relu(self.norm1(self.conv1(x)))
        for group in (self.group1, self.group2, self.group3):
            x = group[0](x)
        return self.fc(self.mean(x))

    def mean(self, x):
        return x.mean((2, 3))
