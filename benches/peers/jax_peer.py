"""The paper's models in JAX; trains one on a toy task and answers turns (see common.serve).

    python jax_peer.py --model nap --form linear --dim 8 [--models 8]

--models trains that many models at once under vmap, each with its own weights, batches and learning rate.
XLA takes as many threads as the process may use cores: pin the process to one core for one (--threads is ignored).
"""
import common

A = common.arguments(__doc__, models=dict(type=int, default=1))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402


def initial(a, key):
    keys = iter(jax.random.split(key, 6 * a.layers + 3))

    def weight(*shape):
        return 0.02 * jax.random.truncated_normal(next(keys), -2, 2, shape)

    def linear(n_in, n_out):
        return dict(w=weight(n_in, n_out), b=jnp.zeros(n_out))

    def norm(n):
        return dict(gain=jnp.ones(n), bias=jnp.zeros(n))

    def block():
        wide = common.feed_forward_width(a.model, a.dim)
        p = dict(pool_norm=norm(a.dim), wide=linear(a.dim, wide), narrow=linear(wide, a.dim), narrow_norm=norm(a.dim))
        if a.model != 'bert':
            p.update(wide_norm=norm(wide))
        if common.has_attention(a.model):
            p.update(qkv=linear(a.dim, 3 * a.dim), mix=linear(a.dim, a.dim))
        if a.model in ('nap', 'mte'):
            p.update(norm=norm(a.dim))
        if a.model == 'nap':
            p.update(gain=jnp.ones((a.heads, 1, 1)), bias=jnp.zeros((a.heads, 1, 1)))
        return p

    p = dict(tokens=weight(a.vocab, a.dim), blocks=[block() for _ in range(a.layers)],
             last=linear(a.dim, 1 if a.task == 'cases' else a.vocab))
    if a.task == 'cases':
        p['positions'] = weight(a.seq, a.dim)
    return p


def linear(p, x):
    return x @ p['w'] + p['b']


def norm(p, x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + common.LAYER_EPSILON) * p['gain'] + p['bias']


def gelu(x):
    return jax.nn.gelu(x, approximate=True)


def attention(a, p, x):
    b, n, d = x.shape
    q, k, v = linear(p['qkv'], x).reshape(b, n, 3, a.heads, d // a.heads).transpose(2, 0, 3, 1, 4)
    if a.model != 'nap':
        pooled = jax.nn.softmax(q @ k.swapaxes(2, 3) / (d // a.heads) ** 0.5) @ v
    elif a.form == 'linear':
        # mean and variance of a row of q k^T follow from the mean and covariance of the keys
        k = k - k.mean(2, keepdims=True)
        kt = k.swapaxes(2, 3)
        variance = ((q @ (kt @ k)) * q).sum(-1, keepdims=True) / n
        std = jnp.sqrt(jnp.maximum(variance, 0) + 1e-12) + common.NAP_EPSILON
        pooled = (q @ (kt @ v)) * (p['gain'] / std) + p['bias'] * v.sum(2, keepdims=True)
    else:
        logits = q @ k.swapaxes(2, 3)
        logits = logits - logits.mean(-1, keepdims=True)
        std = jnp.sqrt((logits * logits).mean(-1, keepdims=True)) + common.NAP_EPSILON
        pooled = (logits * (p['gain'] / std) + p['bias']) @ v
    pooled = pooled.transpose(0, 2, 1, 3).reshape(b, n, d)
    return linear(p['mix'], pooled if a.model == 'bert' else gelu(norm(p['norm'], pooled)))


def loss_of(a, p, tokens, target):
    x = p['tokens'][tokens]
    if a.task == 'cases':
        x = x + p['positions']
    for block in p['blocks']:
        if a.model == 'bert':
            x = norm(block['pool_norm'], x + attention(a, block, x))
            x = norm(block['narrow_norm'], x + linear(block['narrow'], gelu(linear(block['wide'], x))))
            continue
        if a.model == 'max':
            pooled = x.max(1, keepdims=True)
        elif a.model == 'sum':
            pooled = x.sum(1, keepdims=True)
        else:
            pooled = attention(a, block, x)
        x = x + norm(block['pool_norm'], pooled)
        hidden = gelu(norm(block['wide_norm'], linear(block['wide'], x)))
        x = x + norm(block['narrow_norm'], linear(block['narrow'], hidden))
    logits = linear(p['last'], x)[:, :, 0] if a.task == 'cases' else linear(p['last'], x[:, 0])
    return optax.softmax_cross_entropy_with_integer_labels(logits, target).mean()


def clip(gradients):
    """Scales each variable's gradient to norm 1 at most, as the paper's BERT is trained."""
    return jax.tree.map(lambda g: g / jnp.maximum(jnp.sqrt((g * g).sum()), 1.0), gradients)


def main(a):
    adam = optax.scale_by_adam(eps=common.ADAM_EPSILON)

    def step(state, rate, x, y):
        p, moments, n = state
        loss, gradients = jax.value_and_grad(lambda p: loss_of(a, p, x, y))(p)
        if a.model == 'bert':
            gradients = clip(gradients)
        updates, moments = adam.update(gradients, moments)
        rate = rate * common.rate_factor(a.model, n, a.total, jnp.where)
        return (jax.tree.map(lambda w, u: w - rate * u, p, updates), moments, n + 1), loss

    def start(key):
        p = initial(a, key)
        return p, adam.init(p), jnp.zeros(())

    many = a.models > 1
    # the learning rates of a sweep: models in parallel differ in nothing but their weights, data and rate
    rates = a.lr * 0.3 ** jnp.linspace(0, 1, a.models) if many else a.lr
    keys = jax.random.split(jax.random.key(0), a.models) if many else jax.random.key(0)
    spread = jax.vmap if many else lambda f: f
    state = jax.jit(spread(start))(keys)
    compiled = jax.jit(spread(step), donate_argnums=0)
    parameters = sum(w.size for w in jax.tree.leaves(state[0])) // a.models
    rng = np.random.default_rng(0)

    def advance(_):
        nonlocal state
        x, y = common.TASKS[a.task](rng, a.vocab, a.batch * a.models, a.seq)
        if many:
            x, y = x.reshape(a.models, a.batch, a.seq), y.reshape(a.models, a.batch)
        state, loss = compiled(state, rates, x.astype(np.int32), y.astype(np.int32))
        return float(jnp.mean(loss))

    common.serve(parameters, advance, a.models)


if __name__ == '__main__':
    main(A)
