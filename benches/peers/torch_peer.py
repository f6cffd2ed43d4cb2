"""The paper's models in PyTorch; trains one on a toy task and answers turns (see common.serve).

    python torch_peer.py --model nap --form linear --dim 128 [--compile] [--bf16]
"""
import contextlib
import os

import common

A = common.arguments(__doc__, bf16=dict(action='store_true', help='bfloat16 autocast'),
                     compile=dict(action='store_true', help='torch.compile'))
os.environ['OMP_NUM_THREADS'] = str(A.threads)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

torch.set_num_threads(A.threads)


def table(*shape):
    return nn.init.trunc_normal_(nn.Parameter(torch.empty(*shape)), std=0.02, a=-0.04, b=0.04)


def linear(n_in, n_out):
    layer = nn.Linear(n_in, n_out)
    nn.init.trunc_normal_(layer.weight, std=0.02, a=-0.04, b=0.04)
    nn.init.zeros_(layer.bias)
    return layer


def norm(n):
    return nn.LayerNorm(n, eps=common.LAYER_EPSILON)


def gelu(x):
    return F.gelu(x, approximate='tanh')


class Attention(nn.Module):
    """Multi-head attention whose weights are normalised logits (NAP) or a softmax (MTE, BERT)."""

    def __init__(self, a):
        super().__init__()
        self.kind, self.heads, self.form = a.model, a.heads, a.form
        self.qkv, self.mix = linear(a.dim, 3 * a.dim), linear(a.dim, a.dim)
        if a.model != 'bert':
            self.norm = norm(a.dim)
        if a.model == 'nap':
            self.gain = nn.Parameter(torch.ones(a.heads, 1, 1))
            self.bias = nn.Parameter(torch.zeros(a.heads, 1, 1))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if self.kind != 'nap':
            logits = torch.matmul(q, k.transpose(2, 3)) * (d // self.heads) ** -0.5
            pooled = torch.matmul(torch.softmax(logits, -1), v)
        elif self.form == 'linear':
            # mean and variance of a row of q k^T follow from the mean and covariance of the keys
            k = k - k.mean(2, keepdim=True)
            kt = k.transpose(2, 3)
            variance = (torch.matmul(q, torch.matmul(kt, k)) * q).sum(-1, keepdim=True) / n
            std = variance.clamp(min=0).add(1e-12).sqrt() + common.NAP_EPSILON
            pooled = torch.matmul(q, torch.matmul(kt, v)) * (self.gain / std) + self.bias * v.sum(2, keepdim=True)
        else:
            logits = torch.matmul(q, k.transpose(2, 3))
            variance, mean = torch.var_mean(logits, -1, correction=0, keepdim=True)
            scale = self.gain / (variance.sqrt() + common.NAP_EPSILON)
            pooled = torch.matmul((logits - mean) * scale + self.bias, v)
        pooled = pooled.transpose(1, 2).reshape(b, n, d)
        return self.mix(pooled if self.kind == 'bert' else gelu(self.norm(pooled)))


class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.kind = a.model
        wide = common.feed_forward_width(a.model, a.dim)
        if common.has_attention(a.model):
            self.pool = Attention(a)
        if a.model != 'bert':
            self.wide_norm = norm(wide)
        self.pool_norm, self.wide = norm(a.dim), linear(a.dim, wide)
        self.narrow, self.narrow_norm = linear(wide, a.dim), norm(a.dim)

    def forward(self, x):
        if self.kind == 'bert':
            x = self.pool_norm(x + self.pool(x))
            return self.narrow_norm(x + self.narrow(gelu(self.wide(x))))
        if self.kind == 'max':
            pooled = x.amax(1, keepdim=True)
        elif self.kind == 'sum':
            pooled = x.sum(1, keepdim=True)
        else:
            pooled = self.pool(x)
        x = x + self.pool_norm(pooled)
        return x + self.narrow_norm(self.narrow(gelu(self.wide_norm(self.wide(x)))))


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.task = a.task
        self.tokens = table(a.vocab, a.dim)
        if a.task == 'cases':
            self.positions = table(a.seq, a.dim)
        self.blocks = nn.ModuleList(Block(a) for _ in range(a.layers))
        self.last = linear(a.dim, 1 if a.task == 'cases' else a.vocab)

    def forward(self, tokens):
        x = F.embedding(tokens, self.tokens)
        if self.task == 'cases':
            x = x + self.positions
        for block in self.blocks:
            x = block(x)
        return self.last(x)[:, :, 0] if self.task == 'cases' else self.last(x[:, 0])


def clip(parameters):
    """Scales each variable's gradient to norm 1 at most, as the paper's BERT is trained."""
    gradients = [p.grad for p in parameters]
    norms = torch._foreach_norm(gradients)
    torch._foreach_clamp_min_(norms, 1.0)
    torch._foreach_div_(gradients, norms)


def main(a):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = Model(a)
    parameters = list(model.parameters())

    def loss_of(x, y):
        with torch.autocast('cpu', torch.bfloat16) if a.bf16 else contextlib.nullcontext():
            return F.cross_entropy(model(x).float(), y)

    if a.compile:
        loss_of = torch.compile(loss_of)
    adam = torch.optim.Adam(parameters, lr=a.lr, eps=common.ADAM_EPSILON, fused=True)

    def step(number):
        adam.param_groups[0]['lr'] = a.lr * common.rate_factor(a.model, number, a.total)
        x, y = common.TASKS[a.task](rng, a.vocab, a.batch, a.seq)
        loss = loss_of(torch.from_numpy(x), torch.from_numpy(y))
        adam.zero_grad(set_to_none=True)
        loss.backward()
        if a.model == 'bert':
            clip(parameters)
        adam.step()
        return loss.item()

    common.serve(sum(p.numel() for p in parameters), step)


if __name__ == '__main__':
    main(A)
