"""What is measured: the cases of docs/performance.md, and who takes part in each."""
from dataclasses import dataclass, field

NAP_FORMS = ('linear', 'quadratic')


@dataclass(frozen=True)
class Contender:
    """A framework (or this program) in one of its ways, and the form of NAP it computes."""
    peer: str
    form: str = ''  # of NAP: linear, quadratic; '' for models that have one form only

    @property
    def name(self):
        return f'{self.peer} {self.form}'.strip()

    @property
    def precision(self):
        return 'bf16' if self.peer.endswith('bf16') else 'f32'


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    contenders: list
    options: dict = field(default_factory=dict)
    processes: int = 2  # of one thread each, on cores of their own
    rounds: int = 0     # 0: as asked for


def both(*peers):
    return [Contender(peer, form) for peer in peers for form in NAP_FORMS]


def linear(*peers):
    return [Contender(peer, 'linear') for peer in peers]


def quadratic(*peers):
    return [Contender(peer, 'quadratic') for peer in peers]


def plain(*peers):
    return [Contender(peer) for peer in peers]


ALL = ('torch', 'torch-compile', 'torch-compile-bf16', 'jax', 'burn', 'candle')
OURS = linear('nap', 'nap-bf16')
# Heads of width 2 and 8: the linear form is far cheaper for everybody.
SMALL = OURS + linear('torch', 'torch-compile', 'jax', 'jax-vmap8', 'burn', 'candle')

CASES = [
    Case('default', 'NAP, d = 128 (the default step)', OURS + both(*ALL)),
    Case('default-one', 'the default step, one process alone',
         linear('nap', 'nap-bf16', 'torch', 'torch-compile', 'torch-compile-bf16', 'jax', 'burn', 'candle'),
         processes=1),
    *(Case(model, f'{model.upper() if model in ("mte", "bert") else model + " pooling"}, d = 128',
           plain('nap', 'nap-bf16', *ALL), dict(model=model)) for model in ('mte', 'bert', 'max', 'sum')),
    Case('mode', 'NAP, d = 128, task mode', OURS + linear('torch', 'torch-compile', 'torch-compile-bf16', 'jax'),
         dict(task='mode')),
    Case('d8', 'NAP, d = 8', SMALL, dict(dim=8)),
    Case('d8-mode', 'NAP, d = 8, task mode', SMALL, dict(dim=8, task='mode')),
    Case('d32', 'NAP, d = 32', SMALL + linear('torch-compile-bf16'), dict(dim=32)),
    Case('d32-mode', 'NAP, d = 32, task mode', SMALL + linear('torch-compile-bf16'), dict(dim=32, task='mode')),
    # Length and width of a head are equal: the quadratic form is the cheaper one.
    Case('d512', 'NAP, d = 512', quadratic('nap', 'nap-bf16', 'torch', 'torch-compile', 'torch-compile-bf16', 'jax'),
         dict(dim=512), rounds=3),
    Case('n512', 'NAP, d = 128, 8 sequences of 512', both('nap') + linear('nap-bf16')
         + both('torch-compile', 'torch-compile-bf16', 'jax'), dict(seq=512, batch=8)),
    # The n x n matrices of the quadratic forms are what fills the memory.
    *(Case(f'n{n}-16-heads', f'NAP, d = 128, 16 heads, one sequence of {n}',
           (both('nap') if n <= 4096 else linear('nap')) + (both('torch') if n <= 2048 else linear('torch')),
           dict(seq=n, batch=1, heads=16), processes=1, rounds=3) for n in (512, 1024, 2048, 4096, 8192, 16384)),
]

# A subset that needs neither torch.compile nor long steps.
QUICK_CASES = ('default', 'max', 'd8', 'n512')
QUICK_PEERS = ('nap', 'torch', 'jax', 'jax-vmap8', 'burn', 'candle')
