"""What the Python peers share: options, tasks, and the turns they take. The Rust peers have the same in `harness/`."""
import argparse
import json
import math
import os
import sys
import time

import numpy as np

NAP_EPSILON = 1e-3    # added to the deviation of a row of attention logits
LAYER_EPSILON = 1e-3  # inside LayerNorm's square root
ADAM_EPSILON = 1e-7


def since_process_start():
    """Seconds since the kernel started this process (so imports are included)."""
    with open('/proc/self/stat') as f:
        ticks = int(f.read().rsplit(')', 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf('SC_CLK_TCK')


def peak_rss_mb():
    """Peak memory of this process in MB."""
    with open('/proc/self/status') as f:
        kib = next(line.split()[1] for line in f if line.startswith('VmHWM:'))
    return float(kib) * 1.024e-3


def cases_batch(rng, vocab, batch, seq):
    """Token 64 present: the place of the smallest token; else 50 present: 0; else of the largest."""
    x = rng.integers(0, vocab, (batch, seq))
    y = np.where((x == 64).any(1), x.argmin(1), np.where((x == 50).any(1), 0, x.argmax(1)))
    return x, y


def mode_batch(rng, vocab, batch, seq):
    """The most frequent token, the smallest of equals."""
    x = rng.integers(0, vocab, (batch, seq))
    counts = np.bincount((x + vocab * np.arange(batch)[:, None]).ravel(), minlength=batch * vocab)
    return x, counts.reshape(batch, vocab).argmax(1)


TASKS = {'cases': cases_batch, 'mode': mode_batch}


def has_attention(model):
    return model in ('nap', 'mte', 'bert')


def feed_forward_width(model, dim):
    """Poolings get about the parameters of attention."""
    return 4 * dim if has_attention(model) else 6 * dim + 1


def rate_factor(model, step, total, where=lambda condition, a, b: a if condition else b):
    """Share of the learning rate in a step: BERT warms up over the first tenth, all decay to 0."""
    warm_up = total // 10 if model == 'bert' else 0
    decayed = 1 - step / total
    decayed = where(decayed > 0, decayed, 0.0)
    return where(step < warm_up, step / max(1, warm_up), decayed)


def arguments(description, **extra):
    p = argparse.ArgumentParser(description=description)
    p.add_argument('--model', default='nap', choices=['nap', 'mte', 'bert', 'max', 'sum'])
    p.add_argument('--task', default='cases', choices=list(TASKS))
    p.add_argument('--form', default='quadratic', choices=['quadratic', 'linear'],
                   help='of NAP; linear: equal, and linear in the sequence length')
    for name, default in dict(dim=128, seq=128, batch=32, heads=4, layers=2, vocab=0, total=3200, threads=1).items():
        p.add_argument('--' + name, type=int, default=default)
    p.add_argument('--lr', type=float, default=0.3 ** 7)
    for name, options in extra.items():
        p.add_argument('--' + name, **options)
    a = p.parse_args()
    a.vocab = a.vocab or (100 if a.task == 'cases' else 10)
    return a


def serve(parameters, step, models=1):
    """Takes a first step, reports it, and then as many steps as each line of standard input asks for:
    `seconds 0.5` or `steps 10`. step(number) returns its loss; models: how many models it advances."""
    done = 0

    def turn(least, seconds):
        nonlocal done
        times, losses = [], []
        began = time.perf_counter()
        while len(times) < least or time.perf_counter() - began < seconds:
            start = time.perf_counter()
            loss = step(done)
            times.append(time.perf_counter() - start)
            losses.append(loss if math.isfinite(loss) else None)  # JSON has no NaN
            done += 1
        return dict(times=times, losses=losses)

    def say(line):
        print(json.dumps(line), flush=True)

    losses = turn(1, 0)['losses']
    say(dict(parameters=parameters, models=models, first_step_s=since_process_start(), losses=losses))
    for line in sys.stdin:
        kind, _, number = line.strip().partition(' ')
        answer = turn(int(number), 0) if kind == 'steps' else turn(1, float(number))
        say(dict(answer, peak_rss_mb=peak_rss_mb()))
