#!/usr/bin/env python3
"""Times a step of training in plain PyTorch, for the networks of Lowtide's recipes that have no trunk of convolutions:
fp32 (TF32 products allowed) and bf16 autocast, on drawn data of the recipes' sizes. It is what `lowtide bench step
--recipe ... --device cuda` is held against.

    python3 bench/pytorch_step.py [ptb-lstm wikitext2-transformer xnli-bert ogbn-arxiv-gcn]
"""
import argparse
import contextlib
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class LstmModel(nn.Module):
    def __init__(self, words=10000, units=800, share=0.5):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(words, units), nn.LSTM(units, units)
        self.dropout, self.decoder = nn.Dropout(share), nn.Linear(units, words)

    def forward(self, words, state):
        y, state = self.lstm(self.dropout(self.embedding(words)), state)
        return self.decoder(self.dropout(y)), tuple(s.detach() for s in state)


class TransformerModel(nn.Module):
    def __init__(self, words=33278, units=200, layers=2, heads=4, feed_forward=400, share=0.2, length=64):
        super().__init__()
        self.embedding = nn.Embedding(words, units)
        self.positions = nn.Parameter(torch.randn(length, units), requires_grad=False)
        layer = nn.TransformerEncoderLayer(units, heads, feed_forward, share, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(units), enable_nested_tensor=False)
        self.dropout, self.decoder = nn.Dropout(share), nn.Linear(units, words)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, words):
        x = self.dropout(self.embedding(words) + self.positions)
        return self.decoder(self.layers(x, mask=self.mask, is_causal=True))


class BertModel(nn.Module):
    def __init__(self, words=119547, units=768, layers=12, heads=12, feed_forward=3072, share=0.1, length=128):
        super().__init__()
        self.words, self.types = nn.Embedding(words, units), nn.Embedding(2, units)
        self.positions, self.norm = nn.Embedding(512, units), nn.LayerNorm(units)
        layer = nn.TransformerEncoderLayer(units, heads, feed_forward, share, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pooler, self.classifier, self.dropout = nn.Linear(units, units), nn.Linear(units, 3), nn.Dropout(share)
        self.register_buffer("places", torch.arange(length))

    def forward(self, words, types):
        x = self.words(words) + self.types(types) + self.positions(self.places)
        x = self.layers(self.dropout(self.norm(x)))
        return self.classifier(self.dropout(torch.tanh(self.pooler(x[:, 0]))))


class GcnModel(nn.Module):
    def __init__(self, adjacency, features=128, hidden=512, classes=40, share=0.2):
        super().__init__()
        self.adjacency, self.dropout = adjacency, nn.Dropout(share)
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in [(features, hidden), (hidden, hidden), (hidden, classes)])

    def gather(self, x):  # PyTorch multiplies sparse matrices in fp32 alone
        with torch.autocast("cuda", enabled=False):
            return self.adjacency @ x.float()

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            narrows = layer.in_features > layer.out_features
            x = self.gather(layer(x)) if narrows else layer(self.gather(x))
            if i + 1 < len(self.layers):
                x = F.relu(x)
                x = self.dropout((x - x.mean()) * torch.rsqrt(x.var(unbiased=False) + 1e-5))
        return x


def drawn_graph(nodes=169343, edges=2315598):
    """Both directions of ogbn-arxiv's 1,157,799 edges, ends drawn evenly, and a loop at every node."""
    ends = torch.cat([torch.randint(nodes, (2, edges)), torch.arange(nodes).expand(2, -1)], 1).cuda()
    return torch.sparse_coo_tensor(ends, torch.full((ends.shape[1],), 0.1).cuda(), (nodes, nodes)).coalesce().to_sparse_csr()


def ptb_lstm():
    model, words = LstmModel().cuda(), torch.randint(10000, (36, 20)).cuda()
    state = [tuple(torch.zeros(1, 20, 800).cuda() for _ in range(2))]

    def loss():
        scores, state[0] = model(words[:-1], tuple(s.float() for s in state[0]))
        return F.cross_entropy(scores.view(-1, 10000), words[1:].reshape(-1))

    return model, torch.optim.SGD(model.parameters(), 0.1), loss, 0.25


def wikitext2_transformer():
    model, words = TransformerModel().cuda(), torch.randint(33278, (20, 65)).cuda()
    loss = lambda: F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].reshape(-1))
    return model, torch.optim.Adam(model.parameters(), 1e-3, fused=True), loss, 0.25


def xnli_bert():
    model, words = BertModel().cuda(), torch.randint(119547, (64, 128)).cuda()
    types, labels = torch.randint(2, (64, 128)).cuda(), torch.randint(3, (64,)).cuda()
    return model, torch.optim.AdamW(model.parameters(), 1e-5, fused=True), lambda: F.cross_entropy(model(words, types), labels), 0


def ogbn_arxiv_gcn():
    model, x = GcnModel(drawn_graph()).cuda(), torch.randn(169343, 128).cuda()
    learnt, labels = torch.randperm(169343).cuda()[:90941], torch.randint(40, (90941,)).cuda()
    return model, torch.optim.Adam(model.parameters(), 1e-3, fused=True), lambda: F.cross_entropy(model(x)[learnt], labels), 0


NETWORKS = {"ptb-lstm": ptb_lstm, "wikitext2-transformer": wikitext2_transformer, "xnli-bert": xnli_bert,
            "ogbn-arxiv-gcn": ogbn_arxiv_gcn}


def median_milliseconds(make, autocast, warm_up=5, repeat=30):
    torch.manual_seed(1)
    model, optimizer, loss, clip = make()
    samples = []
    for i in range(warm_up + repeat):
        torch.cuda.synchronize()
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16) if autocast else contextlib.nullcontext():
            value = loss()
        value.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        torch.cuda.synchronize()
        if i >= warm_up:
            samples.append(1e3 * (time.perf_counter() - began))
    return statistics.median(samples)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", choices=[*NETWORKS, []], help="all where none is named")
    names = parser.parse_args().networks or list(NETWORKS)
    if not torch.cuda.is_available():
        parser.error("no CUDA device; this compares steps on a GPU")
    torch.set_float32_matmul_precision("high")
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    print(f"{'network':<24}{'fp32 ms':>10}{'bf16 autocast ms':>18}")
    for name in names:
        fp32, bf16 = (median_milliseconds(NETWORKS[name], autocast) for autocast in (False, True))
        print(f"{name:<24}{fp32:>10.2f}{bf16:>18.2f}", flush=True)


if __name__ == "__main__":
    main()
